"""A directory on some disk, under the load of a file cache.

plan.py        the question
arm.py         one fio run is one round; fio.py: its jobs; files.py: the directory
findings.py    what only this experiment shows
"""
