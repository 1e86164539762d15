"""What a cache that forgives outages remembers: one log line per change of state, and a count.

There is one :class:`DegradedMode` per store and process. It begins with the first call that was
forgiven, and ends with the first call that succeeded, in whatever thread or task these are.

Writes have a state of their own. A full server (OOM) refuses writes and serves reads, and so does a
replica whose primary is gone. So a read that succeeds says nothing about writes:

    on        nothing is served. Any success ends it
    refused   no writes are taken. A write that was taken ends it

A server that does not answer drops reads and writes alike, and one line says so. When a read then
succeeds, it is in doubt whether the server takes writes. The next write decides: if it was taken,
nothing is logged; if not, ``refused`` begins.
"""

from __future__ import annotations

import logging

from nearcache.base.clock import Clock, SystemClock
from nearcache.base.per_process import Mutex
from nearcache.errors import ServerNotReady

logger = logging.getLogger("nearcache.outage")


class DegradedMode:
    """Callers look at ``on`` after every read that succeeded, and at ``drops`` after every write.

    So both are plain attributes.
    """

    def __init__(self, name: str, clock: Clock | None = None) -> None:
        self.on = False
        self.refused = False
        self.drops = False  # on, refused, or in doubt
        self.forgiven = 0
        self._name = name
        self._clock = clock or SystemClock()
        self._mutex = Mutex(reentrant=True)  # for signal handlers that use the cache
        self._writes = 0  # of those forgiven
        self._on_from = self._refused_from = (0.0, 0, 0)

    def forgive(self, error: Exception, write: bool = False) -> None:
        """Notes an error that the caller does not see."""
        not_ready = isinstance(error, ServerNotReady)
        with self._mutex.now():
            begun = (self._clock.monotonic_s(), self.forgiven, self._writes)
            self.forgiven += 1
            self._writes += write
            if self.on or (write and self.refused):
                return
            only_writes = write and (not_ready or self.drops)
            if only_writes:
                self.refused, self._refused_from = True, begun
            else:
                self.on, self._on_from = True, begun
            self.drops = True
        if only_writes:
            what = "takes no writes: until it does, they are dropped"
        else:
            verb = "serve" if not_ready else "answer"
            what = f"does not {verb}: until it does, reads miss and writes are dropped"
        logger.warning("%s %s (%s: %s)", self._name, what, type(error).__name__, error)

    def end(self) -> None:
        """The store answered, which says nothing about writes."""
        with self._mutex.now():
            if not self.on:
                return
            since_s, forgiven, writes = self._on_from
            self.on, self.drops = False, self.refused or self._writes > writes
            calls = self.forgiven - forgiven
        self._over("answers again: %d calls in %.1f s were not served", calls, since_s)

    def end_of_writes(self) -> None:
        """The store took a write, so it answers as well."""
        self.end()
        with self._mutex.now():
            since_s, _, writes = self._refused_from
            refused, self.refused, self.drops = self.refused, False, self.on
            dropped = self._writes - writes
        if refused:
            self._over("takes writes again: %d in %.1f s were dropped", dropped, since_s)

    def _over(self, what: str, count: int, since_s: float) -> None:
        lasted_s = self._clock.monotonic_s() - since_s
        logger.warning("%s %s", self._name, what % (count, lasted_s))
