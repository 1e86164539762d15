"""OPTIONS of Django's RedisCache and of django-redis, by our names.

Changing ``BACKEND`` is enough: what these two understand is translated here. What tunes
something that we do not have is taken and has no effect, as long as that changes nothing for
the user. What would change something, such as a client class of one's own, is refused by an
error that says what to write instead.

Sources: Django's documentation of caches, django-redis's README, and redis-py's connections,
whose keyword arguments both hand on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nearcache.base.options import parsed
from nearcache.engines.redis.target.options import (
    NAMES,
    Reading,
    Settings,
    as_is,
    kwargs,
    parser_class,
)
from nearcache.errors import OptionError

KWARGS = "connection_kwargs"


def own_names(
    backend: str, given: Mapping[str, Any], own: Iterable[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """What a user wrote, by our names, and what they called each; raises OptionError."""
    ours, found, merged = set(own), dict[str, Any](), dict[str, Any]()
    written: dict[str, str] = {}
    for name, value in given.items():
        try:
            own_name, own_value = _read(name, value, ours)
        except LookupError:
            raise OptionError.unknown(backend, name, {*ours, *THEIRS, *NAMES}) from None
        except ValueError as error:
            raise OptionError(backend, name, str(error)) from error
        if own_name == KWARGS:
            merged |= own_value
        elif own_name and found.setdefault(own_name, own_value) != own_value:
            raise OptionError(backend, name, f"is {own_name!r}, which is set already; keep one")
        elif own_name:
            written.setdefault(own_name, name)
    return found | ({KWARGS: merged} if merged else {}), written


def _read(name: str, value: Any, own: set[str]) -> tuple[str | None, Any]:
    """Our name and value; no name if it is without effect."""
    if name in THEIRS:
        own_name, reading = THEIRS[name]
        # None and "" are theirs for "not set".
        read = None if value is None or value == "" else parsed(reading, value)
        return (None if read is None else own_name), read
    if name == KWARGS:
        return KWARGS, dict(kwargs(value))
    if name in own:
        return name, value
    if name not in NAMES:
        raise LookupError(name)
    Settings().take_one(name, value)  # which knows its range
    return KWARGS, {name: value}


def of_sentinels(given: Mapping[str, Any]) -> str | None:
    """The first option that asks for Sentinels by a class of django-redis or redis-py."""
    for name in ("CLIENT_CLASS", "CONNECTION_FACTORY", "CONNECTION_POOL_CLASS", "pool_class"):
        if given.get(name) and "Sentinel" in _dotted(given[name]):
            return name
    return None


# -- readings --------------------------------------------------------------------------------


def _unless_0(value: Any) -> Any:
    """A timeout of 0 is django-redis's for "not set" as well."""
    return None if value == 0 else value


def _dotted(value: Any) -> str:
    """The name of a class that was given as such, or by its path."""
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if not isinstance(value, str):
        raise ValueError(f"is {value!r}; write the path of a class")
    return value


def _class(known: Mapping[str, Any], instead: str) -> Reading:
    """Classes that we have something for, and what to do about others."""

    def read(value: Any) -> Any:
        path = _dotted(value)
        if path not in known:
            raise ValueError(f"is {path}; {instead}")
        return known[path]

    return read


def _short_or_class(known: Mapping[str, str], prefixes: tuple[str, ...], instead: str) -> Reading:
    """A name of ours, which goes on as it is, or the path of a class of theirs."""

    def read(value: Any) -> str:
        if isinstance(value, str) and "." not in value:
            return value
        path = _dotted(value)
        short = path.rpartition(".")[2]
        if not path.startswith(prefixes) or short not in known:
            raise ValueError(f"is {path}; {instead}")
        return known[short]

    return read


def _ignore_exceptions(value: Any) -> str:
    return "miss" if value else "raise"


def _in_location(_value: Any) -> None:
    raise ValueError('belongs into LOCATION: write "redis://host:port/database"')


