"""Starting a thread, and who it is that runs.

``threading.Thread.start`` waits until the thread runs. That lets other greenlets run under
gevent, and a signal handler that raises there leaves a lock held which the new thread needs to
begin. :func:`start` waits for nothing: it either did, or raises.

The number of a thread (``threading.get_ident``) is given to another one when it has ended.
:func:`this_thread` is an object that is never another thread's.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import operator
import threading
from collections.abc import Callable
from functools import partial
from typing import Any


def start(work: Callable[[], None], name: str) -> None:
    """Calls ``work`` in a daemon thread (greenlet); RuntimeError if the system gives none."""
    # Looked up now: gevent may have patched it since the import.
    _thread.start_new_thread(_begin, (work, name))


def _begin(work: Callable[[], None], name: str) -> None:
    # Here no signal handler runs. A thread made in this one has a name, and a place in
    # threading's lists until it ends.
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:  # that was the last one the system gave
        work()


class Sole:
    """Work that one thread does at a time, begun by whoever needs it.

    ``who`` names that thread, and is empty while there is none; ``setdefault`` takes the place. A
    thread that is not named there ends. One that an interrupt has struck off, as nobody could
    tell whether it had begun, takes the place again. So nothing can be left in a state in which
    nobody works, and nobody begins.
    """

    def __init__(self, work: Callable[[object], None], name: str) -> None:
        self._work = work
        self._name = name
        self.who: dict[int, object] = {}

    def begin(self) -> None:
        """Begins it unless somebody is at it; RuntimeError if the system gives no thread."""
        me = object()
        # `setdefault` and the start happen between two instructions of Python: an interrupt
        # between them would leave a place that is taken, and nobody at work for ever.
        there = map(self.who.setdefault, (0,), (me,))
        mine = filter(partial(operator.is_, me), there)
        try:
            list(map(partial(_thread.start_new_thread, self._begin), zip(mine)))
        except BaseException:
            self.leave()
            raise

    def is_done_by(self, me: object) -> bool:
        """Whether the caller is the one; who has left comes in again if nobody else has."""
        return self.who.setdefault(0, me) is me

    def leave(self) -> None:
        """The next who needs the work begins it."""
        self.who.pop(0, None)

    def _begin(self, me: object) -> None:
        _begin(lambda: self._work_as(me), self._name)

    def _work_as(self, me: object) -> None:
        try:
            self._work(me)
        finally:
            if self.who.get(0) is me:  # not its own end: an interrupt, under gevent
                self.leave()
                with contextlib.suppress(RuntimeError):
                    self.begin()


class _Here:
    """One thread or greenlet."""

    __slots__ = ("__weakref__",)


_locals: dict[object, Any] = {}
"""``threading.local`` objects by their kind, which gevent changes."""


def this_thread() -> object:
    """The thread (greenlet) that runs: an object that dies with it."""
    kind = threading.local
    local = _locals.get(kind)
    if local is None:
        local = _locals.setdefault(kind, kind())
    try:
        return local.here
    except AttributeError:
        local.here = here = _Here()
        return here


def this_task() -> asyncio.Task[Any] | None:
    """The running task; None where a coroutine is driven without an event loop."""
    # Asked first: of a thread without a loop `current_task` raises, which takes ten times as long.
    return asyncio.current_task() if asyncio._get_running_loop() is not None else None
