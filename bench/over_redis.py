"""Rows against Redis and Memcached: RedisCache, its peers and the bare socket.

Client and servers share one core: a reply then costs no wake-up of another one, which would
hide what the clients themselves take. All speak to the same server through its unix socket.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.measure import Work, compare
from bench.peers import SMALL
from bench.rows import Row, getting, getting_async, getting_many, setting

BARE = 1 / 1.35
"""At most 1.35 times the time of a bare socket, as a ratio."""

MANY_KEYS = 1_000_000
DOOMED_KEYS = 100_000
PATTERN_ROUNDS = 3
OUTAGE_CALLS = 20_000


def aliases(redis_path: str, memcached_path: str) -> dict[str, dict[str, Any]]:
    """``CACHES`` entries: ours, and what people use today."""
    location = f"unix://{redis_path}"
    return {
        "redis": {"BACKEND": "nearcache.backends.RedisCache", "LOCATION": location},
        "redis-python": {
            "BACKEND": "nearcache.backends.RedisCache",
            "LOCATION": location,
            "OPTIONS": {"parser": "python"},
        },
        "core": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": location,
            "KEY_PREFIX": "core",
        },
        "django-redis": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": location,
            "KEY_PREFIX": "dr",
        },
        "pylibmc": {
            "BACKEND": "django.core.cache.backends.memcached.PyLibMCCache",
            "LOCATION": f"unix:{memcached_path}",
        },
    }


def rows(redis_path: str) -> Iterator[Row]:
    """Measures row by row."""
    from django.core.cache import caches

    ours, core, peer = caches["redis"], caches["core"], caches["django-redis"]
    for cache in (ours, core, peer):
        cache.set("S", SMALL, None)
        assert cache.get("S") == SMALL
    yield _row("get S, A/A", "itself", 0, getting("S")(ours), getting("S")(ours))
    yield _row("get S", "Django RedisCache", 8, getting("S")(ours), getting("S")(core))
    yield _row(
        "set S", "Django RedisCache", 8, setting("S", SMALL)(ours), setting("S", SMALL)(core)
    )
    yield _row("get S", "django-redis", 3, getting("S")(ours), getting("S")(peer))
    yield _row("set S", "django-redis", 3, setting("S", SMALL)(ours), setting("S", SMALL)(peer))
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(redis_path)
        alone = bare(connection)
        yield _row("get S", "bare socket + hiredis", BARE, getting("S")(ours), alone)
        # What no client can do better, however little it does.
        yield _row("bare socket + hiredis", "Django RedisCache", 0, alone, getting("S")(core))
        yield _row("bare socket + hiredis", "django-redis", 0, alone, getting("S")(peer))
    yield from _against_memcached(ours)
    yield _row(
        "get S, CPU of the client",
        "django-redis",
        3,
        getting("S")(ours),
        getting("S")(peer),
        time.process_time_ns,
    )
    yield _row(
        "get S, Python parser",
        "hiredis",
        0,
        getting("S")(caches["redis-python"]),
        getting("S")(ours),
    )
    yield _row(
        "get_many 1,000 x S", "django-redis", 3, getting_many(1000)(ours), getting_many(1000)(peer)
    )
    yield _row("aget S", "django-redis", 0, getting_async("S")(ours), getting_async("S")(peer))
    yield _row("lock, uncontended", "django-redis", 1.5, locking(ours), locking(peer))


def _row(
    operation: str,
    against: str,
    at_least: float,
    ours: Work,
    peer: Work,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
) -> Row:
    return Row(operation, against, at_least, compare(ours, peer, clock_ns=clock_ns))


def _against_memcached(ours: Any) -> Iterator[Row]:
    from django.core.cache import caches
    from django.core.cache.backends.base import InvalidCacheBackendError

    try:
        memcached = caches["pylibmc"]
        memcached.set("S", SMALL, None)
    except (ImportError, InvalidCacheBackendError):
        print("get S                    pylibmc      not measured: no wheel for this Python")
        return
    # A memcached that is not there answers None, fast.
    assert memcached.get("S") == SMALL
    yield _row("get S", "pylibmc, Memcached", 1, getting("S")(ours), getting("S")(memcached))


def bare(connection: socket.socket) -> Work:
    """GET of the bytes that ours stored, with no client at all."""
    import hiredis

    command = b"*2\r\n$3\r\nGET\r\n$4\r\n:1:S\r\n"

    def work(count: int) -> None:
        send, receive, reader = connection.send, connection.recv, hiredis.Reader()
        feed, gets = reader.feed, reader.gets
        for _ in range(count):
            send(command)
            feed(receive(65536))
            gets()

    connection.send(command)
    assert len(connection.recv(65536)) > 50, "the bytes are there"
    return work


def locking(cache: Any) -> Work:
    """Acquire and release, nobody else about."""

    def work(count: int) -> None:
        for _ in range(count):
            with cache.lock("uncontended", timeout=10):
                pass

    return work


@dataclass(frozen=True)
class Pattern:
    """delete_pattern of 100,000 of 1,000,000 keys: seconds, medians of rounds."""

    ours_s: float
    peer_s: float
    longest_command_ms: float
    """Of ours, as the server's slow log has it."""


