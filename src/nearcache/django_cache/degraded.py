"""``on_error="miss"``: a cache that is away is one that holds nothing.

Reads miss, writes are dropped, and :mod:`nearcache.base.degraded_mode` counts it and says so once.
What must not pretend raises all the same:

    incr, decr, incr_version, decr_version   a number that was not counted
    gets, cas, lock                          a decision about who goes first
    check, and a client's own calls          tools
    add, for the cache that holds sessions   False would make Django try 10,000 other keys
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.utils.module_loading import import_string

from nearcache.base.degraded_mode import DegradedMode
from nearcache.base.sans_io import Ask, Flow
from nearcache.django_cache.adapter import Configured
from nearcache.errors import EngineBusy, EngineUnavailable

if TYPE_CHECKING:
    from nearcache.django_cache.extra_methods import ExtraMethods as Base
else:
    Base = object

SESSION_ENGINES = {
    "django.contrib.sessions.backends.cache",
    "django.contrib.sessions.backends.cached_db",
}

# -- what is answered instead ------------------------------------------------------------------

Answer = Callable[..., Any]


def _always(make: Callable[[], Any]) -> Answer:
    return lambda *_args, **_kwargs: make()


def _default_given(*args: Any, **kwargs: Any) -> Any:
    return kwargs.get("default", args[1] if len(args) > 1 else None)


def _all_keys(data: Mapping[Any, Any], *_args: Any, **_kwargs: Any) -> list[Any]:
    return list(data)


_no, _zero = _always(bool), _always(int)
_nothing = _always(lambda: None)
ANSWERS: dict[str, tuple[Answer, str]] = {
    "get": (_default_given, "read"),
    "get_many": (_always(dict), "read"),
    "has_key": (_no, "read"),
    "ttl": (_zero, "read"),
    "pttl": (_zero, "read"),
    "keys": (_always(list), "read"),
    "set": (_nothing, "store"),
    "add": (_no, "store"),
    "set_many": (_all_keys, "store"),
    "touch": (_no, "change"),
    "expire": (_no, "change"),
    "pexpire": (_no, "change"),
    "expire_at": (_no, "change"),
    "pexpire_at": (_no, "change"),
    "persist": (_no, "change"),
    "delete": (_no, "change"),
    "delete_many": (_nothing, "change"),
    "delete_pattern": (_zero, "change"),
    "clear": (_nothing, "change"),
}
"""By method. A full server refuses to store, and takes other changes."""

STORING = {"set", "add", "cas"}
"""The engine's methods that a full server refuses, of those that get_or_set asks for."""


class Forgiving(Base):
    """What a backend that may forgive has in common with the others."""

    _forgives = False
    _forgiven: tuple[type[Exception], ...] = (EngineUnavailable,)
    _outage: DegradedMode

    def iter_keys(
        self, pattern: str = "*", version: int | None = None, itersize: int | None = None
    ) -> Iterator[str]:
        """:meth:`ExtraMethods.iter_keys`; the iteration ends where an outage begins."""
        try:
            yield from super().iter_keys(pattern, version, itersize)
        except self._forgiven as error:
            self._forgive(error)

    async def aiter_keys(
        self, pattern: str = "*", version: int | None = None, itersize: int | None = None
    ) -> AsyncIterator[str]:
        """:meth:`iter_keys`, to be iterated with ``async for``."""
        try:
            async for key in super().aiter_keys(pattern, version, itersize):
                yield key
        except self._forgiven as error:
            self._forgive(error)

    def _asked(self, step: Ask, otherwise: Any = None) -> Flow[Any]:
        stores = step.method in STORING
        try:
            answer = yield step
        except EngineBusy:
            raise
        except EngineUnavailable as error:
            self._forgive(error, stores)
            return otherwise
        self._succeeded(stores)
        return answer

    def _instead(self, error: Exception, method: str, *args: Any, **kwargs: Any) -> Any:
        """What the method answers now; raises the error unless outages are forgiven."""
        answer, kind = ANSWERS[method]
        if method == "add" and self._forgives and self._holds_sessions():
            raise error
        self._forgive(error, write=kind != "read")
        return answer(*args, **kwargs)

    def _answered(self, method: str) -> None:
        """The method has answered by itself."""
        self._succeeded(ANSWERS[method][1] == "store")

    def _forgive(self, error: Exception, write: bool = False) -> None:
        """Raises the error unless outages are forgiven."""
        if not self._forgives:
            raise error
        self._outage.forgive(error, write)

    def _succeeded(self, write: bool) -> None:
        if write and self._outage.drops:
            self._outage.end_of_writes()
        elif self._outage.on:
            self._outage.end()

    def _holds_sessions(self) -> bool:
        """Whether Django keeps its sessions here."""
        if settings.SESSION_ENGINE not in SESSION_ENGINES:
            return False
        entry = dict(
            settings.CACHES.get(settings.SESSION_CACHE_ALIAS, {"BACKEND": "builtins.dict"})
        )
        backend = import_string(entry.pop("BACKEND"))
        if not issubclass(backend, Configured):
            return False
        return self._is_as(backend(entry.pop("LOCATION", ""), entry))

    def _is_as(self, other: Any) -> bool:
        """Whether that backend has the same keys in the same store."""
        raise NotImplementedError
