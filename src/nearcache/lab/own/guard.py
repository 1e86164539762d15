"""A cache of the user's as arms get it: reads as they are, writes under the run's own prefix.

Whatever is not named here is refused: ``clear``, patterns, raw clients, the methods of a
backend that nobody has looked at. A key of somebody else's is refused before the cache is
asked. A value that no lifetime was given for lives ten minutes, so that what a killed run
leaves goes by itself.

    arms ──> OwnCache ──> the backend that CACHES names
    proofs   ──> bare() ────> the same backend, to say what it is; they write nothing there

A read is the backend's own method: what is timed is the cache. A write costs the check of its
key on top, which :func:`write_check_ns` measures and the proof says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from nearcache.errors import LabError

LIFE_S = 600
READS = (
    *("get", "get_many", "has_key", "ttl", "pttl", "close"),
    *("make_key", "validate_key", "make_and_validate_key", "get_backend_timeout"),
)
# The second argument of these is the value, the third the timeout.
WITH_VALUE = ("set", "add", "get_or_set")
OF_ONE_KEY = (
    *("touch", "delete", "incr", "decr", "incr_version", "decr_version"),
    *("expire", "pexpire", "persist", "lock"),
)
CHECKS = 2000


class Refused(LabError, AttributeError):
    """The lab was about to touch what is not its own. Nothing was done."""


class OwnCache:
    """One object of the user's cache, of which only keys that begin with ``prefix`` are written."""

    def __init__(self, cache: Any, prefix: str) -> None:
        self._bare = cache
        self._prefix = prefix
        for name in READS:
            self._give(name, lambda method: method)
        for name in WITH_VALUE:
            self._give(name, self._with_value)
        for name in OF_ONE_KEY:
            self._give(name, self._of_one_key)
        self._give("set_many", self._of_a_mapping)
        self._give("delete_many", self._of_keys)

    def __getattr__(self, name: str) -> Any:
        """Only what was not given: plain data is shown, whatever could write is refused."""
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ("default_timeout", "key_prefix", "version", "options"):
            return getattr(self._bare, name)
        raise Refused(
            f"{name} is not for the lab: on a cache of yours it writes keys of its run, and "
            "nothing else"
        )

    def __contains__(self, key: str) -> bool:
        return key in self._bare

    def _give(self, name: str, guard: Callable[[Callable[..., Any]], Any]) -> None:
        for each in (name, f"a{name}"):
            method = getattr(self._bare, each, None)
            if method is not None:
                setattr(self, each, guard(method))

    def _with_value(self, method: Callable[..., Any]) -> Callable[..., Any]:
        prefix = self._prefix

        def guarded(key: str, value: Any, timeout: float = LIFE_S, **more: Any) -> Any:
            if not key.startswith(prefix):
                raise foreign(key)
            return method(key, value, timeout, **more)

        return guarded

    def _of_one_key(self, method: Callable[..., Any]) -> Callable[..., Any]:
        prefix = self._prefix

        def guarded(key: str, *arguments: Any, **more: Any) -> Any:
            if not key.startswith(prefix):
                raise foreign(key)
            return method(key, *arguments, **more)

        return guarded

    def _of_a_mapping(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(data: dict[str, Any], timeout: float = LIFE_S, **more: Any) -> Any:
            self._demand_own(data)
            return method(data, timeout, **more)

        return guarded

    def _of_keys(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(keys: Iterable[str], **more: Any) -> Any:
            own = list(keys)
            self._demand_own(own)
            return method(own, **more)

        return guarded

    def _demand_own(self, keys: Iterable[str]) -> None:
        for key in keys:
            if not key.startswith(self._prefix):
                raise foreign(key)


class OwnRedis:
    """redis-py's client of a server of the user's, as far as the lab needs one: the same rule."""

    def __init__(self, client: Any, prefix: str) -> None:
        self.get, self.strlen = client.get, client.strlen
        self.connection_pool = client.connection_pool  # for the bare socket that PINGs are sent on
        self._client = client
        self._prefix = prefix

    def set(self, key: str, value: bytes, ex: int) -> None:
        self._demand_own(key)
        self._client.set(key, value, ex=ex)

    def delete(self, key: str) -> None:
        self._demand_own(key)
        self._client.delete(key)

    def _demand_own(self, key: str) -> None:
        if not key.startswith(self._prefix):
            raise foreign(key)


def foreign(key: str) -> Refused:
    return Refused(f"{key!r} is no key of this run: a cache of yours is not written outside of it")


def bare(cache: Any) -> Any:
    """The backend itself, for those who only look at it: its class, its codec, its room."""
    return cache._bare if isinstance(cache, OwnCache) else cache


def guard_caches(prefix: str) -> None:
    """From now on ``caches[alias]`` is an :class:`OwnCache`, in this process and those it forks.

    Call it after ``django.setup()``: what the user's own apps do then is theirs.
    """
    from django.core.cache import caches

    create = caches.create_connection

    def guarded(alias: str) -> Any:
        return OwnCache(create(alias), prefix)

    caches.create_connection = guarded  # type: ignore[method-assign] # of this object alone
    for alias in caches:
        if hasattr(caches._connections, alias):  # type: ignore[attr-defined]
            del caches[alias]


def write_check_ns() -> float:
    """What the check of its key adds to a write: guarded calls of nothing, less bare ones."""
    guarded = OwnCache(_Nothing(), "own").set
    return max(0.0, _cost_ns(guarded) - _cost_ns(_Nothing().set))


class _Nothing:
    def set(self, key: str, value: Any, timeout: float) -> None:
        """Does nothing."""


def _cost_ns(method: Callable[[str, Any, float], Any]) -> float:
    """The least of five passes: whatever else ran made a pass longer."""
    passes = []
    for _ in range(5):
        began = time.perf_counter_ns()
        for _ in range(CHECKS):
            method("own:key", None, LIFE_S)
        passes.append((time.perf_counter_ns() - began) / CHECKS)
    return min(passes)
