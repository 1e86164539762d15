"""One lock under one name, and a look at it on the server."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from nearcache.coordination.locks import Lock
from nearcache.engines.redis.engine import RedisEngine, topology_class
from nearcache.engines.redis.locks.lock_scripts import lock_key
from nearcache.engines.redis.target.target import Address, Target

NAME = b"name"
TTL_MS = 30_000
LOCK = lock_key(NAME)

Eventually = Callable[..., None]


def open_engine(path: str, **fields: Any) -> RedisEngine:
    """The engine of one server, also for processes that tests start. A slow host is no fault."""
    target = Target(addresses=(Address(path=path),), **{"read_timeout_s": 20.0} | fields)
    return RedisEngine(topology_class(target)(target))


def lock_of(engine: Any, **options: Any) -> Lock:
    return Lock(engine, NAME, **{"timeout_s": 30, "wait_s": 10} | options)


def waiters(admin: Any) -> int:
    return sum(field.startswith("w") for field in admin.hkeys(LOCK))


def until_renewed(lock: Lock) -> None:
    """Returns when the time of a lock that is held was started anew."""
    lease = lock._lease
    assert lease
    ends_at_s, give_up_at = lease._ends_at_s, time.monotonic() + 60
    while lease._ends_at_s == ends_at_s:
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def nobody_asked_of_late(admin: Any) -> None:
    """Two seconds later, as far as the places in the queue are concerned."""
    for field, place in admin.hgetall(LOCK).items():
        if field.startswith("p"):
            admin.hset(LOCK, field, "1 " + place.partition(" ")[2])


def run_out(admin: Any) -> None:
    """Later than the holder's time."""
    admin.hset(LOCK, "until", 1)


def hold(engine: Any, ttl_ms: int = TTL_MS) -> int:
    token = engine.lock_acquire(NAME, ttl_ms)
    assert token
    return int(token)
