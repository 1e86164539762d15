"""Where one waits to be told: a thread's lock, or a greenlet's switch.

A seat has two methods of ``threading.Lock``, and starts taken: ``acquire(timeout=seconds)``
waits until somebody, of whatever thread, has called ``release``; True if so.

For threads it is that lock. gevent's replacement of it costs 15 us per wait with a timeout,
where a crowd of greenlets needs one per request; switching by hand costs two.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any


class GreenSeat:
    """For greenlets of a process that gevent has patched."""

    __slots__ = ("_greenlet", "_hub", "_late", "_told")

    def __init__(self) -> None:
        self._greenlet: Any = None
        self._hub: Any = None
        self._told = self._late = False

    def acquire(self, timeout: float) -> bool:
        if not self._told:
            self._park(timeout)
        told, self._told = self._told, False
        return told

    def release(self) -> None:
        self._told = True
        hub = self._hub
        if self._greenlet is None:
            return  # not waiting yet, or not any more
        if hub is _gevent.get_hub():
            hub.loop.run_callback(self._resume)
        else:
            with contextlib.suppress(Exception):  # that thread has ended, and its loop with it
                hub.loop.run_callback_threadsafe(self._resume)

    def _park(self, timeout: float) -> None:
        self._late = False
        hub = self._hub = _gevent.get_hub()
        timer = hub.loop.timer(timeout)
        timer.start(self._time_out)
        self._greenlet = _gevent.getcurrent()
        try:
            # Another thread may release between the check and the switch: the callback that
            # it leaves with the hub cannot run before we are in the hub.
            while not (self._told or self._late):
                hub.switch()
        finally:
            self._greenlet = None
            timer.stop()
            timer.close()

    def _time_out(self) -> None:
        self._late = True
        self._resume()

    def _resume(self) -> None:
        """Runs in the hub."""
        if self._greenlet is not None:
            self._greenlet.switch()


def release_all(seats: list[Any]) -> list[Any]:
    """Tells all of them; a list of those greenlets who have not come yet, which empties itself."""
    if seats and type(seats[0]) is GreenSeat:
        return _release_greenlets(seats)
    for seat in seats:
        with contextlib.suppress(RuntimeError):  # told already
            seat.release()
    return []


def _release_greenlets(seats: list[GreenSeat]) -> list[GreenSeat]:
    """One callback for all who wait in this thread."""
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


def _resume_all(hub: Any, seats: list[GreenSeat]) -> None:
    try:
        while seats:
            seats.pop()._resume()
    finally:
        if seats:  # a bare greenlet's error came out here, and is not the others'
            hub.loop.run_callback(_resume_all, hub, seats)


def let_them_come() -> None:
    """Lets the greenlets run who have been told to."""
    _gevent.sleep(0)


def new_seat() -> Any:
    """A seat of the kind that fits, as the process is patched now."""
    if threading.Lock is not _known:
        _learn()
    return _make()


_gevent: Any = None
_known: Any = None
_make: Callable[[], Any]


def _learn() -> None:
    global _gevent, _known, _make  # noqa: PLW0603 - what the process is, learnt late
    lock = threading.Lock
    if getattr(lock, "__module__", "").startswith("gevent"):
        import gevent

        _gevent, _make = gevent, GreenSeat
    else:
        _make = _taken_lock
    _known = lock


def _taken_lock() -> Any:
    lock = threading.Lock()
    lock.acquire()
    return lock
