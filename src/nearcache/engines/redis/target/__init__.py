"""Where and how to connect.

target.py     servers and limits: frozen
options.py    the options of both: our names, and redis-py's
location.py   LOCATION as a target
"""
