"""OPTIONS of Django's RedisCache and of django-redis, by our names.

Changing ``BACKEND`` is enough: what these two understand is translated here. What tunes
something that we do not have is taken and has no effect, as long as that changes nothing for
the user. What would change something, such as a client class of one's own, is refused by an
error that says what to write instead.

Sources: Django's documentation of caches, django-redis's README, and redis-py's connections,
whose keyword arguments both hand on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from nearcache.base.options import unknown_option
from nearcache.engines.redis.target.settings import FIELDS, KEPT, OURS, SPECIAL, Settings
from nearcache.errors import OptionError

Pairs = Iterator[tuple[str, Any]]
Reading = Callable[[Any], Pairs]
"""What an option of theirs means: our names, and values as our options take them."""

KWARGS = "connection_kwargs"
CONNECTION_NAMES = {*FIELDS, *KEPT, *OURS, *SPECIAL}
"""Keyword arguments of redis-py's connections and pools."""


def own_names(
    backend: str, given: Mapping[str, Any], own: Iterable[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """What a user wrote, by our names, and what they called each; raises OptionError."""
    ours, found, kwargs = set(own), dict[str, Any](), dict[str, Any]()
    written: dict[str, str] = {}
    for name, value in given.items():
        if name in CONNECTION_NAMES and name not in ours and name not in READINGS:
            kwargs[name] = _kwarg(backend, name, value)
            continue
        for own_name, own_value in _read(backend, name, value, ours):
            if own_name == KWARGS:
                kwargs |= own_value
            elif found.get(own_name, own_value) != own_value:
                raise OptionError(backend, name, f"is {own_name!r}, which is set already; keep one")
            else:
                found[own_name] = own_value
                written.setdefault(own_name, name)
    return found | ({KWARGS: kwargs} if kwargs else {}), written


def of_sentinels(given: Mapping[str, Any]) -> str | None:
    """The first option that asks for Sentinels by a class of django-redis or redis-py."""
    for name in ("CLIENT_CLASS", "CONNECTION_FACTORY", "CONNECTION_POOL_CLASS", "pool_class"):
        if given.get(name) and "Sentinel" in _dotted(given[name]):
            return name
    return None


def _kwarg(backend: str, name: str, value: Any) -> Any:
    try:
        Settings().take({name: value})  # which knows its range
    except ValueError as error:
        problem = str(error)
        for said, instead in ((f"has {name}=", "is "), (f"has {name} that ", "")):
            if problem.startswith(said):
                problem = instead + problem.removeprefix(said)
        raise OptionError(backend, name, problem) from error
    return value


def _read(backend: str, name: str, value: Any, own: set[str]) -> list[tuple[str, Any]]:
    try:
        if name in READINGS:
            # None and "" are theirs for "not set".
            return [] if value is None or value == "" else list(READINGS[name](value))
        if name == KWARGS:
            return list(_pool_kwargs(value))
    except ValueError as error:
        raise OptionError(backend, name, str(error)) from error
    if name not in own:
        raise unknown_option(backend, name, {*own, *READINGS, *CONNECTION_NAMES})
    return [(name, value)]


# -- readings --------------------------------------------------------------------------------


def _as(name: str) -> Reading:
    return lambda value: iter([(name, value)])


def _unless_0(name: str) -> Reading:
    """A timeout of 0 is django-redis's for "not set" as well."""
    return lambda value: iter([(name, value)] if value != 0 else [])


def _without_effect(_value: Any) -> Pairs:
    return iter(())


def _dotted(value: Any) -> str:
    """The name of a class that was given as such, or by its path."""
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if not isinstance(value, str):
        raise ValueError(f"is {value!r}; write the path of a class")
    return value


def _class(known: Mapping[str, tuple[str, Any] | None], instead: str) -> Reading:
    """Classes that we have something for, and what to do about others."""

    def read(value: Any) -> Pairs:
        path = _dotted(value)
        if path not in known:
            raise ValueError(f"is {path}; {instead}")
        found = known[path]
        if found:
            yield found

    return read


def _short_or_class(
    name: str, known: Mapping[str, str], prefixes: tuple[str, ...], instead: str
) -> Reading:
    """A name of ours, which goes on as it is, or the path of a class of theirs."""

    def read(value: Any) -> Pairs:
        if isinstance(value, str) and "." not in value:
            yield name, value
            return
        path = _dotted(value)
        short = path.rpartition(".")[2]
        if not path.startswith(prefixes) or short not in known:
            raise ValueError(f"is {path}; {instead}")
        yield name, known[short]

    return read


def _ignore_exceptions(value: Any) -> Pairs:
    yield "on_error", "miss" if value else "raise"


def _pool_kwargs(value: Any) -> Pairs:
    if not isinstance(value, Mapping):
        raise ValueError("is no dict of keyword arguments")
    Settings().take(value)  # which knows their names and ranges
    yield KWARGS, dict(value)


def _in_location(_value: Any) -> Pairs:
    raise ValueError('belongs into LOCATION: write "redis://host:port/database"')


_parser = _short_or_class(
    "parser",
    {
        "DefaultParser": "auto",
        "HiredisParser": "hiredis",
        "_HiredisParser": "hiredis",
        "PythonParser": "python",
        "_RESP2Parser": "python",
        "_RESP3Parser": "python",
    },
    ("redis.", "valkey."),
    'write "hiredis" or "python"',
)
_serializer = _short_or_class(
    "serializer",
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
    "compressor",
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
        "redis.RedisCluster": ("cluster", True),
        "redis.cluster.RedisCluster": ("cluster", True),
    },
    "leave it out, or write cluster=True; cache.client is a redis-py client",
)
READINGS: dict[str, Reading] = {
    # django-redis
    "SERIALIZER": _serializer,
    "COMPRESSOR": _compressor,
    "PARSER_CLASS": _parser,
    "USERNAME": _as("username"),
    "PASSWORD": _as("password"),
    "DB": _as("database"),
    "SOCKET_TIMEOUT": _unless_0("read_timeout"),
    "SOCKET_CONNECT_TIMEOUT": _unless_0("connect_timeout"),
    "IGNORE_EXCEPTIONS": _ignore_exceptions,
    "CLIENT_CLASS": _client,
    "CONNECTION_FACTORY": _factory,
    "CONNECTION_POOL_CLASS": _pool,
    "CONNECTION_POOL_KWARGS": _pool_kwargs,
    "REDIS_CLIENT_CLASS": _redis_client,
    "REDIS_CLIENT_KWARGS": _without_effect,  # nor there: the pool it gets has made up its mind
    "SENTINELS": _as("sentinels"),
    "SENTINEL_KWARGS": _as("sentinel_kwargs"),
    "CLOSE_CONNECTION": _without_effect,  # the connection is everybody's
    "REPLICA_READ_ONLY": _without_effect,  # writes go to the primary
    "SLAVE_READ_ONLY": _without_effect,
    "PICKLE_VERSION": _without_effect,  # any protocol is read
    # Django's RedisCache
    "serializer": _serializer,
    "compressor": _compressor,
    "parser_class": _parser,
    "pool_class": _pool,
    "host": _in_location,
    "port": _in_location,
    "path": _in_location,
    "unix_socket_path": _in_location,
}
"""Their options, and names of ours that take their classes as well. The keyword arguments of
redis-py's connections, which Django takes in OPTIONS, go on as ``connection_kwargs``."""
