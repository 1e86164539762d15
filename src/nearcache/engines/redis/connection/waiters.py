"""Where a caller waits to be told: a thread's lock, or a greenlet's switch.

A seat has two methods of ``threading.Lock``, and is taken when it is made.
``acquire(timeout=seconds)`` waits until a caller of any thread calls ``release``, and is True if
that came in time.

For threads a seat is such a lock. For greenlets it is not: gevent's replacement of the lock costs
15 us per wait with a timeout, and a crowd of greenlets needs one wait per request. Switching by
hand costs 2 us. A wait has no timer of its own: a :class:`_Watch` looks every tenth of a second
for seats whose time is over.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable
from typing import Any


class GreenletWaiter:
    """For greenlets of a process that gevent has patched."""

    __slots__ = ("_greenlet", "_hub", "_told", "late")

    def __init__(self) -> None:
        self._greenlet: Any = None
        self._hub: Any = None
        self._told = self.late = False

    def acquire(self, timeout: float) -> bool:
        if not self._told:
            self._park(timeout)
        told, self._told = self._told, False
        return told

    def release(self) -> None:
        self._told = True
        hub = self._hub
        if self._greenlet is None:
            return  # its greenlet does not wait yet, or not any more
        if hub is _gevent.get_hub():
            hub.loop.run_callback(self._resume)
        else:
            with contextlib.suppress(Exception):  # that thread has ended, and its loop with it
                hub.loop.run_callback_threadsafe(self._resume)

    def _park(self, timeout: float) -> None:
        self.late = False
        hub = self._hub = _gevent.get_hub()
        waiting = _watch_of(hub).until(timeout)
        waiting.add(self)
        self._greenlet = _gevent.getcurrent()
        try:
            # Another thread may release between the check and the switch. It then leaves a
            # callback with the hub, which cannot run before we are in the hub.
            while not (self._told or self.late):
                hub.switch()
        finally:
            self._greenlet = None
            waiting.discard(self)

    def _resume(self) -> None:
        """Runs in the hub."""
        if self._greenlet is not None:
            self._greenlet.switch()


class _Watch:
    """The time limits of all seats of one hub. A limit is met two ticks late at most."""

    def __init__(self, hub: Any) -> None:
        self.hub = hub
        self._timer: Any = None
        self._now = 0
        self._waiting: dict[int, set[GreenletWaiter]] = {}

    def until(self, timeout: float) -> set[GreenletWaiter]:
        """The seats whose time ends in the same tick."""
        tick = self._now + 1 + math.ceil(timeout / TICK_S)
        waiting = self._waiting.get(tick)
        if waiting is None:
            waiting = self._waiting[tick] = set()
            if self._timer is None:
                _watches[id(self.hub)] = self
                self._timer = self.hub.loop.timer(TICK_S, TICK_S)
                self._timer.start(self._tick)
        return waiting

    def _tick(self) -> None:
        self._now += 1
        late = list(self._waiting.pop(self._now, ()))
        for seat in late:
            seat.late = True
        if late:
            self.hub.loop.run_callback(_resume_all, self.hub, late)
        if not any(self._waiting.values()):  # a timer would keep the loop from ending
            self._waiting.clear()
            self._timer.stop()
            self._timer.close()
            self._timer = None
            _watches.pop(id(self.hub), None)


_watches: dict[int, _Watch] = {}
_last: _Watch | None = None


def _watch_of(hub: Any) -> _Watch:
    global _last  # noqa: PLW0603 - there is one hub in nearly every process
    watch: _Watch | None = _last  # read once: another thread may put its own there
    if watch is None or watch.hub is not hub:
        watch = _watches.get(id(hub))
        if watch is None or watch.hub is not hub:
            watch = _Watch(hub)
        _last = watch
    return watch


def release_all(seats: list[Any]) -> list[Any]:
    """Tells all seats. Returns the greenlets that have not run yet, a list that empties itself."""
    if seats and type(seats[0]) is GreenletWaiter:
        return _release_greenlets(seats)
    for seat in seats:
        try:  # noqa: SIM105 - `suppress` is Python, and this is done for every request
            seat.release()
        except RuntimeError:  # it was told before
            pass
    return []


def _release_greenlets(seats: list[GreenletWaiter]) -> list[GreenletWaiter]:
    """Tells the seats of this thread by one callback."""
    here = _gevent.get_hub()
    near = []
    for seat in reversed(seats):
        if seat._hub is here:
            seat._told = True
            near.append(seat)
        else:
            seat.release()
    if near:
        here.loop.run_callback(_resume_all, here, near)
    return near


def _resume_all(hub: Any, seats: list[GreenletWaiter]) -> None:
    try:
        while seats:
            seats.pop()._resume()
    finally:
        if seats:  # the error of a bare greenlet came out here; the others still have to run
            hub.loop.run_callback(_resume_all, hub, seats)


def let_them_come() -> None:
    """Lets the greenlets run that have been told."""
    _gevent.sleep(0)


def new_seat() -> Any:
    """A seat for threads, or for greenlets if gevent has patched the process."""
    if threading.Lock is not _known:
        _learn()
    return _make()


TICK_S = 0.1

_gevent: Any = None
_known: Any = None
_make: Callable[[], Any]


def _learn() -> None:
    global _gevent, _known, _make  # noqa: PLW0603 - what the process is, learnt late
    lock = threading.Lock
    if getattr(lock, "__module__", "").startswith("gevent"):
        import gevent

        _gevent, _make = gevent, GreenletWaiter
    else:
        _make = _taken_lock
    _known = lock


def _taken_lock() -> Any:
    lock = threading.Lock()
    lock.acquire()
    return lock
