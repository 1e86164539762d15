"""``get_or_set`` with single flight: of all who miss a key together, one computes.

A backend brings Django's own methods; the waiting is :mod:`nearcache.flight`'s.
"""

from __future__ import annotations

import inspect
from typing import Any

from django.core.cache.backends.base import DEFAULT_TIMEOUT

from nearcache.extras import Extras
from nearcache.flight import Flight
from nearcache.locks import Lock

FLIGHT = b"\0flight\0"  # no user's lock has this name: key functions make no such start


class StampedeProof(Extras):
    """``get_or_set`` and its twin; see the head of this module."""

    flight_wait_s: float = 30.0

    def get_or_set(
        self, key: Any, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> Any:
        """Django's, and a callable ``default`` runs once on this host for all who miss together."""
        value = self.get(key, self._missing_key, version)
        if value is not self._missing_key:
            return value
        if not callable(default):
            return self._add_and_get(key, default, timeout, version)
        if not self.flight_wait_s:
            return self._add_and_get(key, default(), timeout, version)
        turn = _Turn(self, key, version)
        try:
            if not turn.flight.join():
                return turn.value
            return self._add_and_get(key, default(), timeout, version)
        finally:
            turn.flight.leave()

    async def aget_or_set(
        self, key: Any, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> Any:
        """:meth:`get_or_set`; ``default`` may also return an awaitable."""
        value = self.get(key, self._missing_key, version)
        if value is not self._missing_key:
            return value
        if not callable(default):
            return self._add_and_get(key, default, timeout, version)
        if not self.flight_wait_s:
            return self._add_and_get(key, await _settled(default()), timeout, version)
        turn = _Turn(self, key, version)
        try:
            if not await turn.flight.ajoin():
                return turn.value
            return self._add_and_get(key, await _settled(default()), timeout, version)
        finally:
            turn.flight.leave()

    def _add_and_get(self, key: Any, value: Any, timeout: Any, version: int | None) -> Any:
        self.add(key, value, timeout, version)
        # Somebody else's add may have come first; all callers then return the same value.
        return self.get(key, value, version)


async def _settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


class _Turn:
    """One caller's flight for one key, and the value that it may come back with."""

    def __init__(self, cache: StampedeProof, key: Any, version: int | None) -> None:
        self.value: Any = None
        self._cache, self._key, self._version = cache, key, version
        name = FLIGHT + cache._raw_key(key, version)
        wait_s = cache.flight_wait_s
        lock = Lock(cache.engine, name, timeout_s=wait_s, clock=cache.clock)
        self.flight = Flight(lock, self._look, wait_s, cache.clock, cache.counters)

    def _look(self) -> bool:
        missing = self._cache._missing_key
        self.value = self._cache.get(self._key, missing, self._version)
        return self.value is not missing
