"""``on_error="miss"`` of SharedMemoryCache: its file cannot be opened, so the cache holds nothing.

The directory is gone or read-only, /dev/shm is full, the process may map no more memory. One
caller tries again every ``PAUSE_S``; the others miss at once, and when the place is well again
the cache is back. See :mod:`nearcache.django_cache.degraded` for what raises all the same, and
``manage.py check``, which forgives nothing, for what is said at the start.

A write whose shard stays locked is refused and counted (``refused``), instead of EngineBusy.

A backend without the option is none of these classes, and pays nothing for it: SharedMemoryCache
makes a subclass of itself where the option is set.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from nearcache.base.clock import Clock
from nearcache.base.degraded_mode import DegradedMode
from nearcache.base.per_process import once
from nearcache.base.sans_io import Flow, Run, arun, run
from nearcache.django_cache.degraded import (
    Answer,
    Forgiving,
    all_keys,
    default_given,
    no,
    no_keys,
    no_values,
    nothing,
    zero,
)
from nearcache.errors import EngineUnavailable, RegionError

if TYPE_CHECKING:
    from nearcache.django_cache.adapter import Configured

    class Base(Forgiving, Configured): ...
else:
    Base = Forgiving

PAUSE_S = 1.0
FORGIVEN = EngineUnavailable, RegionError

T = TypeVar("T")


class Place:
    """Where a cache's file is to be, and when it is tried again to open it there."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.outage = DegradedMode(name, clock)
        self._clock = clock
        self._error: RegionError | None = None
        self._again_at_s = 0.0

    def opened(self, make: Callable[[], T]) -> T:
        """What ``make`` makes; its last error again if that was a moment ago."""
        error = self._error
        if error is not None:
            if self._clock.monotonic_s() < self._again_at_s:
                raise type(error)(*error.args)
            self._wait()  # the others, while this one tries
        try:
            made = make()
        except RegionError as failed:
            self._error = type(failed)(*failed.args)  # without the traceback
            self._wait()
            raise
        self._error = None
        return made

    def _wait(self) -> None:
        self._again_at_s = self._clock.monotonic_s() + PAUSE_S


def _called(name: str, answer: Answer, kind: str = "read") -> Any:
    """The backend's own method; ``answer(*arguments)`` while the cache is away."""

    def method(self: ForgivingMethods, *args: Any, **kwargs: Any) -> Any:
        try:
            result = getattr(super(ForgivingMethods, self), name)(*args, **kwargs)
        except FORGIVEN as error:
            self._forgive(error, write=kind != "read")
            return answer(*args, **kwargs)
        if self._outage.drops:
            self._succeeded(kind == "store")
        return result

    method.__name__ = name
    return method


def _awaited(name: str, answer: Answer, kind: str = "read") -> Any:
    """The same of a coroutine."""

    async def method(self: ForgivingMethods, *args: Any, **kwargs: Any) -> Any:
        try:
            result = await getattr(super(ForgivingMethods, self), name)(*args, **kwargs)
        except FORGIVEN as error:
            self._forgive(error, write=kind != "read")
            return answer(*args, **kwargs)
        if self._outage.drops:
            self._succeeded(kind == "store")
        return result

    method.__name__ = name
    return method


def _both(name: str, answer: Answer, kind: str = "read") -> tuple[Any, Any]:
    return _called(name, answer, kind), _awaited(f"a{name}", answer, kind)


class ForgivingMethods(Base):
    """Goes before SharedMemoryCache. The ``a`` twins that call these need none of their own."""

    _forgives = True

    def __init__(self, location: Any, params: dict[str, Any]) -> None:
        super().__init__(location, params)
        where = self.options.location
        name = f"SharedMemoryCache {where!r}"
        self._place: Place = once(("place", where), lambda: Place(name, self.clock))
        self._outage = self._place.outage

    def open_engine(self) -> Any:
        return self._place.opened(super().open_engine)

    def _is_as(self, other: Any) -> bool:
        same_file = getattr(other, "path", None) == self.path  # type: ignore[attr-defined]
        return same_file and bool(other.key_prefix == self.key_prefix)

    get = _called("get", default_given)
    get_many = _called("get_many", no_values)
    has_key = _called("has_key", no)
    set = _called("set", nothing, "store")
    set_many = _called("set_many", all_keys, "store")
    touch = _called("touch", no, "change")
    delete = _called("delete", no, "change")
    delete_many = _called("delete_many", nothing, "change")
    clear, aclear = _both("clear", nothing, "change")
    ttl, attl = _both("ttl", zero)
    pttl, apttl = _both("pttl", zero)
    expire, aexpire = _both("expire", no, "change")
    pexpire, apexpire = _both("pexpire", no, "change")
    expire_at, aexpire_at = _both("expire_at", no, "change")
    pexpire_at, apexpire_at = _both("pexpire_at", no, "change")
    persist, apersist = _both("persist", no, "change")
    keys, akeys = _both("keys", no_keys)
    delete_pattern, adelete_pattern = _both("delete_pattern", zero, "change")

    def add(self, *args: Any, **kwargs: Any) -> bool:
        try:
            done: bool = super().add(*args, **kwargs)
        except FORGIVEN as error:
            if self._holds_sessions():
                raise
            self._forgive(error, write=True)
            return False
        self._succeeded(write=True)
        return done

    def iter_keys(self, *args: Any, **kwargs: Any) -> Iterator[str]:
        try:
            yield from super().iter_keys(*args, **kwargs)
        except FORGIVEN as error:
            self._forgive(error)

    async def aiter_keys(self, *args: Any, **kwargs: Any) -> AsyncIterator[str]:
        try:
            async for key in super().aiter_keys(*args, **kwargs):
                yield key
        except FORGIVEN as error:
            self._forgive(error)

    def stats(self) -> dict[str, int]:
        """Those of the store, if it is there, and what this process forgave."""
        try:
            found = super().stats()
        except FORGIVEN as error:
            self._forgive(error)
            found = self.counters.as_dict()
        return found | {"forgiven": self._outage.forgiven}

    async def astats(self) -> dict[str, int]:
        return self.stats()

    def _served(self, key: Any, default: Any, *args: Any, **kwargs: Any) -> Any:
        if self._is_away():
            return run(_computed(default), None, self.clock)
        return super()._served(key, default, *args, **kwargs)

    async def _aserved(self, key: Any, default: Any, *args: Any, **kwargs: Any) -> Any:
        if self._is_away():
            return await arun(_computed(default), None, self.clock)
        return await super()._aserved(key, default, *args, **kwargs)

    def _is_away(self) -> bool:
        try:
            self.engine  # noqa: B018 - opened, if it can be
        except RegionError as error:
            self._forgive(error)
            return True
        return False


def _computed(default: Any) -> Flow[Any]:
    return (yield Run(default)) if callable(default) else default


def forgiving_class(kind: type) -> type:
    """That backend, forgiving; of the same name."""
    if issubclass(kind, ForgivingMethods):
        return kind
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    names["__doc__"] = kind.__doc__ or ""
    return once(("forgiving", kind), lambda: type(kind.__name__, (ForgivingMethods, kind), names))
