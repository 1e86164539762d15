"""Cache keys as text: what they are made of, and where their entries lie.

groups.py     keys in groups, and their two halves
paths.py      from a key to its path, and from request headers to a variant
templates.py  the shape of a key, and the key that it makes of a URL
spelling.py   rules for arguments: which are kept, dropped, sorted, lower-cased
merging.py    rules that make one key of several spellings, by what a replay makes of them
"""
