"""A named lock over an engine: one holder among all processes that share the store.

The engine decides who holds the lock and who is next (``lock_acquire`` and its neighbours in
:mod:`nearcache.engines.contract`). :mod:`.leases` is what a holder has, and :mod:`.lock_renewal`
renews it. This module is what a caller sees. Each method is there twice: plain, and with an ``a``
before its name, to be awaited.

    with cache.lock("report", timeout=30, wait=5) as lock:
        write(rows, fence=lock.token)   # what we write to may refuse a lower token
        lock.check()                    # LockLost if we are not alone any more

Waiting callers stand in a queue, first come first served. A caller is woken when the lock comes to
it. A wait outlives a server that is away for a while (``OUTAGE_S``); the first question does not.
A task or a greenlet must not block its thread, and shared memory could only block it: there the
caller asks again every few milliseconds instead, from its place in the queue.

A lock object belongs to the code that holds it, and not to a thread: it may be acquired in one
thread or task and released in another. It can be held once. With ``reentrant`` the same thread or
task may come in again, through this object or through another one of the same name.

A signal handler that raises, or ``greenlet.kill``, may end an attempt at any instruction. What the
store may have given by then is given back. An engine that answers over a network is told by the
ticket, a number that is made here before the engine is asked. The answer of an engine that answers
at once is put into a list by native code, so no instruction lies between the lock and the list.
"""

from __future__ import annotations

import logging
import math
import time
import types
import weakref
from types import TracebackType
from typing import Any, Self

from nearcache.base.clock import Clock, SystemClock
from nearcache.base.counters import Counters
from nearcache.base.keys import decode_key
from nearcache.base.per_process import OfProcess
from nearcache.base.sans_io import Flow, arun, ask, run, steps_of, twins
from nearcache.base.threads import this_task, this_thread
from nearcache.coordination.leases import FOREVER_MS, Lease
from nearcache.coordination.lock_attempts import (
    LockAttempt,
    LockEngine,
    native_async,
    tell,
    tell_later,
)
from nearcache.coordination.lock_renewal import Renewer, renewer_of
from nearcache.errors import (
    EngineConfiguration,
    EngineError,
    EngineUnavailable,
    LockLost,
    LockNotAcquired,
)

logger = logging.getLogger("nearcache.locks")


