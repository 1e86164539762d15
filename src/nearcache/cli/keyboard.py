"""Single keys from the terminal, without Return. Ctrl-C stays what it is."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager


class Keyboard:
    """Keys that are pressed on ``descriptor``; none if that is not there."""

    def __init__(self, descriptor: int | None) -> None:
        self.descriptor = descriptor

    def keys(self, until: float) -> Iterator[str]:
        """What is pressed until then (``time.monotonic()``)."""
        while (left := until - time.monotonic()) > 0:
            if self.descriptor is None:
                time.sleep(left)
            elif select.select([self.descriptor], [], [], left)[0]:
                pressed = os.read(self.descriptor, 64)
                if not pressed:  # the terminal is gone
                    self.descriptor = None
                yield from pressed.decode(errors="replace")


@contextmanager
def keyboard() -> Iterator[Keyboard]:
    """The keyboard of the terminal that standard input is; gives it back as it was."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield Keyboard(None)
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor, termios.TCSADRAIN)
    try:
        yield Keyboard(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
