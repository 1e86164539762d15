"""The engine of one server, for tests of locks."""

from __future__ import annotations

from typing import Any

try:
    from nearcache.engines.redis.engine import RedisEngine
    from nearcache.engines.redis.locks import RedisLocks
    from nearcache.engines.redis.standalone import Standalone
except ImportError:
    Standalone = None
from nearcache.engines.redis.target import Address, Target


def open_engine(path: str, **fields: Any) -> Any:
    target = Target(addresses=(Address(path=path),), read_timeout_s=0.5, **fields)
    if Standalone is None:
        from tests.redis.standin import PlainEngine

        return PlainEngine(target)
    return RedisEngine(Standalone(target))
