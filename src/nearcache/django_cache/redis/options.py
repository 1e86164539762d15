"""Options of the Redis backend; foreign_options.py has what Django and django-redis call them.

Those of its connections are in :mod:`nearcache.engines.redis.target.options`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Self

from nearcache.base.options import (
    ServerCacheOptions,
    one_of,
    option,
    option_fields,
    whole,
    yes_or_no,
)
from nearcache.django_cache.get_or_set_options import StampedeOptions
from nearcache.django_cache.redis.foreign_options import of_sentinels, own_names
from nearcache.engines.redis.target.location import parse_target
from nearcache.engines.redis.target.options import TargetOptions
from nearcache.engines.redis.target.target import Target
from nearcache.errors import OptionError

if TYPE_CHECKING:
    from nearcache.engines.redis.engine import RedisEngine

DEFAULT_LOCATION = "redis://127.0.0.1:6379/0"


def locations(value: Any) -> str | tuple[str, ...]:
    """A parser of one URL or several: hashable."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise ValueError(
            f"is a {type(value).__name__}; write a URL or a list of URLs, such as"
            f' "{DEFAULT_LOCATION}" or "unix:///run/redis.sock?db=0"'
        )
    return tuple(value)


@dataclass(frozen=True, kw_only=True)
class RedisOptions(TargetOptions, StampedeOptions, ServerCacheOptions):
    """``LOCATION`` and ``OPTIONS`` of :class:`~nearcache.backends.RedisCache`.

    Those of Django's RedisCache and of django-redis are taken as well
    (nearcache.django_cache.redis.foreign_options).
    """

    backend: ClassVar[str] = "RedisCache"
    unnamed_location: ClassVar[str] = DEFAULT_LOCATION

    location: str | tuple[str, ...] = option(  # type: ignore[assignment]
        "LOCATION",
        "Where the server is: `redis://host:port/database`, `rediss://` for TLS,"
        " `unix:///path/to/socket?db=0`. User and password may be in it. A list: the primary,"
        " then its replicas; with `cluster`, some of its nodes. With `sentinels`, the host is"
        " the name of the service. Written beside `OPTIONS`, as Django has it.",
        locations,
        default=DEFAULT_LOCATION,
        shown_default=f'`"{DEFAULT_LOCATION}"`',
    )
    on_error: str | None = option(
        "on_error",
        "What happens while the server is away. `raise`: every call raises EngineUnavailable."
        " `miss`: reads miss and writes are dropped, which is counted, and logged once; numbers"
        " and locks still raise, and so does `add` where Django keeps its sessions. A wrong"
        " password or a wrong type always raises.",
        one_of("raise", "miss"),
        default=None,
        shown_default="`raise`, or `miss` if DJANGO_REDIS_IGNORE_EXCEPTIONS is set",
    )
    flush_on_clear: bool = option(
        "flush_on_clear",
        "Whether `clear()` is FLUSHDB, fast and for everybody who uses this database. `False`:"
        " it deletes the keys of this `KEY_PREFIX`, and has to look at all to find them.",
        yes_or_no,
        default=False,
    )
    max_entries: int | None = option(
        "MAX_ENTRIES",
        "Django's, and without effect: the server's `maxmemory` bounds it.",
        whole(0),
        default=None,
        shown_default="no limit",
    )
    cull_frequency: int = option(
        "CULL_FREQUENCY",
        "Django's, and without effect: see `MAX_ENTRIES`.",
        whole(0),
        default=3,
    )

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        if find_spec("redis") is None:
            raise OptionError(
                cls.backend, "BACKEND", 'needs redis-py: pip install "nearcache[redis]"'
            )
        own = {each.metadata["name"] for each in option_fields(cls)}
        values, written = own_names(cls.backend, given, own)
        try:
            options = super().parse(values)
        except OptionError as error:
            name = written.get(error.option, error.option)
            raise OptionError(cls.backend, name, error.problem) from error
        try:
            kind = options.target.kind  # made now, so that what is wrong is said now
        except ValueError as error:
            raise OptionError(cls.backend, "LOCATION", str(error)) from error
        theirs = of_sentinels(given)
        if theirs and kind != "sentinel":
            raise OptionError(
                cls.backend, theirs, "needs SENTINELS, which is missing: [(host, 26379), ...]"
            )
        return options

    @cached_property
    def target(self) -> Target:
        """Where and how to connect."""
        return parse_target(self.location, self)

    @cached_property
    def engine(self) -> RedisEngine:
        """The engine of this process for these options. Connects to nothing."""
        # Imported here: `nearcache.backends` is imported by who uses no Redis.
        from nearcache.engines.redis.engine import open_redis

        return open_redis(self.target)

    def forgives(self, settings: Any) -> bool:
        """Whether an outage is served as misses."""
        if self.on_error is None:
            return bool(getattr(settings, "DJANGO_REDIS_IGNORE_EXCEPTIONS", False))
        return self.on_error == "miss"
