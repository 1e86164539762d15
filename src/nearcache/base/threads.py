"""Starting a thread, and telling which thread runs.

``threading.Thread.start`` waits until the thread runs. Under gevent that lets other greenlets run.
And a signal handler that raises during the wait leaves a lock held, which the new thread needs to
begin. :func:`start` does not wait: it starts the thread, or raises.

The number of a thread that has ended (``threading.get_ident``) is given to another thread.
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
    # Looked up at every call: gevent may have patched it since the import.
    _thread.start_new_thread(_begin, (work, name))


def _begin(work: Callable[[], None], name: str) -> None:
    # No signal handler runs in this thread. The thread made here has a name, and until it ends a
    # place in threading's lists.
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the system gives no other thread, so this one does the work
        work()


class Sole:
    """Work that one thread does at a time. Any caller that needs the work begins it.

    ``who`` names the thread, and is empty while there is none. ``setdefault`` takes the place. A
    thread that is not named there ends. An interrupt may strike off a thread, as the interrupted
    caller cannot tell whether the thread has begun; that thread takes the place again. So it cannot
    come about that no thread works and none is begun.
    """

    def __init__(self, work: Callable[[object], None], name: str) -> None:
        self._work = work
        self._name = name
        self.who: dict[int, object] = {}

    def begin(self) -> None:
        """Begins the work unless a thread does it; RuntimeError if the system gives no thread."""
        me = object()
        # `setdefault` and the start happen between two instructions of Python. An interrupt
        # between the two would leave the place taken for ever, and no thread at work.
        there = map(self.who.setdefault, (0,), (me,))
        mine = filter(partial(operator.is_, me), there)
        try:
            list(map(partial(_thread.start_new_thread, self._begin), zip(mine)))
        except BaseException:
            self.leave()
            raise

    def is_done_by(self, me: object) -> bool:
        """True if ``me`` has the place. A thread that lost an empty place takes it again."""
        return self.who.setdefault(0, me) is me

    def leave(self) -> None:
        """Empties the place: the next caller that needs the work begins it."""
        self.who.pop(0, None)

    def _begin(self, me: object) -> None:
        _begin(lambda: self._work_as(me), self._name)

    def _work_as(self, me: object) -> None:
        try:
            self._work(me)
        finally:
            if self.who.get(0) is me:  # an interrupt under gevent ended it, not its own work
                self.leave()
                with contextlib.suppress(RuntimeError):
                    self.begin()


class _Here:
    """One thread or greenlet."""

    __slots__ = ("__weakref__",)


_locals: dict[object, Any] = {}
"""``threading.local`` objects by their kind, which gevent changes."""


def this_thread() -> object:
    """The thread (greenlet) that runs, as an object that dies with it."""
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
    # In a thread without a loop `current_task` raises, which takes ten times as long as this look.
    return asyncio.current_task() if asyncio._get_running_loop() is not None else None
