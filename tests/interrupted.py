"""Interrupts at every place where one can come: those at which Python looks for signals.

It looks after calls, at the beginning of functions and where loops begin anew. A tracing function
that raises there does what a signal handler that raises would do, at a chosen place each time.
"""

from __future__ import annotations

import contextlib
import dis
import sys
from collections.abc import Collection, Iterator
from types import CodeType, FrameType
from typing import Any

LOOKS_AFTER = {"RESUME", "CALL", "CALL_KW", "CALL_FUNCTION_EX"}


class Interrupt:
    """Raises ``error`` at the ``number``-th place within these files, once."""

    def __init__(self, number: int, error: BaseException, files: Collection[str]) -> None:
        self.where = ""
        """Where it hit; empty if there are fewer places."""
        self._left = number
        self._error = error
        self._files = files
        self._places: dict[CodeType, set[int]] = {}

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        # Since Python 3.12 opcodes are traced if a frame asked for it before tracing began.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in self._files:
            return None
        frame.f_trace = self._reached  # first: Python 3.13 asks for it when opcodes are set
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self._reached

    def _reached(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if code not in self._places:
            self._places[code] = set(_places(code))
        if event == "opcode" and not self.where and frame.f_lasti in self._places[code]:
            self._left -= 1
            if not self._left:
                self.where = f"{code.co_qualname}, line {frame.f_lineno}"
                self.hit()
        return self._reached

    def hit(self) -> None:
        raise self._error


def _places(code: CodeType) -> Iterator[int]:
    before = ""
    for each in dis.get_instructions(code):
        if before in LOOKS_AFTER or each.opname.startswith("JUMP_BACKWARD"):
            yield each.offset
        before = each.opname
