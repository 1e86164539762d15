"""The nginx doctor: what an HTTP cache saves or costs, why it misses, and purge without a module.

    layout.py      the header that nginx writes before each cached response, by version and ABI
    cachefile.py   one file of a cache directory, read and never guessed
    keys.py        from a key to its path, and from request headers to a variant
    cachedir.py    the directory: a walk that survives nginx working in it
    purge.py       soft (expire in place) and hard (unlink), with a receipt

Nothing here writes into a cache directory but ``purge``, and that only into entries
whose key and checksum were verified.
"""
