"""The C library's ``fork``, as uWSGI and C code call it: no hook of Python's runs.

CPython's GIL remembers who waits for it. A child has no such thread, and without Python's hooks
it hands the GIL to that thread, and waits for ever. So what can hold is tested with forks during
which every other thread sleeps in a call. No caller of ``fork`` can see to that beforehand: a
sleep may end at any time. Afterwards the kernel's counts tell it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

REST_S = 0.05
SLEEPS = "State:\tS (sleeping)"

PR_SET_PDEATHSIG = 1

# PyDLL keeps the GIL, as a child needs it.
c_library = ctypes.PyDLL(None)
c_fork: Callable[[], int] = c_library.fork


def raw_fork() -> int:
    """Forks while every other thread sleeps. A child beside which one woke is killed unused."""
    while True:
        asleep = rest()
        verdict, ours = os.pipe()
        parent = os.getpid()
        child = c_fork()
        if not child:
            _await(verdict, ours, parent)
            return 0
        os.close(verdict)
        well = _others() == asleep
        if well:
            os.write(ours, b"w")
        os.close(ours)
        if well:
            return child
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _await(verdict: int, parents: int, parent: int) -> None:
    """In the child: returns if the parent says that it may be used, and ends if that is killed."""
    c_library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # before it lets the GIL go, and hangs
    if os.getppid() != parent:
        os._exit(1)
    os.close(parents)
    if not os.read(verdict, 1):
        os._exit(1)
    os.close(verdict)
    c_library.prctl(PR_SET_PDEATHSIG, 0)


def rest() -> dict[str, list[str]]:
    """Returns when every other thread sleeps: for a fork that somebody else is about to do.

    What it returns stays the same for as long as they do.
    """
    while True:
        before = _others()
        time.sleep(REST_S)  # whoever wants the GIL has it meanwhile
        if _others() == before and all(SLEEPS in each for each in before.values()):
            return before


def _others() -> dict[str, list[str]]:
    """Whether each other thread sleeps, and how often it was put to sleep and woken."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        if int(task.name) != threading.get_native_id():
            try:
                lines = (task / "status").read_text().splitlines()
            except OSError:  # it has ended since
                continue
            found[task.name] = [
                each for each in lines if each.startswith("State:") or "ctxt_switches" in each
            ]
    return found
