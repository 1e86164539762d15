"""Leases: what the holder of a named lock has until its time is over, and who renews them.

A lease is one hold of one lock: its fencing token, and until when it is surely held, by a
clock of this process that was read *before* the store was asked. The *keeper*, one daemon
thread per process, renews leases when a third of their time has passed. It serves tasks of
event loops as well: a loop that is busy for longer than the time of a lock does not lose it.

    held      the store renewed it in time, or said so at its release
    lost      the store says that it is not ours, or nobody could ask it in time
    not ours  any more to renew: released, its lock object is gone, held for ``max_hold_s``

A lease that nobody refers to is renewed no more, as nobody can release it either: what a
thread left behind when it died ends by itself.

The keeper also does what is owed to a store that did not answer: a release, a place in a
queue to be given up. It tries again until the time of the lock is over.

A forked child has no lease of its parent's: the keeper of the parent renews them, and nobody
else. Under gevent the thread is a greenlet. A process may be patched late, in a worker that was
forked after this was imported: what an older keeper has goes to one made since.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from nearcache.clock import Clock
from nearcache.errors import EngineError, EngineUnavailable, LockLost
from nearcache.keys import decode_key
from nearcache.metrics import Counters

logger = logging.getLogger("nearcache.locks")

FOREVER_MS = 10 * 365 * 86_400_000
RENEWALS_PER_TTL = 3
RETRY_S = (0.05, 1.0)
"""The shortest and the longest pause before a store that did not answer is asked again."""


class Lease:
    """One hold of one lock. ``depth`` counts who came in again (``reentrant``)."""

    def __init__(
        self,
        engine: Any,
        name: bytes,
        token: int,
        ttl_ms: int,
        asked_at_s: float,
        clock: Clock,
        counters: Counters,
        max_hold_s: float | None = None,
    ) -> None:
        self.engine = engine
        self.name = name
        self.token = token
        self.ttl_ms = ttl_ms
        self.depth = 1
        self.released = False
        self.renew_at_s = math.inf
        self._gone = False
        self._pid = os.getpid()
        self._clock = clock
        self._counters = counters
        self._renew_until_s = math.inf if max_hold_s is None else asked_at_s + max_hold_s
        self.confirmed(asked_at_s, ttl_ms)

    @property
    def lost(self) -> bool:
        """True once it is not sure any more that the lock is held."""
        return self._gone or self._clock.monotonic_s() >= self._ends_at_s

    @property
    def left_s(self) -> float:
        """Seconds for which it is surely held, if nobody renews it."""
        return max(0.0, self._ends_at_s - self._clock.monotonic_s())

    @property
    def inherited(self) -> bool:
        """True in a child of the process that holds the lock."""
        return self._pid != os.getpid()

    def confirmed(self, asked_at_s: float, ttl_ms: int) -> None:
        """The store said that it is held, when asked then."""
        self.ttl_ms = ttl_ms
        self._ends_at_s = math.inf if ttl_ms >= FOREVER_MS else asked_at_s + ttl_ms / 1000
        self._renew_next_in(ttl_ms / 1000 / RENEWALS_PER_TTL)

    def lose(self) -> LockLost:
        """Marks it as lost, and says it."""
        if not self._gone:
            self._gone = True
            self._counters.locks_lost += 1
        return LockLost(
            f"lock {decode_key(self.name)!r} ran out or was taken over before its release;"
            " give it a longer timeout, or look for what stopped this process from renewing it"
        )

    def keep(self) -> None:
        """What the keeper does when it is due; raises nothing."""
        asked_at_s, ttl_ms = self._clock.monotonic_s(), self.ttl_ms
        if asked_at_s >= self._renew_until_s:
            self.renew_at_s = math.inf
            logger.warning("lock %r: max_hold is over, not renewed", decode_key(self.name))
            return
        try:
            held = self.engine.lock_renew(self.name, self.token, ttl_ms)
        except EngineError as error:
            self._put_off(error)
            return
        if held:
            self.confirmed(asked_at_s, ttl_ms)
        elif not self.released:
            self.renew_at_s = math.inf
            logger.warning("%s", self.lose())

    def _put_off(self, error: EngineError) -> None:
        if self.lost:
            self.renew_at_s = math.inf
            logger.warning("%s (%s)", self.lose(), error)
        else:
            self._renew_next_in(min(max(self.ttl_ms / 10_000, RETRY_S[0]), RETRY_S[1]))

    def _renew_next_in(self, seconds: float) -> None:
        # Not the lock's own clock, which tests move: the keeper waits in real time.
        self.renew_at_s = time.monotonic() + seconds


class _Debt:
    """Something the store has to be told, until when it matters."""

    def __init__(self, act: Callable[[], object], due_at_s: float, until_s: float) -> None:
        self.act = act
        self.due_at_s = due_at_s
        self.until_s = until_s
        self.pause_s = RETRY_S[0]

    def pay(self) -> bool:
        """True if it is done with."""
        try:
            self.act()
        except EngineUnavailable:
            self.pause_s = min(self.pause_s * 2, RETRY_S[1])
            self.due_at_s = time.monotonic() + self.pause_s
            return self.due_at_s > self.until_s
        return True


class Keeper:
    """The thread that renews. It ends when there is nothing to do, and is started again."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._leases: dict[int, weakref.ref[Lease]] = {}
        self._debts: list[_Debt] = []
        self._thread: threading.Thread | None = None
        self._wakes_at_s = math.inf

    def add(self, lease: Lease) -> None:
        """Renews it from now on."""
        with self._changed:
            self._leases[id(lease)] = weakref.ref(lease)
            self._wake_by_locked(lease.renew_at_s)

    def drop(self, lease: Lease) -> None:
        """Renews it no more."""
        with self._changed:
            self._leases.pop(id(lease), None)

    def later(self, act: Callable[[], object], for_s: float, after_s: float = 0.0) -> None:
        """Calls ``act`` in the keeper's thread, again while it raises EngineUnavailable.

        For ``for_s`` seconds at most, and the first time ``after_s`` seconds from now.
        """
        due_at_s = time.monotonic() + after_s
        with self._changed:
            self._debts.append(_Debt(act, due_at_s, due_at_s + for_s))
            self._wake_by_locked(due_at_s)

    def take_over(self, other: Keeper) -> None:
        """Does from now on what the other one did, whose thread finds nothing more to do."""
        leases, other._leases = other._leases, {}
        debts, other._debts = other._debts, []
        with self._changed:
            self._leases.update(leases)
            self._debts += debts
            if leases or debts:
                self._wake_by_locked(self._next_locked())

    def _wake_by_locked(self, at_s: float) -> None:
        if self._thread is None:
            self._wakes_at_s = at_s
            self._thread = threading.Thread(
                target=self._serve, name="nearcache-leases", daemon=True
            )
            self._thread.start()
        elif at_s < self._wakes_at_s:
            self._wakes_at_s = at_s
            self._changed.notify()

    def _serve(self) -> None:
        while self._wait():
            self._act()

    def _act(self) -> None:
        # Apart from _serve: its names would keep the last lease alive while it waits.
        for act in self._due():
            try:
                act()
            except Exception:
                # A bug in one lock must not cost the others theirs.
                logger.exception("a lock could not be renewed")

    def _wait(self) -> bool:
        """Until somebody is due; False if there is nobody to wait for."""
        with self._changed:
            while True:
                self._wakes_at_s = self._next_locked()
                if self._wakes_at_s == math.inf:
                    self._thread = None
                    return False
                left_s = self._wakes_at_s - time.monotonic()
                if left_s <= 0:
                    return True
                self._changed.wait(min(left_s, threading.TIMEOUT_MAX))

    def _next_locked(self) -> float:
        # No name here may outlive the call: it would keep a lease alive that nobody holds.
        dues = [each.renew_at_s for each in self._living_locked()]
        return min(dues + [each.due_at_s for each in self._debts], default=math.inf)

    def _living_locked(self) -> list[Lease]:
        found = {at: reference() for at, reference in self._leases.items()}
        for at, lease in found.items():
            if lease is None:
                self._leases.pop(at, None)
        return [lease for lease in found.values() if lease is not None]

    def _due(self) -> list[Callable[[], None]]:
        now_s = time.monotonic()
        with self._changed:
            leases = [each.keep for each in self._living_locked() if each.renew_at_s <= now_s]
            owed = any(each.due_at_s <= now_s for each in self._debts)
        return [*leases, self._pay_debts] if owed else leases

    def _pay_debts(self) -> None:
        now_s = time.monotonic()
        with self._changed:
            due = [each for each in self._debts if each.due_at_s <= now_s]
        done: list[_Debt] = []
        try:
            for each in due:
                done.append(each)  # also if it raises: no debt is paid for ever
                if not each.pay():
                    done.pop()
        finally:
            with self._changed:
                self._debts = [each for each in self._debts if each not in done]


_keepers: dict[object, Keeper] = {}
"""By the kind of ``threading.Lock`` they were made with: all but the last have retired."""


def keeper() -> Keeper:
    """That of this process, as gevent has patched it or not."""
    kind = threading.Lock
    found = _keepers.get(kind)
    if found is None:
        found = _keepers.setdefault(kind, Keeper())
        for other in list(_keepers.values()):
            if other is not found:
                found.take_over(other)
    return found


# The thread is not in the child, another one may have held its lock, and the leases are the
# parent's.
os.register_at_fork(after_in_child=_keepers.clear)
