"""Backends whose every synchronous method goes through its ``a*`` twin.

Django's suite calls the synchronous methods; with these it tests the asynchronous ones. Over
local engines no event loop is needed: a twin that calls straight through never suspends, so
its coroutine ends at the first step, and one that hopped to a thread would fail here. Redis
gets a loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.core.cache.backends.base import BaseCache
from django.utils.module_loading import import_string

TWINS = {
    "add": "aadd",
    "get": "aget",
    "set": "aset",
    "touch": "atouch",
    "delete": "adelete",
    "get_many": "aget_many",
    "set_many": "aset_many",
    "delete_many": "adelete_many",
    "get_or_set": "aget_or_set",
    "has_key": "ahas_key",
    "incr": "aincr",
    "decr": "adecr",
    "incr_version": "aincr_version",
    "decr_version": "adecr_version",
    "clear": "aclear",
    "close": "aclose",
}


class ThroughAsync(BaseCache):
    """A cache around another one, which tests may still configure by attributes."""

    inner_class: str

    def finished(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """What it returns; it must not wait for anything."""
        try:
            coroutine.send(None)
        except StopIteration as done:
            return done.value
        coroutine.close()
        raise AssertionError("an a* method of a local cache waited for something")

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        inner = import_string(self.inner_class)(location, params)
        self.__dict__["inner"] = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["inner"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["inner"], name, value)


def _through(twin: str) -> Any:
    def method(self: ThroughAsync, *args: Any, **kwargs: Any) -> Any:
        return self.finished(getattr(self.inner, twin)(*args, **kwargs))

    return method


def _straight(twin: str) -> Any:
    async def method(self: ThroughAsync, *args: Any, **kwargs: Any) -> Any:
        return await getattr(self.inner, twin)(*args, **kwargs)

    return method


for _name, _twin in TWINS.items():
    setattr(ThroughAsync, _name, _through(_twin))
    setattr(ThroughAsync, _twin, _straight(_twin))


class FusedThroughAsync(ThroughAsync):
    inner_class = "nearcache.backends.SharedMemoryCache"


class PlainThroughAsync(ThroughAsync):
    inner_class = "tests.backends.classes.PlainSharedMemoryCache"


class MemoryThroughAsync(ThroughAsync):
    inner_class = "tests.backends.classes.MemoryCache"


class RedisThroughAsync(ThroughAsync):
    """On the event loop of the calling thread, which no method may leave for another thread."""

    inner_class = "nearcache.backends.RedisCache"

    def finished(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()  # pickling a value uses the cache
            with ThreadPoolExecutor(1) as elsewhere:
                return elsewhere.submit(asyncio.run, coroutine).result()
        loop = _loop(os.getpid(), threading.get_ident())
        try:
            return loop.run_until_complete(coroutine)
        finally:
            assert loop._default_executor is None, "an a* method has used a thread"


@functools.cache
def _loop(_pid: int, _thread: int) -> Any:
    return asyncio.new_event_loop()
