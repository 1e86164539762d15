"""The engines under contract, each with a clock that tests may move."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from nearcache.clock import FakeClock, SystemClock
from nearcache.engine import Engine
from nearcache.engines.memory import MemoryEngine
from nearcache.engines.shm import open_store


class RealClock(SystemClock):
    """For engines that read the host's clock: moving it means waiting, so tests move it little.

    The kernel's coarse clock may lag by a tick, hence the extra 10 ms.
    """

    def advance_ms(self, milliseconds: float) -> None:
        self.sleep(milliseconds / 1000 + 0.010)


@pytest.fixture(params=["memory", "shm"])
def engine_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def clock(engine_name: str) -> FakeClock | RealClock:
    return FakeClock(time.time_ns() // 1_000_000) if engine_name == "memory" else RealClock()


@pytest.fixture
def engine(engine_name: str, clock: FakeClock | RealClock, private_path: Path) -> Engine:
    if engine_name == "memory":
        return MemoryEngine(clock, max_item_bytes=100_000)
    return open_store(str(private_path / "contract"), 4 << 20, max_item_bytes=100_000)