def delete_pattern(redis_path: str) -> Pattern:
    """In turns on one server, filled anew each time."""
    import redis
    from django.core.cache import caches

    took: dict[str, list[float]] = {"redis": [], "django-redis": []}
    by_alias: dict[str, Any] = {alias: caches[alias] for alias in took}
    longest_us = 0
    with redis.Redis(unix_socket_path=redis_path, socket_timeout=120) as server:
        server.config_set("slowlog-max-len", 10_000)
        for number in range(PATTERN_ROUNDS):
            for alias in random.Random(number).sample(sorted(took), 2):
                _fill(server, "" if alias == "redis" else "dr")
                server.config_set("slowlog-log-slower-than", 50)
                server.slowlog_reset()
                began = time.perf_counter()
                deleted = by_alias[alias].delete_pattern("doomed:*")
                took[alias].append(time.perf_counter() - began)
                slowest = max(
                    (entry["duration"] for entry in server.slowlog_get(10_000)), default=0
                )
                server.config_set("slowlog-log-slower-than", -1)
                assert deleted == DOOMED_KEYS, deleted
                assert server.dbsize() == MANY_KEYS - DOOMED_KEYS
                if alias == "redis":
                    longest_us = max(longest_us, slowest)
        server.flushall()
    return Pattern(median(took["redis"]), median(took["django-redis"]), longest_us / 1000)


_FILL = """
for at = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  local name = 'kept:'
  if at % 10 == 0 then name = 'doomed:' end
  redis.call('SET', ARGV[3] .. ':1:' .. name .. at, 'a value of some twenty')
end
"""


def _fill(server: Any, prefix: str) -> None:
    server.flushall()
    fill = server.register_script(_FILL)
    step = 10_000
    for start in range(0, MANY_KEYS, step):
        fill(args=[start, start + step - 1, prefix])
    assert server.dbsize() == MANY_KEYS


def outage_get_us() -> float:
    """Microseconds of one ``get`` while the server is away and the breaker is open; a median."""
    from django.utils.module_loading import import_string

    from nearcache.lab.servers import free_port

    ours = import_string("nearcache.backends.RedisCache")(
        f"redis://127.0.0.1:{free_port()}", {"OPTIONS": {"on_error": "miss", "breaker_pause": 60}}
    )
    for _ in range(20):
        assert ours.get("S") is None
    took = []
    for _ in range(OUTAGE_CALLS):
        began = time.perf_counter_ns()
        ours.get("S")
        took.append(time.perf_counter_ns() - began)
    return median(took) / 1000
