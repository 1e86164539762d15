"""Django's cache over Redis and Valkey.

methods.py          the methods of :class:`nearcache.backends.RedisCache`
options.py          its options; foreign_options.py: by the names of Django and django-redis
test_runs.py        a namespace of its own in a test run
"""
