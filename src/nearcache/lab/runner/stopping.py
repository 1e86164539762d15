"""Ctrl-C, SIGTERM and SIGHUP as one exception that cannot interrupt the cleaning up.

A signal that arrives while a process is being started, or while things are put away,
is remembered and acted upon when that is over. So is one that arrives in an import: CPython's
compiler forgets exceptions that a signal handler raises while it folds constants.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOOK_AGAIN_S = 0.02
"""How soon after a signal in an import somebody looks whether the import is over."""


class Stopped(BaseException):
    """Somebody asked the run to end. Not an Exception: nothing may swallow it."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal.Signals(signal_number).name)
        self.exit_code = 128 + signal_number

    def forgetful(self) -> Self:
        """Itself without what was interrupted: for a name of the function that caught it.

        That would be a cycle, and a message that a process was just being told or telling would
        be in it: Python 3.12.0 and 3.12.1 crash when they collect such a one (gh-111049).
        """
        return self.with_traceback(None)


class Stopping:
    """Installs the handlers for a while. Use as a context manager."""

    def __init__(self) -> None:
        self._armed = False
        self._pending: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in SIGNALS:
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue  # nohup: the user means to leave
            self._previous[number] = signal.signal(number, self._handle)
        self._previous[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._look_again)
        self._armed = True
        return self

    def __exit__(self, *error: object) -> None:
        self._armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Signals wait until the block has ended."""
        self._armed = False
        try:
            yield
        finally:
            self._armed = True
        self._raise_pending()

    def disarm(self) -> None:
        """From here on everything is cleaning up, which no signal interrupts."""
        self._armed = False

    def asked(self) -> Stopped | None:
        """Whoever asked, also while everything was cleaned up: what comes next does not begin."""
        return None if self._pending is None else Stopped(self._pending)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._pending = self._pending or number
        self._look_again(number, frame)

    def _look_again(self, number: int, frame: FrameType | None) -> None:
        if self._armed and _imports(frame):
            signal.setitimer(signal.ITIMER_REAL, LOOK_AGAIN_S)
        elif self._armed:
            self._raise_pending()

    def _raise_pending(self) -> None:
        if self._pending is not None:
            self._armed = False
            raise Stopped(self._pending)


def _imports(frame: FrameType | None) -> bool:
    """Whether a module is being imported at this point of the main thread."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
