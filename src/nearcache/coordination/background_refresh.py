"""Computing behind a request, and what the log says of computations that fail.

A refresh of a stale value runs in a daemon thread of its own (under gevent in a greenlet), or as a
task of the event loop that asked. At most :data:`MAX_RUNNING` refreshes run at a time in a process.
A refresh that finds no room is left to the next reader, which gets the stale value as well. There
is a thread for each refresh and no pool: refreshes are rare, a pool would need somebody to end it,
and a fork leaves nothing to repair but a number.

Such a thread starts with no context: no request, no active language, no transaction. The
database connections that it opened are closed when it ends.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

from nearcache.base.keys import decode_key
from nearcache.base.per_process import OfProcess
from nearcache.base.threads import start

logger = logging.getLogger("nearcache.stampede")

MAX_RUNNING = 8
EXIT_WAIT_S = 1.0
FAILING_MAX = 1024

# Kept here, because an event loop refers to its tasks weakly.
_tasks: OfProcess[set[asyncio.Task[None]]] = OfProcess(set)
_threads: OfProcess[set[_Job]] = OfProcess(set)


class _Job:
    """Work in a thread of its own."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._over = threading.Lock()
        self._over.acquire()

    def __call__(self) -> None:
        try:
            self._work()
        finally:
            if "django.db" in sys.modules:
                sys.modules["django.db"].connections.close_all()  # those of this thread
            _threads.here().discard(self)
            self._over.release()

    def join(self, seconds: float = -1) -> None:
        if self._over.acquire(timeout=seconds):
            self._over.release()


def in_thread(work: Callable[[], None]) -> bool:
    """Calls ``work`` in a thread; False if too many run already. ``work`` must not raise."""
    job = _Job(work)
    _threads.here().add(job)
    try:
        if len(_threads.here()) > MAX_RUNNING:
            _threads.here().discard(job)
            return False
        start(job, "nearcache-refresh")
    except BaseException as error:
        _threads.here().discard(job)
        if isinstance(error, RuntimeError):  # no more threads, or the interpreter is ending
            return False
        raise
    return True


def in_task(work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
    """:func:`in_thread` as a task of the running event loop."""
    tasks = _tasks.here()
    if len(tasks) >= MAX_RUNNING:
        # Tasks of a loop that was closed before they ended never call their callbacks.
        for task in [each for each in tasks if each.get_loop().is_closed()]:
            tasks.discard(task)
        if len(tasks) >= MAX_RUNNING:
            return False
    task = asyncio.get_running_loop().create_task(work())
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return True


class Failing:
    """Which keys fail to be computed: one line when it begins, one when it is over."""

    def __init__(self) -> None:
        self._keys: OrderedDict[bytes, None] = OrderedDict()

    def began(self, raw_key: bytes, error: Exception) -> None:
        known = raw_key in self._keys
        self._keys[raw_key] = None
        if len(self._keys) > FAILING_MAX:
            self._keys.popitem(last=False)
        if not known:
            logger.warning(
                "%r cannot be computed anew (%s); the old value is served until it can be,"
                " or until its grace is over",
                decode_key(raw_key),
                type(error).__name__,
                exc_info=error,
            )

    def over(self, raw_key: bytes) -> None:
        if raw_key in self._keys and self._keys.pop(raw_key, 0) is None:
            logger.warning("%r is computed again", decode_key(raw_key))


def _let_them_end() -> None:
    # A daemon thread that is in native code when the interpreter ends can crash the process.
    give_up_at_s = time.monotonic() + EXIT_WAIT_S
    for job in list(_threads.here()):
        job.join(max(0.0, give_up_at_s - time.monotonic()))


atexit.register(_let_them_end)
