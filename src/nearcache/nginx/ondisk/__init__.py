"""A cache directory of nginx, read and never guessed; nothing here writes.

layout.py      the header that nginx writes before each cached response, by version and ABI
cachefile.py   one file, checked by marker, crc and key; heads.py: the response's head in it
keys.py        from a key to its path, and from request headers to a variant (varying.py)
cachedir.py    the directory: a walk that survives nginx working in it
variants.py    which files belong to which key, known without a walk: inotify.py tells of new ones
inspection.py  what a directory holds, and inspection_page.py in words
ram.py         how much of it is in RAM (pagecache.py)
bodies.py      what is stored several times; spelling.py: the rule for keys that would mend it
"""
