"""Computing behind a request, and what the log says of computations that fail.

A refresh of a stale value runs in a daemon thread (under gevent a greenlet) of its own, or as
a task of the event loop that asked. At most :data:`MAX_RUNNING` run at a time in a process:
what does not find room is left to the next reader, who serves the stale value as well. A
thread each, rather than a pool: refreshes are rare, a pool would need somebody to end it, and
a fork leaves nothing to repair but a number.

Such a thread starts with no context: no request, no active language, no transaction. The
database connections that it opened are closed when it ends.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

from nearcache.keys import decode_key
from nearcache.process import Mutex

logger = logging.getLogger("nearcache.stampede")

MAX_RUNNING = 8
EXIT_WAIT_S = 1.0
FAILING_MAX = 1024

_tasks: set[asyncio.Task[None]] = set()  # the loop itself refers to its tasks weakly
_threads: set[threading.Thread] = set()
_mutex = Mutex()


def in_thread(work: Callable[[], None]) -> bool:
    """Calls ``work`` in the background; False if too many run already. ``work`` does not raise."""
    thread = threading.Thread(target=_worked, args=(work,), name="nearcache-refresh", daemon=True)
    with _mutex.now():
        if len(_threads) >= MAX_RUNNING:
            return False
        _threads.add(thread)
    try:
        thread.start()
    except RuntimeError:  # no more threads, or the interpreter is ending
        with _mutex.now():
            _threads.discard(thread)
        return False
    return True


def in_task(work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
    """The same in the running event loop."""
    if len(_tasks) >= MAX_RUNNING:
        # Tasks of a loop that was closed under them never say that they are done.
        for task in [each for each in _tasks if each.get_loop().is_closed()]:
            _tasks.discard(task)
        if len(_tasks) >= MAX_RUNNING:
            return False
    task = asyncio.get_running_loop().create_task(work())
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return True


def _worked(work: Callable[[], None]) -> None:
    try:
        work()
    finally:
        if "django.db" in sys.modules:
            sys.modules["django.db"].connections.close_all()  # those of this thread
        with _mutex.now():
            _threads.discard(threading.current_thread())


class Failing:
    """Which keys fail to be computed: one line when it begins, one when it is over."""

    def __init__(self) -> None:
        self._keys: OrderedDict[bytes, None] = OrderedDict()
        self._mutex = Mutex()

    def began(self, raw_key: bytes, error: Exception) -> None:
        with self._mutex.now():
            known = raw_key in self._keys
            self._keys[raw_key] = None
            if len(self._keys) > FAILING_MAX:
                self._keys.popitem(last=False)
        if not known:
            logger.warning(
                "%r cannot be computed anew (%s); what is known is served until it can,"
                " or until its grace is over",
                decode_key(raw_key),
                type(error).__name__,
                exc_info=error,
            )

    def over(self, raw_key: bytes) -> None:
        if raw_key not in self._keys:
            return
        with self._mutex.now():
            known = self._keys.pop(raw_key, 0) is None
        if known:
            logger.warning("%r is computed again", decode_key(raw_key))


def _after_fork() -> None:
    _threads.clear()
    _tasks.clear()


def _let_them_end() -> None:
    # A daemon thread inside native code when the interpreter goes away can take it down hard.
    give_up_at_s = time.monotonic() + EXIT_WAIT_S
    for thread in list(_threads):
        thread.join(max(0.0, give_up_at_s - time.monotonic()))


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_let_them_end)
