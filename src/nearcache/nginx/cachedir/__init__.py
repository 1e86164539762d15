"""A cache directory of nginx, read and never guessed; nothing here writes.

layout.py     the header that nginx writes before each cached response, by version and ABI
cachefile.py  one file, checked by marker, crc and key; heads.py: the response's head in it
directory.py  the directory: a walk that survives nginx working in it; select.py: by a pattern
variants.py   which files belong to which key, known without a walk: inotify.py tells of new ones
varying.py    which request headers lead to a variant
"""
