"""Single keys from the terminal, without Return. Ctrl-C and Ctrl-Z stay what they are."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from typing import Any, Self


class Keyboard:
    """Keys that are pressed on ``descriptor``; none if that is not there.

    To be entered, which may be done again after it was left: a terminal is then given back
    as it was.
    """

    def __init__(self, descriptor: int | None) -> None:
        self.descriptor = descriptor
        self._before: list[Any] | None = None

    def __enter__(self) -> Self:
        if self.descriptor is not None:
            self._before = termios.tcgetattr(self.descriptor)
            tty.setcbreak(self.descriptor, termios.TCSADRAIN)
        return self

    def __exit__(self, *_: object) -> None:
        if self.descriptor is not None and self._before is not None:
            termios.tcsetattr(self.descriptor, termios.TCSADRAIN, self._before)

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


def keyboard() -> Keyboard:
    """The keyboard of the terminal that standard input is; one without keys if it is none."""
    if sys.stdin is None or not sys.stdin.isatty():
        return Keyboard(None)
    return Keyboard(sys.stdin.fileno())
