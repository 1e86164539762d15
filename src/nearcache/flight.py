"""Single flight: of all who miss a key at once, one computes and the others take its value.

It works across threads, greenlets, tasks and processes by one means, the engine's named
lock. Followers do not queue for that lock: they look for the value, and only try the lock
when it is not there yet, so that all of them leave the moment the value appears, and one of
them takes over the moment a leader dies or fails.

Every wait is bounded. Whoever has waited that long computes as well, as if there were no
single flight: slow, and never stuck. Knows nothing of caches or values.
"""

from __future__ import annotations

from collections.abc import Callable

from nearcache.clock import Clock
from nearcache.errors import LockLost
from nearcache.locks import Lock, pauses
from nearcache.metrics import Counters

Look = Callable[[], bool]
"""Looks for the value; True if the caller now has it."""


class Flight:
    """One caller's turn at one key: :meth:`join`, compute and store if told to, :meth:`leave`."""

    def __init__(self, lock: Lock, look: Look, wait_s: float, clock: Clock, counters: Counters):
        self._lock = lock
        self._look = look
        self._wait_s = wait_s
        self._clock = clock
        self._counters = counters

    def join(self) -> bool:
        """True if the caller has to compute; False if it has the value. Then :meth:`leave`."""
        for pause in pauses(self._clock, self._wait_s):
            if self._lock.acquire(blocking=False):
                return self._lead()
            self._clock.sleep(pause)
            if self._look():
                return self._follow()
        return self._time_out()

    async def ajoin(self) -> bool:
        """:meth:`join`, letting the event loop run meanwhile."""
        for pause in pauses(self._clock, self._wait_s):
            if self._lock.acquire(blocking=False):
                return self._lead()
            await self._clock.asleep(pause)
            if self._look():
                return self._follow()
        return self._time_out()

    def leave(self) -> None:
        """Lets the next one lead; harmless for somebody who does not."""
        if self._lock.token is None:
            return
        try:
            self._lock.release()
        except LockLost:
            # Computing took longer than the lock lives, and the lock has counted that. The
            # caller's value is as good as any, so there is nothing to take back.
            return

    def _lead(self) -> bool:
        # The value may have been stored between the caller's miss and our getting the lock.
        if self._look():
            self.leave()
            return self._follow()
        self._counters.flight_leads += 1
        return True

    def _follow(self) -> bool:
        self._counters.flight_follows += 1
        return False

    def _time_out(self) -> bool:
        self._counters.flight_timeouts += 1
        return True
