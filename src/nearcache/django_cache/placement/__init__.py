"""Where a cache is that shall not be another's.

project.py   which project this process serves
test_run.py  whether it runs tests, whose caches are apart and go with the run
root.py      ``sudo manage.py``: root has caches of its own
"""
