"""A configuration of gunicorn: the site is imported once, after gevent has patched Python."""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()
preload_app = True
