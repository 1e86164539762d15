"""The endpoint that ``http`` measures: one Django view, the same under every server and cache.

songs.py   what is in its database, and what it answers, byte for byte
wsgi.py    the view, its caches, its account of itself; run by gunicorn and uWSGI
"""
