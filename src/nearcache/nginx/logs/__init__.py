"""Access logs as bytes, whoever wrote them.

files.py     plain or packed (unpack.py), rotated (rotated.py), growing (follow.py),
             cut while they were followed (copied.py)
formats.py   how to read them: given, configured or recognised
alike.py     which files are read together
served.py    which requests the cache answered
"""
