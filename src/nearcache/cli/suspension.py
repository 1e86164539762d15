"""Ctrl-Z for a command that draws over the whole terminal: it is given back first, and taken again
at ``fg``.

The handler only notes the signal. Who has the terminal asks between two writes
(:meth:`Suspension.stop_if_asked`), because a handler may run in the middle of one.

Source: Stevens and Rago, Advanced Programming in the UNIX Environment, 10.21.
"""

from __future__ import annotations

import signal
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any, Self


class Suspension:
    """Catches SIGTSTP as long as it is entered.

    Args:
        terminal: what holds it, in the order of entering; all entered before
            :meth:`stop_if_asked` is called.
    """

    def __init__(self, *terminal: AbstractContextManager[Any]) -> None:
        self._terminal = terminal
        self._asked = False

    def __enter__(self) -> Self:
        self._before = signal.getsignal(signal.SIGTSTP)
        # A shell without job control has it ignored: then nobody could say `fg`.
        self._catches = self._before is not signal.SIG_IGN
        if self._catches:
            signal.signal(signal.SIGTSTP, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._catches:
            signal.signal(signal.SIGTSTP, self._before)

    def stop_if_asked(self) -> bool:
        """Stops here if somebody pressed Ctrl-Z; returns after SIGCONT. True if it did."""
        if not self._asked:
            return False
        self._asked = False
        for each in reversed(self._terminal):
            each.__exit__(None, None, None)
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._note)
        # In the background (`bg`) the first change of the terminal stops it again, until `fg`.
        for each in self._terminal:
            each.__enter__()
        return True

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._asked = True
