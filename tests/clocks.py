"""The clock that the store in shared memory reads, which Python's ``time`` has no name for."""

from __future__ import annotations

import sys
import time

CLOCK_REALTIME_COARSE = 5  # of <linux/time.h>


def store_s() -> float:
    """Seconds since 1970. A tick behind ``time.time()``, or more: while a host runs the other
    CPUs and not the one that ticks."""
    on_linux = sys.platform == "linux"
    return time.clock_gettime(CLOCK_REALTIME_COARSE if on_linux else time.CLOCK_REALTIME)
