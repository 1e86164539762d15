"""Access logs as bytes, whoever wrote them.

files.py     plain or packed (unpack.py), rotated, growing (follow.py)
formats.py   how to read them: given, configured or recognised
alike.py     which files are read together
urlshape.py  URLs in groups
"""
