"""What a Django view says about its response, and why nginx may not keep it.

cacheable_view.py  a view says what nginx may keep: arguments.py is its key, personal.py what
                   is never shared
witness.py         which line of code was against it, seen by hooks.py
"""
