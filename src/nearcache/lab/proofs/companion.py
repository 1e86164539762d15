"""The other process: a second user of the same cache, with a connection of its own.

One process that talks only to itself proves little. A memcached that is not there
answers None, and fast; a copy kept in the process may be stale, or may make every read
look cheaper than the first one is. The companion reads what the worker has written
(the canary) and writes what the worker then reads (``get_fresh``).

For a store that each process keeps for itself it is a second object in this process.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Protocol

ANSWER_TIMEOUT_S = 20.0
TIMEOUT_S = 600  # of keys: what a killed run leaves in a user's cache goes by itself

OpenCache = Callable[[], Any]


class CompanionError(Exception):
    """The other process got an error or died; the message says which."""


class Companion(Protocol):
    def get(self, key: str) -> Any: ...
    def set(self, key: str, value: Any) -> None: ...


class SameProcess:
    """For caches that are private to a process."""

    def __init__(self, open_cache: OpenCache) -> None:
        self._cache = open_cache()

    def get(self, key: str) -> Any:
        return self._cache.get(key)

    def set(self, key: str, value: Any) -> None:
        self._cache.set(key, value, TIMEOUT_S)


class OtherProcess:
    """A forked child. Make it before the first connection, which it must not inherit."""

    def __init__(self, open_cache: OpenCache, cpu: int) -> None:
        context = multiprocessing.get_context("fork")
        self._ours, theirs = context.Pipe()
        # Not awaited: it leaves when our end of the pipe closes, however that happens.
        context.Process(
            target=_serve, args=(self._ours, theirs, open_cache, cpu), daemon=True
        ).start()
        theirs.close()

    def get(self, key: str) -> Any:
        return self._ask("get", key)

    def set(self, key: str, value: Any) -> None:
        self._ask("set", key, value, TIMEOUT_S)

    def _ask(self, method: str, *arguments: Any) -> Any:
        self._ours.send((method, arguments))
        if not self._ours.poll(ANSWER_TIMEOUT_S):
            raise CompanionError(f"{method} by another process: no answer within 20 s")
        try:
            answer, error = self._ours.recv()
        except EOFError:
            raise CompanionError(f"{method} by another process: it died") from None
        if error:
            raise CompanionError(f"{method} by another process: {error}")
        return answer


def _serve(parents: Connection, pipe: Connection, open_cache: OpenCache, cpu: int) -> None:
    parents.close()  # our copy would keep the pipe open after the parent has left
    os.sched_setaffinity(0, {cpu})
    cache = open_cache()
    while True:
        try:
            method, arguments = pipe.recv()
        except (EOFError, OSError):
            os._exit(0)  # no exit handlers: they belong to the parent
        try:
            pipe.send((getattr(cache, method)(*arguments), None))
        except Exception as error:  # noqa: BLE001 - it travels to whoever asked
            pipe.send((None, f"{type(error).__name__}: {error}"))
