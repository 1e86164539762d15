"""A named lock over an engine: one holder among all processes that share the store.

The engine decides who holds it (see ``lock_acquire`` in :mod:`nearcache.engine`); this file
only waits. It waits by asking again, after 1 ms at first and 20 ms at most, because the
holder may be killed and then nobody would send a wake-up. The clock is injected: threads,
greenlets (gevent patches ``time.sleep``) and tests wait by the same loop.

A lock object belongs to whoever holds it, not to a thread: it may be acquired in one thread
or task and released in another. ``token`` grows with every acquisition of any lock of the
store; hand it to what you write to, and let that refuse a lower one (a fencing token).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import TracebackType
from typing import Protocol, Self

from nearcache.clock import Clock, SystemClock
from nearcache.errors import LockLost, LockNotAcquired
from nearcache.keys import decode_key
from nearcache.metrics import Counters

logger = logging.getLogger("nearcache.locks")

FOREVER_MS = 10 * 365 * 86_400_000
FIRST_PAUSE_S = 0.001
LONGEST_PAUSE_S = 0.020


class LockEngine(Protocol):
    """The part of an engine that locks need."""

    def lock_acquire(self, name: bytes, ttl_ms: int) -> int | None: ...
    def lock_renew(self, name: bytes, token: int, ttl_ms: int) -> bool: ...
    def lock_release(self, name: bytes, token: int) -> bool: ...


def pauses(clock: Clock, wait_s: float | None) -> Iterator[float]:
    """How long to sleep between attempts, until ``wait_s`` is over; None waits for ever."""
    pause = FIRST_PAUSE_S
    give_up_at = None if wait_s is None else clock.monotonic_s() + wait_s
    while True:
        if give_up_at is not None:
            left = give_up_at - clock.monotonic_s()
            if left <= 0:
                return
            pause = min(pause, left)
        yield pause
        pause = min(pause * 1.5, LONGEST_PAUSE_S)


class Lock:
    """``with cache.lock("name"):``, or ``async with``; see :meth:`Extras.lock`."""

    def __init__(
        self,
        engine: LockEngine,
        name: bytes,
        *,
        timeout_s: float | None = None,
        wait_s: float | None = None,
        clock: Clock | None = None,
        counters: Counters | None = None,
    ) -> None:
        self.name = name
        self._shown = decode_key(name)
        self.token: int | None = None
        self._engine = engine
        self._ttl_ms = _ttl_ms(timeout_s)
        self._wait_s = wait_s
        self._clock = clock or SystemClock()
        self._counters = counters or Counters()

    def acquire(self, *, blocking: bool = True, blocking_timeout: float | None = None) -> bool:
        """True once held. Waits ``blocking_timeout`` seconds, or what the lock was made with."""
        if self._try():
            return True
        for pause in self._pauses(blocking, blocking_timeout):
            self._clock.sleep(pause)
            if self._try():
                return True
        return False

    async def aacquire(
        self, *, blocking: bool = True, blocking_timeout: float | None = None
    ) -> bool:
        """:meth:`acquire`, letting the event loop run meanwhile."""
        if self._try():
            return True
        for pause in self._pauses(blocking, blocking_timeout):
            await self._clock.asleep(pause)
            if self._try():
                return True
        return False

    def renew(self, timeout: float | None = None) -> None:
        """Starts the time anew, with ``timeout`` seconds if given; raises LockLost."""
        ttl_ms = self._ttl_ms if timeout is None else _ttl_ms(timeout)
        if not self._engine.lock_renew(self.name, self._held_token(), ttl_ms):
            raise self._lost()

    def release(self) -> None:
        """Lets go; raises LockLost if the lock was no longer held."""
        token, self.token = self._held_token(), None
        if not self._engine.lock_release(self.name, token):
            raise self._lost()

    async def arenew(self, timeout: float | None = None) -> None:
        self.renew(timeout)

    async def arelease(self) -> None:
        self.release()

    def __enter__(self) -> Self:
        if not self.acquire():
            raise self._not_acquired()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.release()
        except LockLost as lost:
            # The body's own error says more than ours, and must not be hidden by it.
            if error is None:
                raise
            logger.warning("%s (while handling %s)", lost, type(error).__name__)

    async def __aenter__(self) -> Self:
        if not await self.aacquire():
            raise self._not_acquired()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)

    def _try(self) -> bool:
        if self.token is not None:
            raise LockNotAcquired(f"lock {self._shown!r} is already held by this object")
        self.token = self._engine.lock_acquire(self.name, self._ttl_ms)
        return self.token is not None

    def _pauses(self, blocking: bool, blocking_timeout: float | None) -> Iterator[float]:
        wait_s = self._wait_s if blocking_timeout is None else blocking_timeout
        return pauses(self._clock, wait_s if blocking else 0)

    def _held_token(self) -> int:
        if self.token is None:
            raise LockLost(f"lock {self._shown!r} is not held: acquire it first")
        return self.token

    def _lost(self) -> LockLost:
        self.token = None
        self._counters.locks_lost += 1
        return LockLost(
            f"lock {self._shown!r} ran out or was taken over before its release;"
            " give it a longer timeout, or renew it"
        )

    def _not_acquired(self) -> LockNotAcquired:
        return LockNotAcquired(f"lock {self._shown!r} was held by somebody else for the whole wait")


def _ttl_ms(timeout_s: float | None) -> int:
    return FOREVER_MS if timeout_s is None else max(1, min(FOREVER_MS, round(timeout_s * 1000)))
