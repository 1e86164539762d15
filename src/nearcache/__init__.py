"""nearcache: find out which cache is fastest for your Django app, and run it.

Importing this package imports neither Django nor a client library; the names
that go into ``settings.CACHES`` are in :mod:`nearcache.backends`.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
