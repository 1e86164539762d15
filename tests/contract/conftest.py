"""The engines under contract, each with a clock that tests may move."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nearcache.base.clock import FakeClock, SystemClock
from nearcache.engines.contract import Engine, ScanItem
from nearcache.engines.memory import MemoryEngine
from nearcache.engines.redis.engine import RedisEngine, open_redis
from nearcache.engines.redis.target.target import Address, Target
from nearcache.engines.shm import Home, open_store
from tests.clocks import store_s
from tests.redis.cluster_servers import ClusterServers
from tests.redis.servers import Server


class RealClock(SystemClock):
    """For engines that read the host's clock: moving it means waiting, so tests move it little."""

    def advance_ms(self, milliseconds: float) -> None:
        until_ms = self.now_ms() + milliseconds
        self.sleep(milliseconds / 1000)
        while store_s() * 1000 < until_ms:
            self.sleep(0.001)


PATIENT = {"connect_timeout_s": 60.0, "read_timeout_s": 60.0}
"""A server that a busy machine does not run for a while is no fault of an engine's."""
ENGINES = ["memory", "shm", "redis", "redis-cluster"]
LOCAL = ["memory", "shm"]

local_only = pytest.mark.parametrize("engine_name", LOCAL, indirect=True)
"""What Redis does not have: versions, a size limit of our own, culling on request. See the
head of nearcache/engines/redis/engine.py."""


@pytest.fixture(params=ENGINES)
def engine_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def clock(engine_name: str) -> FakeClock | RealClock:
    return FakeClock(time.time_ns() // 1_000_000) if engine_name == "memory" else RealClock()


@pytest.fixture
def engine(
    engine_name: str,
    clock: FakeClock | RealClock,
    private_path: Path,
    request: pytest.FixtureRequest,
) -> Any:
    if engine_name == "memory":
        return MemoryEngine(clock, max_item_bytes=100_000)
    if engine_name == "shm":
        home = Home(str(private_path / "contract"), size_bytes=4 << 20)
        return open_store(home, max_item_bytes=100_000)
    return request.getfixturevalue(engine_name.replace("-", "_"))


@pytest.fixture
def redis(redis_server: Server) -> Iterator[RedisEngine]:
    engine = open_redis(Target(addresses=(Address(path=redis_server.path),), **PATIENT))
    yield engine
    engine.topology.close()


@pytest.fixture
def redis_cluster(one_cluster: ClusterServers) -> Iterator[RedisEngine]:
    one_cluster.flush()
    engine = open_redis(Target(kind="cluster", addresses=one_cluster.addresses, **PATIENT))
    yield engine
    engine.topology.close()


@pytest.fixture
def is_deadline(
    engine_name: str, clock: FakeClock | RealClock
) -> Callable[[int | None, int], bool]:
    """Whether a deadline is the one that was asked for.

    Redis is told the time that is left and tells it, so the way there and back adds to it.
    """
    began_ms = clock.now_ms()

    def check(found: int | None, asked: int) -> bool:
        late_ms = 0 if engine_name in LOCAL else clock.now_ms() - began_ms + 1
        return found is not None and asked - (late_ms > 0) <= found <= asked + late_ms

    return check


def scanned(
    engine: Engine, limit: int, prefix: bytes = b"", glob: bytes | None = None
) -> list[ScanItem]:
    """All that a scan lists."""
    found, cursor = [], 0
    while True:
        cursor, items = engine.scan(cursor, limit, prefix=prefix, glob=glob)
        found += items
        if cursor == 0:
            return found
