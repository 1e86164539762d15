"""nginx's configuration, as far as it is about caching.

configuration.py  what it says: directives.py is its tree, locations.py its inheritance
"""