_serializer = _short_or_class(
    {
        "RedisSerializer": "pickle",
        "PickleSerializer": "pickle",
        "JSONSerializer": "json",
        "MSGPackSerializer": "msgpack",
    },
    ("django.core.cache.", "django_redis.serializers.", "django_valkey.serializers."),
    "serializers of one's own cannot be used; write the name of one of ours, or leave it out",
)
_compressor = _short_or_class(
    {
        "IdentityCompressor": "none",
        "ZlibCompressor": "zlib",
        "GzipCompressor": "gzip",
        "LzmaCompressor": "lzma",
        "Lz4Compressor": "lz4",
        "ZStdCompressor": "zstd",
        "BrotliCompressor": "brotli",
    },
    ("django_redis.compressors.", "django_valkey.compressors."),
    "compressors of one's own cannot be used; write the name of one of ours, or leave it out",
)
_pool = _class(
    dict.fromkeys(
        (
            "redis.ConnectionPool",
            "redis.connection.ConnectionPool",
            "redis.BlockingConnectionPool",
            "redis.connection.BlockingConnectionPool",
            "redis.sentinel.SentinelConnectionPool",
        )
    ),
    "nearcache has a pool of its own: leave it out, and see pool_connections and pool_timeout",
)
_client = _class(
    dict.fromkeys(
        (
            "django_redis.client.DefaultClient",
            "django_redis.client.default.DefaultClient",
            # get_or_set does what this one is for: see single_flight.
            "django_redis.client.HerdClient",
            "django_redis.client.herd.HerdClient",
            "django_redis.client.SentinelClient",
            "django_redis.client.sentinel.SentinelClient",
        )
    ),
    "leave it out for one server, its replicas or Sentinels; keys that a client spread over"
    " several servers need a Redis Cluster: cluster=True",
)
_factory = _class(
    dict.fromkeys(
        ("django_redis.pool.ConnectionFactory", "django_redis.pool.SentinelConnectionFactory")
    ),
    "connections are made from LOCATION, sentinels and connection_kwargs; leave it out",
)
_redis_client = _class(
    {
        "redis.Redis": None,
        "redis.client.Redis": None,
        "redis.StrictRedis": None,
        "redis.client.StrictRedis": None,
        "redis.RedisCluster": True,
        "redis.cluster.RedisCluster": True,
    },
    "leave it out, or write cluster=True; cache.client is a redis-py client",
)
THEIRS: dict[str, tuple[str | None, Reading]] = {
    # django-redis
    "SERIALIZER": ("serializer", _serializer),
    "COMPRESSOR": ("compressor", _compressor),
    "PARSER_CLASS": ("parser", parser_class),
    "USERNAME": ("username", as_is),
    "PASSWORD": ("password", as_is),
    "DB": ("database", as_is),
    "SOCKET_TIMEOUT": ("read_timeout", _unless_0),
    "SOCKET_CONNECT_TIMEOUT": ("connect_timeout", _unless_0),
    "IGNORE_EXCEPTIONS": ("on_error", _ignore_exceptions),
    "CLIENT_CLASS": (None, _client),
    "CONNECTION_FACTORY": (None, _factory),
    "CONNECTION_POOL_CLASS": (None, _pool),
    "CONNECTION_POOL_KWARGS": (KWARGS, lambda value: dict(kwargs(value))),
    "REDIS_CLIENT_CLASS": ("cluster", _redis_client),
    "REDIS_CLIENT_KWARGS": (None, as_is),  # nor there: the pool it gets has made up its mind
    "SENTINELS": ("sentinels", as_is),
    "SENTINEL_KWARGS": ("sentinel_kwargs", as_is),
    "CLOSE_CONNECTION": (None, as_is),  # the connection is everybody's
    "REPLICA_READ_ONLY": (None, as_is),  # writes go to the primary
    "SLAVE_READ_ONLY": (None, as_is),
    "PICKLE_VERSION": (None, as_is),  # any protocol is read
    # Django's RedisCache
    "serializer": ("serializer", _serializer),
    "compressor": ("compressor", _compressor),
    "parser_class": ("parser", parser_class),
    "pool_class": (None, _pool),
    "host": (None, _in_location),
    "port": (None, _in_location),
    "path": (None, _in_location),
    "unix_socket_path": (None, _in_location),
}
"""Their options, and names of ours that take their classes as well: our name (None: without
effect), and the reading of what is written into what our option takes. The keyword arguments of
redis-py's connections, which Django takes in OPTIONS, go on as ``connection_kwargs``."""
