"""The Django side: what a view says about its response, and purges after the commit.

decorators.py  a view says what nginx may keep: arguments.py is its key, personal.py what
               is never shared
witness.py     which line of code was against it, seen by hooks.py
site_purge.py  purges after the commit, on all hosts; settings.py: their setting
"""
