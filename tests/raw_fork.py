"""The C library's ``fork``, as uWSGI and C code call it: no hook of Python's runs."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from pathlib import Path

REST_S = 0.05

# PyDLL keeps the GIL, as a child needs it.
c_fork: Callable[[], int] = ctypes.PyDLL(None).fork


def raw_fork() -> int:
    """Forks once every other thread sleeps: in a call, but not for the GIL.

    CPython's GIL remembers who waits for it. A child has no such thread, and without Python's
    hooks it would hand the GIL to that thread, and wait for ever.
    """
    rest()
    return c_fork()


def rest() -> None:
    """Returns when every other thread sleeps: for a fork that somebody else is about to do."""
    before = None
    while before != (before := _switches()):
        time.sleep(REST_S)  # whoever wants the GIL has it meanwhile


def _switches() -> dict[str, list[str]]:
    """How often each other thread was put to sleep and woken."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        if int(task.name) != threading.get_native_id():
            try:
                lines = (task / "status").read_text().splitlines()
            except OSError:  # it has ended since
                continue
            found[task.name] = [line for line in lines if "ctxt_switches" in line]
    return found
