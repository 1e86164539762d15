"""``on_error="miss"``: a cache that is away is one that holds nothing.

Reads miss, writes are dropped, and :mod:`nearcache.base.degraded_mode` counts it and says so once.
What must not pretend raises all the same:

    incr, decr, incr_version, decr_version   a number that was not counted
    gets, cas, lock                          a decision about who goes first
    check, and a client's own calls          tools
    add, for the cache that holds sessions   False would make Django try 10,000 other keys
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

from nearcache.base.degraded_mode import DegradedMode
from nearcache.django_cache.adapter import Configured

SESSION_ENGINES = {
    "django.contrib.sessions.backends.cache",
    "django.contrib.sessions.backends.cached_db",
}

Answer = Callable[..., Any]


class Forgiving:
    """What a backend that may forgive has in common with the others."""

    _forgives = False
    _outage: DegradedMode

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


# -- what is answered instead ------------------------------------------------------------------


def _always(make: Callable[[], Any]) -> Answer:
    return lambda *_args, **_kwargs: make()


def default_given(*args: Any, **kwargs: Any) -> Any:
    return kwargs.get("default", args[1] if len(args) > 1 else None)


def all_keys(data: Mapping[Any, Any], *_args: Any, **_kwargs: Any) -> list[Any]:
    return list(data)


no, zero, no_values, no_keys = map(_always, (bool, int, dict, list))
nothing = _always(lambda: None)
