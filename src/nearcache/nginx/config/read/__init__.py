"""What a configuration says about caching.

configuration.py  all of it: directives.py is its tree, locations.py its inheritance
site.py           about the requests of a log; key_template.py: about the key of a URL
units.py          nginx's times and sizes
"""
