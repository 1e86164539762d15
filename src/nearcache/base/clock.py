"""Time from outside, so that tests need no sleep.

A clock has two readings, because they answer different questions. ``now_ms`` is the wall clock.
Deadlines are written in it: all processes share it, and a file that survives a restart.
``monotonic_s`` measures waits and the time of locks. Nobody can set it, and it goes on while the
machine sleeps, as the time of a lock does on a server or in the store.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

# Linux's monotonic clock stops while the machine sleeps. That of other systems goes on, or may.
_SLEEPLESS = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Where the time comes from, and how to let it pass."""

    def now_ms(self) -> int: ...
    def monotonic_s(self) -> float: ...
    def sleep(self, seconds: float) -> None: ...
    async def asleep(self, seconds: float) -> None: ...


class SystemClock:
    """The clock of the host."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.clock_gettime(_SLEEPLESS)

    def sleep(self, seconds: float) -> None:
        # Looked up at every call: gevent may replace `time.sleep` after this import.
        time.sleep(seconds)

    async def asleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class FakeClock:
    """A clock that moves only when a test moves it, or when a caller sleeps on it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = float(now_ms)

    def now_ms(self) -> int:
        return int(self._now_ms)

    def monotonic_s(self) -> float:
        return self._now_ms / 1000

    def advance_ms(self, milliseconds: float) -> None:
        self._now_ms += milliseconds

    def sleep(self, seconds: float) -> None:
        self.advance_ms(seconds * 1000)

    async def asleep(self, seconds: float) -> None:
        self.advance_ms(seconds * 1000)
