"""Leases: what the holder of a named lock has until its time is over.

A lease is one hold of one lock: its fencing token, and until when it is surely held. That time is
by a clock of this process, read *before* the store was asked. A renewer (:mod:`.lock_renewal`)
renews a lease when a third of its time has passed. It serves tasks of event loops as well: a loop
that is busy for longer than the time of a lock does not lose the lock.

    held      the store renewed the lease in time, or confirmed it at its release
    lost      the store says that the lease is not ours, or it is another store by now, or it could
              not be asked in time
    ended     the lease is renewed no more: it was released, or its lock object is gone, or it was
              held for ``max_hold_s``

A lease that nobody refers to is renewed no more, because nobody can release it: what a thread left
behind when it died ends by itself. Such a lease is released at once if a ``with`` block held it, or
if its release was begun, because then an interrupt came between.
"""

from __future__ import annotations

import functools
import logging
import math
import time
import weakref
from collections.abc import Callable
from typing import Any

from nearcache.base.clock import Clock
from nearcache.base.counters import Counters
from nearcache.base.keys import decode_key
from nearcache.base.per_process import generation
from nearcache.coordination.lock_renewal import RENEWALS_PER_TTL, RETRY_S, renewer_of
from nearcache.errors import EngineError, LockLost

logger = logging.getLogger("nearcache.locks")

FOREVER_MS = 10 * 365 * 86_400_000


def lock_epoch(engine: Any) -> int | None:
    """A number that changes when a store has lost all locks (another file); None without one."""
    return getattr(engine, "lock_epoch", None)


class Renewal:
    """One question to the store, to renew a lease. ``crossed`` if another was under way meanwhile.

    Nobody knows which of the two questions the store answered last, so nobody knows the time that
    the lease has.
    """

    __slots__ = ("__weakref__", "crossed")

    def __init__(self) -> None:
        self.crossed = False


def _nobody() -> None:
    return None


class Lease:
    """One hold of one lock. ``depth`` counts how often its caller came in (``reentrant``)."""

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
        lock_epoch: int | None = None,
    ) -> None:
        self.engine = engine
        self.name = name
        self.token = token
        self.renewer = renewer_of(engine, name)
        self.undo = functools.partial(engine.lock_release, name, token)
        self.ttl_ms = ttl_ms
        self.depth = 1
        self.owner: Callable[[], object] = _nobody  # a reference to who may come in again
        self.is_owed = False  # the renewer releases it if it is lost
        self.released = False
        self.renew_at_s = math.inf
        self._gone = False
        self._asking: weakref.WeakSet[Renewal]  # made by the first renewal
        self._lock_epoch = lock_epoch
        self._process = generation()
        self._clock = clock
        self._counters = counters
        self._renew_until_s = math.inf if max_hold_s is None else asked_at_s + max_hold_s
        self.confirmed(asked_at_s, ttl_ms)

    @property
    def lost(self) -> bool:
        """True if it is not sure any more that the lock is held."""
        return (
            self._gone
            or self._clock.monotonic_s() >= self._ends_at_s
            or self._lock_epoch != lock_epoch(self.engine)
        )

    @property
    def left_s(self) -> float:
        """Seconds for which the lock is surely held, if nobody renews it."""
        return max(0.0, self._ends_at_s - self._clock.monotonic_s())

    @property
    def inherited(self) -> bool:
        """True in a child of the process that holds the lock."""
        return self._process != generation()

    def confirmed(self, asked_at_s: float, ttl_ms: int) -> None:
        """The store, asked at ``asked_at_s``, said that the lock is held."""
        self.ttl_ms = ttl_ms
        if ttl_ms >= FOREVER_MS:
            self._ends_at_s = self.renew_at_s = math.inf
        else:
            self._ends_at_s = asked_at_s + ttl_ms / 1000
            # Not by the lock's own clock, which tests move: the renewer waits in real time.
            self.renew_at_s = time.monotonic() + ttl_ms / 1000 / RENEWALS_PER_TTL

    def renewal(self) -> Renewal:
        """A question: made before the store is asked, :meth:`settled` when its answer counts."""
        mine = Renewal()
        asking: weakref.WeakSet[Renewal] = vars(self).setdefault("_asking", weakref.WeakSet())
        asking.add(mine)
        under_way = list(asking)
        if len(under_way) > 1:
            for each in under_way:
                each.crossed = True
        return mine

    def renewed(self, renewal: Renewal, asked_at_s: float, ttl_ms: int) -> None:
        """:meth:`confirmed`, but if another question was under way meanwhile."""
        if renewal.crossed:
            self.doubted(asked_at_s, ttl_ms)
        else:
            self.confirmed(asked_at_s, ttl_ms)

    def settled(self, renewal: Renewal) -> None:
        """The answer to the question counts by now, or will never come."""
        self._asking.discard(renewal)

    def doubted(self, asked_at_s: float, ttl_ms: int) -> None:
        """The store may hold the lock for that time only, so it is to be asked again at once."""
        self._ends_at_s = min(self._ends_at_s, asked_at_s + ttl_ms / 1000)
        self._renew_next_in(0.0)

    def lose(self) -> LockLost:
        """Marks the lease as lost; the error to raise."""
        if not self._gone:
            self._gone = True
            self._counters.locks_lost += 1
        return LockLost(
            f"lock {decode_key(self.name)!r} ran out or was taken over before its release;"
            " give it a longer timeout, or look for what stopped this process from renewing it"
        )

    def keep(self) -> None:
        """Renews the lease, when it is due. A bug is raised, and the lease is due again then."""
        if self._clock.monotonic_s() >= self._renew_until_s:
            self.renew_at_s = math.inf
            logger.warning("lock %r: max_hold is over, not renewed", decode_key(self.name))
            return
        renewal = self.renewal()
        try:
            self._keep(renewal)
        except EngineError as error:
            self._put_off(error)
        except Exception:
            self._renew_next_in(RETRY_S[1])  # not at once, for ever
            raise
        finally:
            self.settled(renewal)

    def _keep(self, renewal: Renewal) -> None:
        asked_at_s, ttl_ms = self._clock.monotonic_s(), self.ttl_ms
        if self.engine.lock_renew(self.name, self.token, ttl_ms):
            self.renewed(renewal, asked_at_s, ttl_ms)
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
        self.renew_at_s = time.monotonic() + seconds
