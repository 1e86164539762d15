"""An outage costs microseconds, not a timeout per call: one circuit breaker per server.

    closed      every caller may ask. ``failures`` failures in a row open the circuit. A
                configuration error (wrong password) opens it at once
    open        no caller asks, for a pause: each gets the prepared error
    half-open   the pause is over. One caller probes, the others still get the error. Success closes
                the circuit. Failure opens it again, from then on for twice ``pause_s``

A pause is up to a quarter shorter or longer, so that the processes of a fleet do not come back all
at once. A server that is back is asked after two and a half times ``pause_s`` at most. A prober
that reports nothing (it was interrupted) is replaced after ``probe_s``.

A change is noted in :attr:`Breaker.unsaid`, and logged by :meth:`Breaker.say`. The leader of a line
with many callers logs when it leads no more, because a log handler may use the very same cache.

There are no locks. The one thing that must happen once is to take the probe. That is a
``dict.setdefault``, which is atomic for threads and greenlets, and which no fork or interrupt can
leave locked. Two racing failures may count as one. Tasks, greenlets and threads share the breaker
of their process. A forked child begins with what its parent knew, and without a probe, because the
prober is in the parent.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Literal

from nearcache.base.per_process import chance, generation
from nearcache.engines.redis.target.target import Address, Target
from nearcache.errors import CircuitOpen, EngineConfiguration, EngineError

logger = logging.getLogger("nearcache.redis")

State = Literal["closed", "open", "half-open"]

LONGEST_PAUSES = 2
"""The longest pause, in units of ``pause_s``."""


class Breaker:
    """See the head of this module. Seconds are float."""

    def __init__(
        self,
        name: str,
        *,
        failures: int = 3,
        pause_s: float = 1.0,
        probe_s: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = chance,
    ) -> None:
        """``failures`` 0 never opens. ``jitter`` gives numbers from 0 to 1."""
        self.name = name
        self.quiet = True
        """True if nothing has failed since the last success: then there is nothing to check."""
        self.unsaid: deque[tuple[int, str]] = deque()
        self._limit = failures
        self._pause_s = pause_s
        self._probe_s = probe_s
        self._clock = clock
        self._jitter = jitter
        self._opened = self._refused = self._failures = 0
        self._in_a_row = self._openings = 0
        self._error: tuple[type[EngineError], str] | None = None
        self._probe_at = 0.0
        self._probers: dict[tuple[int, int], object] = {}

    @property
    def state(self) -> State:
        if self._error is None:
            return "closed"
        return "half-open" if self._is_probed else "open"

    @property
    def _is_probed(self) -> bool:
        return any(process == generation() for process, _ in list(self._probers))

    def check(self) -> None:
        """Returns if the server may be asked. The caller then reports :meth:`succeeded` or
        :meth:`failed`.

        Raises :class:`~nearcache.errors.CircuitOpen` while the server may not be asked. If the
        settings are wrong, raises the same :class:`~nearcache.errors.EngineConfiguration` again.
        """
        error = self._error
        if error is None:
            return
        over_s = self._clock() - self._probe_at
        if over_s >= 0:
            me = object()
            # One probe per window of time: a probe that gets lost costs one window.
            window = generation(), int(over_s / self._probe_s)
            if self._probers.setdefault(window, me) is me:
                return
        self._refused += 1
        kind, message = error
        raise kind(message)

    def succeeded(self) -> None:
        """The server answered; an error reply is an answer too."""
        if self.quiet:
            return
        was_open = self._error is not None
        self._close()
        if was_open:
            self.unsaid.append((logging.INFO, f"{self.name} answers again"))

    def failed(self, error: BaseException) -> None:
        """No connection, no answer in time, or settings that the server refuses."""
        self.quiet = False
        self._failures += 1
        self._in_a_row += 1
        permanent = isinstance(error, EngineConfiguration)
        if self._error is None:
            if self._limit and (permanent or self._in_a_row >= self._limit):
                self._open(error)
                text = f"{self.name} is not asked for a while: {error}"
                self.unsaid.append((logging.WARNING, text))
        elif self._is_probed:
            # Only a probe's failure counts, and not those of requests that were under way before.
            self._open(error)

    def say(self) -> None:
        """Logs what has changed. A caller that others wait for must not call it."""
        while self.unsaid:
            with contextlib.suppress(IndexError):  # another thread logs it
                level, text = self.unsaid.popleft()
                logger.log(level, "%s", text)

    def stats(self) -> dict[str, int]:
        return {
            "breaker_open": int(self._error is not None),
            "breaker_opened": self._opened,
            "breaker_refused": self._refused,
            "failures": self._failures,
        }

    def _open(self, error: BaseException) -> None:
        pause_s = self._pause_s * min(2**self._openings, LONGEST_PAUSES)
        pause_s *= 0.75 + 0.5 * self._jitter()
        if isinstance(error, EngineConfiguration):
            self._error = (type(error), str(error))
        else:
            self._error = (CircuitOpen, self._message(error, pause_s))
        self._openings += 1
        self._opened += 1
        self._probe_at = self._clock() + pause_s
        self._probers = {}

    def _message(self, error: BaseException, pause_s: float) -> str:
        return (
            f"{self.name} failed {self._in_a_row} times in a row and is not asked for"
            f" {pause_s:.1f} s; the last time: {error}"
        )

    def _close(self) -> None:
        self._error = None
        self._in_a_row = self._openings = 0
        self._probers = {}
        self.quiet = True


_breakers: dict[tuple[Target, Address], Breaker] = {}


def breaker_of(target: Target, address: Address) -> Breaker:
    """The breaker that this process has for a server, as these settings reach it."""
    key = (target, address)
    made = Breaker(
        str(address),
        failures=target.breaker_failures,
        pause_s=target.breaker_s,
        probe_s=target.connect_timeout_s + target.read_timeout_s,
    )
    return _breakers.setdefault(key, made)
