"""Caches with one fault each, which a page must show."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

from django.core.cache.backends.locmem import LocMemCache


class Fails(LocMemCache):
    def get(self, key: str, *arguments: Any, **options: Any) -> Any:
        raise ConnectionError("nobody listens")


class MeetsOthers(LocMemCache):
    """Notes whether two threads were inside a first read at once."""

    meeting = threading.Barrier(2)
    met = False

    def get(self, key: str, *arguments: Any, **options: Any) -> Any:
        with suppress(threading.BrokenBarrierError):
            self.meeting.wait(0.2)
            type(self).met = True
        return super().get(key, *arguments, **options)


class Damages(LocMemCache):
    def get(self, key: str, default: Any = None, version: int | None = None) -> Any:
        value = super().get(key, default, version)
        return value[:-1] if isinstance(value, list) else value


class Drops(LocMemCache):
    def set(self, key: str, *arguments: Any, **options: Any) -> None:
        pass
