"""Telling an error of foreign code from the interrupt of a signal handler.

A class that is unpickled, a computation of the user's: what they raise is caught. A signal handler
that raises (a time limit, mostly: Celery's soft one is an ``Exception``) may do so inside of them,
or between two bytecodes of who catches, and must reach the caller whom it is for.
"""

from __future__ import annotations

import functools
import signal
from types import CodeType
from typing import Any


def is_interrupt(error: BaseException) -> bool:
    """Whether a signal handler raised it: the traceback leads through one that is installed.

    Not told is a handler that was replaced before this asks, or that is no Python code.
    """
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code in handlers:
            return True
        step = step.tb_next
    return False


def _code_of(handler: Any) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    code = getattr(handler, "__code__", None)  # a function's, and through it a method's
    if code is None and callable(handler):
        code = getattr(type(handler).__call__, "__code__", None)
    return code
