"""Telling an error of foreign code from the interrupt of a signal handler.

Some of our code catches whatever foreign code raises: a class that is unpickled, a computation of
the user's. A signal handler may raise inside of the foreign code, or between two bytecodes of the
code that catches. Mostly that is a time limit, and Celery's soft time limit is an ``Exception``.
Such an error must not be caught: it has to reach the caller that it is for.
"""

from __future__ import annotations

import functools
import signal
from types import CodeType
from typing import Any


def is_interrupt(error: BaseException) -> bool:
    """True if a signal handler raised it: the traceback leads through an installed handler.

    False, wrongly, for a handler that was replaced meanwhile, and for one that is no Python code.
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
