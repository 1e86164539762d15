"""The caches, used while the site is imported: whoever forks later inherits what that opened."""

from __future__ import annotations

import contextlib
import sys

from django.core.cache import cache

from nearcache.errors import EngineError
from tests.raw_fork import rest


def use() -> None:
    with contextlib.suppress(EngineError):  # a worker may be born while the store is away
        cache.set("imported", 1, None)
        cache.get_or_set("computed-at-import", lambda: 1, 60)
        with cache.lock("of-the-import", timeout=5, wait=1):
            cache.get("imported")
    if "uwsgi" in sys.modules:
        rest()  # it forks when this is imported, unless it is lazy
