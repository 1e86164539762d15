"""A named lock over an engine: one holder among all processes that share the store.

The engine decides who holds it and who is next (``lock_acquire`` and its neighbours in
:mod:`nearcache.engine`); :mod:`nearcache.leases` renews what is held. Here is what a holder
sees, twice: plain, and with an ``a`` before the name to be awaited.

    with cache.lock("report", timeout=30, wait=5) as lock:
        write(rows, fence=lock.token)   # what we write to may refuse a lower token
        lock.check()                    # LockLost if we are not alone any more

Whoever waits stands in a queue, first come first served, and is woken when the lock comes to
him. A wait outlives a server that is away for a while (``OUTAGE_S``); the first question does
not. Where a thread must not be blocked and the engine could only block it (shared memory,
used by a task or a greenlet), the waiter asks again every few milliseconds instead, from its
place in the queue.

A lock object belongs to whoever holds it, not to a thread: it may be acquired in one thread
or task and released in another. It can be held once. With ``reentrant`` the same thread or
task may come in again, through this object or another one of the same name.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
import time
import types
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Protocol, Self

from nearcache.clock import Clock, SystemClock
from nearcache.errors import EngineError, EngineUnavailable, LockLost, LockNotAcquired
from nearcache.flows import Flow, Pause, arun, ask, run
from nearcache.keys import decode_key
from nearcache.leases import FOREVER_MS, Lease, keeper
from nearcache.metrics import Counters

logger = logging.getLogger("nearcache.locks")

FIRST_PAUSE_S = 0.001
LONGEST_PAUSE_S = 0.020
QUEUE_PAUSE_S = 0.005
"""How often the first of a queue looks, where it cannot be woken."""
WAIT_MS = 1000
"""The longest single wait of an engine: then signals are looked at, and the place renewed."""
OUTAGE_S = 15.0
"""So long a store may be away before those who wait get its error."""


class LockEngine(Protocol):
    """The part of an engine that locks need; ``a`` twins beside it if it is ``native_async``.

    An engine that does not notice when a holder's process is gone has ``lock_ttl_ms``, the
    time of a lock made without one: it is renewed like any other.
    """

    def lock_acquire(self, name: bytes, ttl_ms: int) -> int | None: ...
    def lock_renew(self, name: bytes, token: int, ttl_ms: int) -> bool: ...
    def lock_release(self, name: bytes, token: int) -> bool: ...
    def lock_wait(
        self, name: bytes, ticket: int | None, ttl_ms: int, wait_ms: int
    ) -> tuple[int | None, int | None]: ...
    def lock_leave(self, name: bytes, ticket: int) -> None: ...


def pauses(
    clock: Clock, wait_s: float | None, longest_s: float = LONGEST_PAUSE_S
) -> Iterator[float]:
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
        pause = min(pause * 1.5, longest_s)


class Lock:
    """``with cache.lock("name"):``, or ``async with``; see :meth:`Extras.lock`.

    Raises LockNotAcquired, LockLost, and what the engine raises.
    """

    def __init__(
        self,
        engine: LockEngine,
        name: bytes,
        *,
        timeout_s: float | None = None,
        wait_s: float | None = None,
        auto_renew: bool = True,
        max_hold_s: float | None = None,
        reentrant: bool = False,
        clock: Clock | None = None,
        counters: Counters | None = None,
    ) -> None:
        self.name = name
        self.engine = engine
        self.clock = clock or SystemClock()
        self._shown = decode_key(name)
        self._lease: Lease | None = None
        self._depth = 0
        self._owner: object = None
        self._ttl_ms = _ttl_ms(timeout_s, engine)
        self._wait_s = wait_s
        self._auto_renew = auto_renew
        self._max_hold_s = max_hold_s
        self._reentrant = reentrant
        self._counters = counters or Counters()

    # -- what a holder sees ------------------------------------------------------------------

    @property
    def token(self) -> int | None:
        """The fencing token, above that of every earlier holder; None if this does not hold it."""
        return self._lease.token if self._lease else None

    @property
    def lost(self) -> bool:
        """True if it was acquired, and is not surely held any more. Asks nobody."""
        return self._lease is not None and (self._lease.inherited or self._lease.lost)

    def check(self) -> None:
        """Raises LockLost unless the lock is surely held. Asks nobody: call it often."""
        lease = self._held()
        if lease.lost:
            raise lease.lose()

    # -- acquire, renew, release -------------------------------------------------------------

    def acquire(self, *, blocking: bool = True, blocking_timeout: float | None = None) -> bool:
        """True once held. Waits ``blocking_timeout`` seconds, or what the lock was made with."""
        blocks = _native_async(self.engine) or not _greenlets()
        flow = self._acquire(self._wait_of(blocking, blocking_timeout), blocks)
        return run(flow, self.engine, self.clock)

    async def aacquire(
        self, *, blocking: bool = True, blocking_timeout: float | None = None
    ) -> bool:
        """:meth:`acquire`, letting the event loop run meanwhile."""
        flow = self._acquire(self._wait_of(blocking, blocking_timeout), _native_async(self.engine))
        return await arun(flow, self.engine, self.clock)

    def renew(self, timeout: float | None = None) -> None:
        """Starts the time anew, with ``timeout`` seconds if given; raises LockLost."""
        run(self._renew(timeout), self.engine, self.clock)

    async def arenew(self, timeout: float | None = None) -> None:
        await arun(self._renew(timeout), self.engine, self.clock)

    def release(self) -> None:
        """Lets go; raises LockLost if the lock was no longer held.

        If the store does not answer that is raised, and the store is told again until it
        answers or the lock's time is over.
        """
        run(self._release(), self.engine, self.clock)

    async def arelease(self) -> None:
        await arun(self._release(), self.engine, self.clock)

    # -- the names that redis-py, and so django-redis, has for the same --------------------------

    def owned(self) -> bool:
        """Whether this object surely holds the lock. Asks nobody."""
        return self._lease is not None and not self.lost

    def reacquire(self) -> bool:
        """:meth:`renew` with the time that the lock was made with."""
        self.renew()
        return True

    def extend(self, additional_time: float, replace_ttl: bool = False) -> bool:
        """:meth:`renew` for so many seconds more than are left, or from now."""
        left_s = 0.0 if replace_ttl else self._held().left_s
        self.renew(left_s + additional_time)
        return True

    # -- as a block ------------------------------------------------------------------------------

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
        run(self._leave_block(error), self.engine, self.clock)

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
        await arun(self._leave_block(error), self.engine, self.clock)

    # -- how -----------------------------------------------------------------------------------

    def _acquire(self, wait_s: float | None, blocks: bool) -> Flow[bool]:
        if self._come_in_again():
            return True
        token: int | None = None
        ticket: int | None = None
        asked_at_s = self.clock.monotonic_s()
        give_up_at_s = math.inf if wait_s is None else asked_at_s + wait_s
        if wait_s == 0 or not _native_async(self.engine):
            token = yield ask("lock_acquire", self.name, self._ttl_ms)
        else:  # one round trip, whether it is free or not
            wait_ms = self._wait_ms(wait_s if wait_s is not None else math.inf)
            token, ticket = yield ask("lock_wait", self.name, None, self._ttl_ms, wait_ms)
        if token is None and wait_s != 0:
            token, asked_at_s = yield from self._queue(ticket, give_up_at_s, blocks)
        if token is None:
            return False
        self._take(token, asked_at_s)
        return True

    def _queue(
        self, ticket: int | None, give_up_at_s: float, blocks: bool
    ) -> Flow[tuple[int | None, float]]:
        """The token and when the store was asked for it; no token if the time is over."""
        outage = _Outage(self.clock)
        pause_s = FIRST_PAUSE_S
        try:
            while True:
                asked_at_s = self.clock.monotonic_s()
                left_s = max(0.0, give_up_at_s - asked_at_s)
                wait_ms = self._wait_ms(left_s) if blocks else 0
                try:
                    token, ticket = yield ask("lock_wait", self.name, ticket, self._ttl_ms, wait_ms)
                    outage.is_over()
                except EngineUnavailable as error:
                    if ticket is None:
                        raise
                    token, pause_s = None, outage.goes_on(error)
                if token is not None:
                    return token, asked_at_s
                if not left_s:
                    break
                if outage.since_s is not None or not blocks:
                    yield Pause(min(pause_s, left_s))
                    pause_s = min(pause_s * 1.5, QUEUE_PAUSE_S)
        except BaseException:
            # Cancelled, interrupted, or the store is away: what is told to it must not wait.
            if ticket is not None:
                self._later("lock_leave", ticket)
            raise
        yield from self._leave_queue(ticket)
        return None, 0.0

    def _wait_ms(self, left_s: float) -> int:
        # The lease is counted from before the wait. It must not lose much of its time to that.
        longest_ms = max(1, min(WAIT_MS, self._ttl_ms // 4))
        return min(longest_ms, math.ceil(min(left_s, WAIT_MS) * 1000))

    def _leave_queue(self, ticket: int | None) -> Flow[None]:
        if ticket is None:
            return
        try:
            yield ask("lock_leave", self.name, ticket)
        except EngineUnavailable:
            self._later("lock_leave", ticket)

    def _renew(self, timeout: float | None) -> Flow[None]:
        lease = self._held()
        ttl_ms = lease.ttl_ms if timeout is None else _ttl_ms(timeout, self.engine)
        asked_at_s = self.clock.monotonic_s()
        if not (yield ask("lock_renew", self.name, lease.token, ttl_ms)):
            raise self._gone(lease)
        lease.confirmed(asked_at_s, ttl_ms)
        if self._renews(ttl_ms):
            keeper().add(lease)

    def _release(self) -> Flow[None]:
        lease = self._held()
        if not self._go_out(lease):
            return
        lease.released = True
        keeper().drop(lease)
        try:
            held = yield ask("lock_release", self.name, lease.token)
        except EngineUnavailable as error:
            self._later("lock_release", lease.token)
            if lease.lost:
                raise lease.lose() from error
            # Whether it was held to the end nobody can tell: the store may be back empty.
            raise
        except EngineError:
            raise
        except BaseException:  # cancelled, interrupted, a greenlet was killed
            self._later("lock_release", lease.token)
            raise
        if not held:
            raise lease.lose()

    def _leave_block(self, error: BaseException | None) -> Flow[None]:
        try:
            yield from self._release()
        except (LockLost, EngineError) as ours:
            # The body's own error says more than ours, and must not be hidden by it.
            if error is None:
                raise
            logger.warning("%s (while handling %s)", ours, type(error).__name__)

    def _take(self, token: int, asked_at_s: float) -> None:
        lease = Lease(
            self.engine,
            self.name,
            token,
            self._ttl_ms,
            asked_at_s,
            self.clock,
            self._counters,
            self._max_hold_s,
        )
        self._lease, self._depth = lease, 1
        if self._reentrant:
            self._owner = _caller()
            _reentrant[id(self.engine), self.name, self._owner] = lease
        if self._renews(self._ttl_ms):
            keeper().add(lease)

    def _renews(self, ttl_ms: int) -> bool:
        return self._auto_renew and ttl_ms < FOREVER_MS

    def _come_in_again(self) -> bool:
        """True if the caller holds the lock already, and may."""
        if self._lease is None and not self._reentrant:
            return False
        lease = _reentrant.get((id(self.engine), self.name, _caller()))
        if self._lease is not None and (not self._reentrant or lease is not self._lease):
            raise LockNotAcquired(
                f"lock {self._shown!r} is already held by this object;"
                " pass reentrant=True if the same caller may come in again"
            )
        if lease is None:
            return False
        if lease.lost:
            raise lease.lose()
        lease.depth += 1
        self._lease, self._owner = lease, _caller()
        self._depth += 1
        return True

    def _go_out(self, lease: Lease) -> bool:
        """True if nobody of this caller is left inside, so that the lock has to be released."""
        lease.depth -= 1
        self._depth -= 1
        if not self._depth:
            self._lease = None
        if lease.depth:
            return False
        if self._reentrant:
            _reentrant.pop((id(self.engine), self.name, self._owner), None)
        return True

    def _held(self) -> Lease:
        if self._lease is None:
            raise LockLost(f"lock {self._shown!r} is not held: acquire it first")
        if self._lease.inherited:
            self._lease, self._depth = None, 0
            raise LockLost(f"lock {self._shown!r} is held by the process that forked this one")
        return self._lease

    def _gone(self, lease: Lease) -> LockLost:
        keeper().drop(lease)
        self._go_out(lease)
        return lease.lose()

    def _later(self, method: str, number: int) -> None:
        engine, name = self.engine, self.name
        keeper().later(lambda: getattr(engine, method)(name, number), self._ttl_ms / 1000)

    def _wait_of(self, blocking: bool, blocking_timeout: float | None) -> float | None:
        if not blocking:
            return 0.0
        wait_s = self._wait_s if blocking_timeout is None else blocking_timeout
        return None if wait_s is None else max(0.0, wait_s)

    def _not_acquired(self) -> LockNotAcquired:
        return LockNotAcquired(f"lock {self._shown!r} was held by somebody else for the whole wait")


class _Outage:
    """A store that is away while somebody waits: how long, and when to look again."""

    def __init__(self, clock: Clock) -> None:
        self.since_s: float | None = None
        self._clock = clock

    def is_over(self) -> None:
        self.since_s = None

    def goes_on(self, error: EngineUnavailable) -> float:
        """Seconds to pause; raises the error if that has been going on for too long."""
        now_s = self._clock.monotonic_s()
        if self.since_s is None:
            self.since_s = now_s
        if now_s - self.since_s > OUTAGE_S:
            raise error
        return 0.1


_reentrant: weakref.WeakValueDictionary[tuple[int, bytes, object], Lease]
_reentrant = weakref.WeakValueDictionary()
"""Leases of reentrant locks, by engine, name and the thread or task that holds them."""

os.register_at_fork(after_in_child=_reentrant.clear)


def _caller() -> object:
    """The task that runs, or else the thread (greenlet)."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return task or threading.get_ident()


def _native_async(engine: Any) -> bool:
    return bool(getattr(engine, "native_async", False))


def _greenlets() -> bool:
    # gevent and eventlet put a function of theirs here; a native wait would stop them all.
    return not isinstance(time.sleep, types.BuiltinFunctionType)


def _ttl_ms(timeout_s: float | None, engine: Any) -> int:
    if timeout_s is None:
        return int(getattr(engine, "lock_ttl_ms", FOREVER_MS))
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float):
        raise TypeError(f"timeout is {timeout_s!r}; write a number of seconds")
    if not timeout_s > 0:  # not a number is not above 0 either
        raise ValueError(f"timeout is {timeout_s!r}; write a number of seconds above 0")
    if timeout_s * 1000 >= FOREVER_MS:
        return FOREVER_MS  # infinity included
    return max(1, round(timeout_s * 1000))
