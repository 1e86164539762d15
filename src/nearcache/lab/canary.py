"""Before anything is timed: does this cache keep a value, for whom, and does it change?

A memcached that is not there answers None, and fast; a near copy may be stale. So a
second reader (a forked process with its own connection, where the store claims to be
shared) must see version one, then version two, then nothing.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Self

from nearcache.lab.workloads.payload import Payload

ANSWER_TIMEOUT_S = 20.0
TIMEOUT_S = 600  # of keys: what a killed run leaves in a user's cache goes by itself


class CanaryDied(Exception):
    """The cache did not pass; the message says at which step and how."""


Reader = Callable[[str], Any]


def prove_work(open_cache: Callable[[], Any], payload: Payload, key: str, shared: bool) -> Any:
    """Run the canary; the cache object it wrote through, connected, is the result."""
    if not shared:
        cache = open_cache()
        _steps(cache, open_cache().get, payload, key)
        return cache
    # Fork first: the reader must not inherit a connection.
    with _ForkedReader(open_cache) as reader:
        cache = open_cache()
        _steps(cache, reader, payload, key)
        return cache


def _steps(cache: Any, read: Reader, payload: Payload, key: str) -> None:
    for version in (1, 2):
        cache.set(key, payload.make(key, version), TIMEOUT_S)
        _expect(payload, read(key), key, version)
    cache.delete(key)
    if read(key) is not None:
        raise CanaryDied("a deleted key still answers a second reader")


def _expect(payload: Payload, value: Any, key: str, version: int) -> None:
    if isinstance(value, Exception):
        raise CanaryDied(f"a second reader got {type(value).__name__}: {value}")
    if value is None:
        raise CanaryDied(
            "a value just set is not there for a second reader: nobody listens at this "
            "address, sets are dropped, or the store is not shared"
        )
    problem = payload.check(value, key, version)
    if problem:
        raise CanaryDied(f"a second reader got a wrong answer ({problem})")


class _ForkedReader:
    """A child with its own connection that answers gets, or the error they raised."""

    def __init__(self, open_cache: Callable[[], Any]) -> None:
        context = multiprocessing.get_context("fork")
        self._ours, theirs = context.Pipe()
        self._child = context.Process(
            target=_serve, args=(self._ours, theirs, open_cache), daemon=True
        )
        self._child.start()
        theirs.close()

    def __call__(self, key: str) -> Any:
        self._ours.send(key)
        if not self._ours.poll(ANSWER_TIMEOUT_S):
            raise CanaryDied(f"a second reader got no answer in {ANSWER_TIMEOUT_S:.0f} s")
        try:
            return self._ours.recv()
        except EOFError:
            raise CanaryDied("a second reader's process died") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._ours.close()
        self._child.join(ANSWER_TIMEOUT_S)
        if self._child.is_alive():
            self._child.kill()
            self._child.join()


def _serve(parents: Connection, pipe: Connection, open_cache: Callable[[], Any]) -> None:
    parents.close()  # our copy would keep the pipe open after the parent has left
    cache = open_cache()
    while True:
        try:
            key = pipe.recv()
        except EOFError:
            os._exit(0)  # no atexit handlers: they belong to the parent
        try:
            answer = cache.get(key)
        except Exception as error:  # noqa: BLE001 - it travels to whoever asked
            answer = RuntimeError(f"{type(error).__name__}: {error}")
        pipe.send(answer)
