"""Caches that behave badly when they are drilled."""

from __future__ import annotations

import time
from typing import Any

from django.core.cache.backends.dummy import DummyCache
from django.core.cache.backends.locmem import LocMemCache


class KeepsNothing(DummyCache):
    """Says yes to everything."""

    def add(self, *arguments: Any, **options: Any) -> bool:
        return True


class Sleeps(LocMemCache):
    """Never comes back from deleting a long key."""

    def delete(self, key: str, version: int | None = None) -> bool:
        if len(key) > 250:
            time.sleep(60)
        return super().delete(key, version=version)
