"""A topology of one server: a line for threads, one for tasks, and nothing else."""

from __future__ import annotations

from typing import Any

from nearcache.clock import SystemClock
from nearcache.engines.redis import clients
from nearcache.engines.redis.aline import AsyncLine
from nearcache.engines.redis.line import SharedLine
from nearcache.engines.redis.locks import RedisLocks
from nearcache.engines.redis.target import Target


class OneServer:
    sharded = False

    def __init__(self, target: Target) -> None:
        self.target = target
        self.line = SharedLine(target, target.addresses[0])
        self.aline = AsyncLine(target, target.addresses[0])
        self.ask = self.line.ask
        self.aask = self.aline.ask

    def client(self) -> Any:
        return clients.client(self.target)

    def close(self) -> None:
        self.line.close()
        self.aline.close()


class PlainEngine(RedisLocks):
    native_async = True

    def __init__(self, target: Target) -> None:
        self.topology = OneServer(target)
        self.clock = SystemClock()

    @property
    def engine(self) -> Any:
        return self
