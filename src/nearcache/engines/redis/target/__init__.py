"""Where and how to connect.

target.py     servers and limits: frozen
settings.py   options by redis-py's names
location.py   LOCATION as a target
"""
