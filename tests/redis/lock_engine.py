"""The engine of one server with a short patience, for locks and the processes they start."""

from __future__ import annotations

from typing import Any

from nearcache.engines.redis.engine import RedisEngine, topology_class
from nearcache.engines.redis.target import Address, Target


def open_engine(path: str, **fields: Any) -> RedisEngine:
    target = Target(addresses=(Address(path=path),), read_timeout_s=0.5, **fields)
    return RedisEngine(topology_class(target)(target))
