"""Options of the Redis backend; foreign_options.py has what Django and django-redis call them."""

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
    some_seconds,
    whole,
    yes_or_no,
)
from nearcache.django_cache.get_or_set_options import StampedeOptions
from nearcache.django_cache.redis.foreign_options import of_sentinels, own_names
from nearcache.engines.redis.target.location import parse_target
from nearcache.engines.redis.target.settings import Settings
from nearcache.engines.redis.target.target import Target
from nearcache.errors import OptionError

if TYPE_CHECKING:
    from nearcache.engines.redis.engine import RedisEngine

DEFAULT_LOCATION = "redis://127.0.0.1:6379/0"
TARGET_FIELDS = (
    "username",
    "password",
    "database",
    "tls",
    "protocol",
    "parser",
    "connect_timeout_s",
    "read_timeout_s",
    "pool_timeout_s",
    "pool_connections",
    "breaker_failures",
    "breaker_s",
    "keepalive",
)
"""Options that are fields of Target under the same name."""


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


def text(value: Any) -> str:
    """A parser of text; its errors do not repeat it, as it may be a password."""
    if not isinstance(value, str):
        raise ValueError(f"is a {type(value).__name__}; write text")
    return value


def kwargs(value: Any) -> tuple[tuple[str, Any], ...]:
    """A parser of keyword arguments for redis-py's connections: hashable, if the values are."""
    if not isinstance(value, Mapping):
        raise ValueError("is no dict of keyword arguments")
    Settings().take(value)  # which knows their names and ranges
    return tuple(sorted(value.items()))


def sentinels(value: Any) -> tuple[Any, ...]:
    """A parser of the addresses of Sentinels: hashable."""
    pieces = value.split(",") if isinstance(value, str) else value
    return tuple(each if isinstance(each, str) else tuple(each) for each in pieces)


@dataclass(frozen=True, kw_only=True)
class RedisOptions(StampedeOptions, ServerCacheOptions):
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
    cluster: bool = option(
        "cluster",
        "Whether the servers are a Redis Cluster. Its database is 0.",
        yes_or_no,
        default=False,
    )
    sentinels: tuple[Any, ...] = option(
        "sentinels",
        'Addresses of Sentinels, like `[("10.0.0.1", 26379)]`, that know which server is the'
        " primary.",
        sentinels,
        default=(),
        shown_default="none",
    )
    sentinel_kwargs: tuple[tuple[str, Any], ...] = option(
        "sentinel_kwargs",
        "Keyword arguments for redis-py's connections to the Sentinels, as a dict: `password`,"
        " `ssl` and so on.",
        kwargs,
        default=(),
        shown_default="none",
    )
    read_replicas: bool = option(
        "read_replicas",
        "Whether reads may go to replicas. They lag: what was just written may be missing.",
        yes_or_no,
        default=False,
    )
    database: int | None = option(
        "database",
        "The number of the database.",
        whole(0),
        default=None,
        shown_default="what `LOCATION` says, or 0",
    )
    username: str | None = option(
        "username",
        "The user, for servers with ACLs.",
        text,
        default=None,
        shown_default="what `LOCATION` says",
    )
    password: str | None = option(
        "password",
        "The password. It does not show in logs and errors.",
        text,
        default=None,
        shown_default="what `LOCATION` says",
    )
    tls: bool | None = option(
        "tls",
        "Whether to use TLS, as `rediss://` in `LOCATION` does. See `connection_kwargs`.",
        yes_or_no,
        default=None,
        shown_default="what `LOCATION` says",
    )
    protocol: int = option(
        "protocol",
        "The version of the protocol, RESP: 2 or 3.",
        lambda value: int(one_of("2", "3")(str(value))),
        default=2,
    )
    parser: str | None = option(
        "parser",
        "What reads replies: `hiredis`, or `python`, which is slower and needs nothing.",
        lambda value: {"auto": None}.get(value, one_of("auto", "hiredis", "python")(value)),
        default=None,
        shown_default="`hiredis` where it is installed",
    )
    connect_timeout_s: float = option(
        "connect_timeout",
        "Seconds to wait for a connection.",
        some_seconds,
        default=1.0,
    )
    read_timeout_s: float = option(
        "read_timeout",
        "Seconds to wait for a reply.",
        some_seconds,
        default=1.0,
    )
    pool_timeout_s: float = option(
        "pool_timeout",
        "Seconds to wait for a connection of the pool, which serves `client` and the"
        " wake-ups of locks. The cache itself shares one connection per process.",
        some_seconds,
        default=5.0,
    )
    pool_connections: int = option(
        "pool_connections",
        "Connections that the pool of each process may have.",
        whole(1),
        default=50,
    )
    breaker_failures: int = option(
        "breaker_failures",
        "So many failures in a row, and a server is not asked for `breaker_pause`: calls fail at"
        " once, not after a timeout each. 0: it is always asked.",
        whole(0),
        default=3,
    )
    breaker_s: float = option(
        "breaker_pause",
        "Seconds until one caller tries again whether a server that failed is back; twice as many"
        " after a try that failed. A quarter more or less, by chance.",
        some_seconds,
        default=1.0,
    )
    keepalive: bool = option(
        "keepalive",
        "Whether TCP keeps idle connections alive, and finds out about dead ones.",
        yes_or_no,
        default=True,
    )
    connection_kwargs: tuple[tuple[str, Any], ...] = option(
        "connection_kwargs",
        "More keyword arguments for redis-py's connections, as a dict: `ssl_ca_certs`,"
        " `client_name`, `credential_provider` and so on.",
        kwargs,
        default=(),
        shown_default="none",
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
        return parse_target(
            self.location,
            sentinels=self.sentinels,
            sentinel_kwargs=dict(self.sentinel_kwargs),
            cluster=self.cluster,
            read_replicas=self.read_replicas,
            connection_kwargs=dict(self.connection_kwargs),
            **{name: getattr(self, name) for name in TARGET_FIELDS},
        )

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
