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

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from nearcache.base.clock import Clock
from nearcache.base.degraded_mode import DegradedMode
from nearcache.base.per_process import once
from nearcache.base.sans_io import Flow, Run, arun, run
from nearcache.django_cache.degraded import ANSWERS, Forgiving
from nearcache.errors import EngineUnavailable, RegionError

if TYPE_CHECKING:
    from nearcache.django_cache.adapter import Configured

    class Base(Forgiving, Configured): ...
else:
    Base = Forgiving

PAUSE_S = 1.0

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


class ForgivingMethods(Base):
    """Goes before SharedMemoryCache. Its methods of :data:`.degraded.ANSWERS` are made below."""

    _forgives = True
    _forgiven = EngineUnavailable, RegionError

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

    def stats(self) -> dict[str, int]:
        """Those of the store, if it is there, and what this process forgave."""
        try:
            found = super().stats()
        except self._forgiven as error:
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


def _called(name: str) -> Any:
    """The backend's own method; what stands for it while the cache is away."""

    def method(self: ForgivingMethods, *args: Any, **kwargs: Any) -> Any:
        try:
            result = getattr(super(ForgivingMethods, self), name)(*args, **kwargs)
        except self._forgiven as error:
            return self._instead(error, name, *args, **kwargs)
        if self._outage.drops:
            self._answered(name)
        return result

    method.__name__ = name
    return method


def _awaited(name: str) -> Any:
    """The same of its twin."""

    async def method(self: ForgivingMethods, *args: Any, **kwargs: Any) -> Any:
        try:
            result = await getattr(super(ForgivingMethods, self), f"a{name}")(*args, **kwargs)
        except self._forgiven as error:
            return self._instead(error, name, *args, **kwargs)
        if self._outage.drops:
            self._answered(name)
        return result

    method.__name__ = f"a{name}"
    return method


TWINS_CALL = {"get", "get_many", "has_key", "set", "add", "set_many"}
TWINS_CALL |= {"touch", "delete", "delete_many"}
"""Methods that their ``a`` twins call, which need nothing of their own then."""
for _name in ANSWERS:
    setattr(ForgivingMethods, _name, _called(_name))
    if _name not in TWINS_CALL:
        setattr(ForgivingMethods, f"a{_name}", _awaited(_name))


def forgiving_class(kind: type) -> type:
    """That backend, forgiving; of the same name."""
    if issubclass(kind, ForgivingMethods):
        return kind
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    names["__doc__"] = kind.__doc__ or ""
    return once(("forgiving", kind), lambda: type(kind.__name__, (ForgivingMethods, kind), names))