class Lock:
    """``with cache.lock("name"):``, or ``async with``; see :meth:`ExtraMethods.lock`.

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
        self._asks_far = native_async(engine)
        self._lease: Lease | None = None
        self._depth = 0
        self._in_block = False
        self._owner = 0
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
        """True if the lock was acquired, and is not surely held any more. Asks nobody."""
        return self._lease is not None and (self._lease.inherited or self._lease.lost)

    def check(self) -> None:
        """Raises LockLost unless the lock is surely held. Asks nobody: call it often."""
        lease = self._held()
        if lease.lost:
            raise lease.lose()

    # -- acquire, renew, release -------------------------------------------------------------

    def acquire(self, *, blocking: bool = True, blocking_timeout: float | None = None) -> bool:
        """True once held. Waits ``blocking_timeout`` seconds, or what the lock was made with."""
        blocks = self._asks_far or not _greenlets()
        flow = self._acquire(self._wait_of(blocking, blocking_timeout), blocks)
        depth = self._depth
        try:
            return run(flow, self.engine, self.clock)
        except BaseException:  # an interrupt on the way back
            self._back_to(depth)
            raise

    async def aacquire(
        self, *, blocking: bool = True, blocking_timeout: float | None = None
    ) -> bool:
        """:meth:`acquire`, letting the event loop run meanwhile."""
        flow = self._acquire(self._wait_of(blocking, blocking_timeout), self._asks_far)
        return await arun(flow, self.engine, self.clock)

    def _renew(self, timeout: float | None = None) -> Flow[None]:
        """Starts the time anew, with ``timeout`` seconds if given; raises LockLost."""
        lease = self._held()
        ttl_ms = lease.ttl_ms if timeout is None else _ttl_ms(timeout, self.engine)
        renewal, asked_at_s = lease.renewal(), self.clock.monotonic_s()
        try:
            if not (yield ask("lock_renew", self.name, lease.token, ttl_ms)):
                raise self._gone(lease)
            lease.ttl_ms = ttl_ms
            lease.renewed(renewal, asked_at_s, ttl_ms)
        except LockLost:
            raise
        except BaseException:  # cancelled, too: the store may have heard of it
            lease.doubted(asked_at_s, ttl_ms)
            raise
        finally:
            lease.settled(renewal)
            if self._auto_renew:
                self._renewer.see_to(lease)
            else:
                lease.renew_at_s = math.inf

    renew, arenew = twins(_renew)

    def _release(self) -> Flow[None]:
        """Releases the lock; raises LockLost if it was no longer held.

        A store may not answer, or refuse (the right was revoked). Its error is raised, and it is
        told again until it takes the release, or the lock's time is over.
        """
        lease = self._held()
        if lease.depth > 1:
            self._go_out(lease)
            return
        renewer = lease.renewer.heir or lease.renewer
        try:
            lease.released, lease.renew_at_s = True, math.inf
            if not lease.is_owed:
                renewer.add(lease, lease.undo)
            self._go_out(lease)
            if self._asks_far:
                held = yield from steps_of(self.engine, "lock_release", self.name, lease.token)
            else:
                held = lease.undo()
            renewer.drop(lease)
        except (EngineUnavailable, EngineConfiguration) as error:  # a right may be granted again
            tell_later(self.engine, self.name, "lock_release", lease.token, self._ttl_ms)
            renewer.drop(lease)
            if lease.lost:
                raise lease.lose() from error
            # Nobody can tell whether it was held to the end: the store may come back empty.
            raise
        except EngineError:
            renewer.drop(lease)
            raise
        except BaseException:  # cancelled, interrupted, a greenlet was killed
            tell(self.engine, self.name, "lock_release", lease.token, self._ttl_ms)
            self._lease, self._depth = None, 0
            renewer.drop(lease)
            raise
        if not held:
            raise lease.lose()

    release, arelease = twins(_release)

    # -- the same by the names of redis-py and django-redis ---------------------------------------

    def owned(self) -> bool:
        """True if this object surely holds the lock. Asks nobody."""
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
        depth, self._in_block = self._depth, True
        try:
            if not self.acquire():
                raise self._not_acquired()
            return self
        except BaseException:
            self._back_to(depth)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            run(self._release(), self.engine, self.clock)
        except (LockLost, EngineError) as ours:
            if not _hidden(ours, error):
                raise

    async def __aenter__(self) -> Self:
        self._in_block = True
        if not await self.aacquire():
            raise self._not_acquired()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await arun(self._release(), self.engine, self.clock)
        except (LockLost, EngineError) as ours:
            if not _hidden(ours, error):
                raise

    # -- how -----------------------------------------------------------------------------------

    def _acquire(self, wait_s: float | None, blocks: bool) -> Flow[bool]:
        caller = _caller() if self._reentrant else None
        if (caller is not None or self._lease is not None) and self._come_in_again(caller):
            return True
        bid = LockAttempt(self.engine, self.name, self._ttl_ms, self.clock, self._asks_far)
        try:
            token, asked_at_s = yield from bid.made(wait_s, blocks)
            if token is None:
                return False
            self._take(token, asked_at_s, bid.lock_epoch, caller)
        except BaseException as error:
            try:
                self._withdraw(bid, error)
            except BaseException:
                # Interrupted again, and nobody else knows what the store gave.
                self._withdraw(bid, error)
                raise
            raise
        return True

    def _withdraw(self, bid: LockAttempt, error: BaseException) -> None:
        bid.withdraw(error)
        lease, self._lease = self._lease, None
        if lease is not None:
            self._depth = 0
            self._renewer.drop(lease)
            self._forget(lease)

    def _take(
        self, token: int, asked_at_s: float, lock_epoch: int | None, caller: object | None
    ) -> None:
        lease = Lease(
            self.engine,
            self.name,
            token,
            self._ttl_ms,
            asked_at_s,
            self.clock,
            self._counters,
            self._max_hold_s,
            lock_epoch,
        )
        self._lease, self._depth = lease, 1
        if caller is not None:
            lease.owner = weakref.ref(caller)
            self._owner = id(caller)
            _reentrant.here()[id(self.engine), self.name, self._owner] = lease
        if not self._auto_renew:
            lease.renew_at_s = math.inf
        lease.is_owed = self._in_block
        lease.renewer.add(lease, lease.undo if self._in_block else None)

    def _come_in_again(self, caller: object | None) -> bool:
        """True if the caller holds the lock already, and may come in again; None is nobody."""
        if self._lease is not None and self._lease.inherited:
            self._lease, self._depth = None, 0  # the lease is our parent's, which holds it still
        lease = None if caller is None else self._lease_of(caller)
        if self._lease is not None and lease is not self._lease:
            raise LockNotAcquired(
                f"lock {self._shown!r} is already held by this object;"
                " pass reentrant=True if the same caller may come in again"
            )
        if lease is None:
            return False
        if lease.lost:
            raise lease.lose()
        lease.depth += 1
        self._lease, self._owner = lease, id(caller)
        self._depth += 1
        return True

    def _lease_of(self, caller: object) -> Lease | None:
        """The lease of that thread or task, and not of an earlier one that had the same id."""
        lease = _reentrant.here().get((id(self.engine), self.name, id(caller)))
        return lease if lease is not None and lease.owner() is caller else None

    def _go_out(self, lease: Lease) -> bool:
        """Goes out once. True if the caller is out for good, so the lock has to be released."""
        lease.depth -= 1
        self._depth -= 1
        if not self._depth:
            self._lease = None
        if lease.depth:
            return False
        self._forget(lease)
        return True

    def _forget(self, lease: Lease) -> None:
        if not self._reentrant:
            return
        leases, key = _reentrant.here(), (id(self.engine), self.name, self._owner)
        if leases.get(key) is lease:
            leases.pop(key, None)

    def _back_to(self, depth: int) -> None:
        """Undoes what an interrupted call did: goes out until ``depth`` is reached."""
        if self._lease is None or self._depth <= depth:
            return
        lease = self._lease
        if lease.depth == 1:
            lease.released, lease.renew_at_s = True, math.inf
            tell(self.engine, self.name, "lock_release", lease.token, self._ttl_ms)
            self._renewer.drop(lease)
        self._go_out(lease)

    def _held(self) -> Lease:
        if self._lease is None:
            raise LockLost(f"lock {self._shown!r} is not held: acquire it first")
        if self._lease.inherited:
            self._lease, self._depth = None, 0
            raise LockLost(f"lock {self._shown!r} is held by the process that forked this one")
        return self._lease

    def _gone(self, lease: Lease) -> LockLost:
        lease.renew_at_s = math.inf
        self._renewer.drop(lease)
        self._go_out(lease)
        return lease.lose()

    @property
    def _shown(self) -> str:
        return decode_key(self.name)

    @property
    def _renewer(self) -> Renewer:
        return renewer_of(self.engine, self.name)

    def _wait_of(self, blocking: bool, blocking_timeout: float | None) -> float | None:
        if not blocking:
            return 0.0
        wait_s = self._wait_s if blocking_timeout is None else blocking_timeout
        return None if wait_s is None else max(0.0, wait_s)

    def _not_acquired(self) -> LockNotAcquired:
        return LockNotAcquired(f"lock {self._shown!r} was held by somebody else for the whole wait")


_Leases = weakref.WeakValueDictionary[tuple[int, bytes, int], Lease]
_reentrant: OfProcess[_Leases] = OfProcess(weakref.WeakValueDictionary)
"""Leases of reentrant locks, by engine, name and the ``id`` of the thread or task that holds them.
``lease.owner`` tells whether that thread or task lives still."""


def _hidden(ours: Exception, error: BaseException | None) -> bool:
    """True if the block ended with an error of its own, which says more. Ours is then logged."""
    if error is not None:
        logger.warning("%s (while handling %s)", ours, type(error).__name__)
    return error is not None


def _caller() -> object:
    """The task that runs, or else the thread (greenlet)."""
    return this_task() or this_thread()


def _greenlets() -> bool:
    # gevent and eventlet put a function of theirs there. A native wait would stop all greenlets.
    return not isinstance(time.sleep, types.BuiltinFunctionType)


_NUMBER = int, float


def _ttl_ms(timeout_s: float | None, engine: Any) -> int:
    if timeout_s is None:
        return int(getattr(engine, "lock_ttl_ms", FOREVER_MS))
    if not isinstance(timeout_s, _NUMBER) or isinstance(timeout_s, bool):
        raise TypeError(f"timeout is {timeout_s!r}; write a number of seconds")
    if not timeout_s > 0:  # `<= 0` would let nan pass
        raise ValueError(f"timeout is {timeout_s!r}; write a number of seconds above 0")
    if timeout_s * 1000 >= FOREVER_MS:
        return FOREVER_MS  # infinity included
    return max(1, round(timeout_s * 1000))
