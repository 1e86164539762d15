"""What a cache that forgives outages remembers: one log line per change of state, and a count.

One :class:`Outage` per store and process. It begins with the first call that was forgiven and
ends with the first that succeeded, whichever thread or task these are in.
"""

from __future__ import annotations

import logging
import threading

from nearcache.clock import Clock, SystemClock

logger = logging.getLogger("nearcache.outage")


class Outage:
    """``on`` is looked at after every call that succeeded, so it is a plain attribute."""

    def __init__(self, name: str, clock: Clock | None = None) -> None:
        self.on = False
        self.forgiven = 0
        self._name = name
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._since_s = 0.0
        self._before = 0

    def forgive(self, error: Exception) -> None:
        """An error that the caller is not told of."""
        with self._lock:
            self.forgiven += 1
            if self.on:
                return
            self.on, self._since_s = True, self._clock.monotonic_s()
            self._before = self.forgiven - 1
        logger.warning(
            "%s does not answer: until it does, reads miss and writes are dropped (%s: %s)",
            self._name,
            type(error).__name__,
            error,
        )

    def end(self) -> None:
        """It answered."""
        with self._lock:
            if not self.on:
                return
            self.on, forgiven = False, self.forgiven - self._before
            lasted_s = self._clock.monotonic_s() - self._since_s
        logger.warning(
            "%s answers again: %d calls in %.1f s were not served", self._name, forgiven, lasted_s
        )
