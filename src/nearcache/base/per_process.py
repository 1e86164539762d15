"""What belongs to a process, and how a forked child notices that it is another process.

A fork need not run any hook of Python's: by default uWSGI's runs none, and C code runs none. So no
code here waits to be told. :func:`generation` is a number that a forked child does not share with
its parent; asking for it costs one load. Code that has something of one process (a connection, a
thread, a lock, a lease, random numbers) keeps the number beside it, and compares the two at each
use. In another process it makes a new thing, *as a whole*: a lock that a thread of the parent held
at the moment of the fork stays held in the child for ever, and so does what is behind that lock.

    once(key, make)     survives a fork: settings, engines, tables
    once_here(...)      is made anew in each child
    OfProcess(make)     likewise, without a key
    Mutex()             is a lock of this process, of the kind that ``threading`` makes now

The first caller of :func:`generation` in a child also calls what was given to :func:`when_forked`,
which puts descriptors of the parent away. Correctness never depends on that: it is tidiness. Where
hooks of Python's run, ours only calls :func:`generation`.

Nor may a lock be kept as it was made. ``gunicorn -k gevent --preload`` imports and forks first, and
patches ``threading`` in the child. There a native lock that one greenlet waits for stops all
greenlets, and a native ``RLock`` lets all of them in. So code keeps a :class:`Mutex`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random as _random
import threading
from collections.abc import Callable, Hashable
from posix import close  # gevent's `os.close` leaves it to a loop, which may not run any more
from typing import Any, Generic, TypeVar

from nearcache import _core

__all__ = [
    "Mutex",
    "OfProcess",
    "chance",
    "generation",
    "nowhere",
    "once",
    "once_here",
    "unique_number",
    "when_forked",
]

T = TypeVar("T")

generation = _core.generation


class OfProcess(Generic[T]):
    """``here()`` gives the one thing that ``make`` made in this very process."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: dict[int, T] = {}

    def here(self) -> T:
        number = generation()
        try:
            return self._made[number]
        except KeyError:
            # Of two threads that come at once, one thread makes its thing in vain.
            made = self._made.setdefault(number, self._make())
        for other in list(self._made):
            if other != number:
                self._made.pop(other, None)
        return made


class Mutex:
    """``with mutex.now():`` holds a lock of the kind that ``threading`` makes now.

    A forked child has a lock of its own, and so has a process after gevent has patched it.
    """

    def __init__(self, *, reentrant: bool = False) -> None:
        self._reentrant = reentrant
        self._locks: OfProcess[dict[object, Any]] = OfProcess(dict)

    def now(self) -> Any:
        kind, locks = threading.Lock, self._locks.here()
        lock = locks.get(kind)
        if lock is None:
            made = threading.RLock() if self._reentrant else kind()
            lock = locks.setdefault(kind, made)
        return lock


_made: dict[Hashable, Any] = {}
_made_here: OfProcess[dict[Hashable, Any]] = OfProcess(dict)
_making, _making_here = Mutex(reentrant=True), Mutex(reentrant=True)


def once(key: Hashable, make: Callable[[], T]) -> T:
    """What ``make`` returned when it was first called for ``key``; errors are not kept.

    ``make`` runs under a lock of this module. So ``make`` must wait for nobody, and must not log: a
    log handler has a lock of its own, and may use a cache. ``make`` may call :func:`once`, and so
    may what interrupts it (a signal handler, a finalizer): what was made first is kept.
    """
    return _first(_made, _making, key, make)


def once_here(key: Hashable, make: Callable[[], T]) -> T:
    """:func:`once` for this very process: for sockets, which a forked child must not keep.

    The lock is another one, so ``make`` may wait for a connection.
    """
    return _first(_made_here.here(), _making_here, key, make)


def _first(made: dict[Hashable, Any], making: Mutex, key: Hashable, make: Callable[[], T]) -> T:
    try:
        found: T = made[key]
    except KeyError:
        with making.now():
            if key not in made:
                made.setdefault(key, make())
            found = made[key]
    return found


_dice = OfProcess(_random.Random)


def chance() -> float:
    """From 0 to below 1. ``random`` itself goes on in each child with its parent's numbers."""
    return _dice.here().random()


def unique_number() -> int:
    """A random number from 1 to 2**63 - 1, of the system's: a forked child gets others."""
    return int.from_bytes(os.urandom(8)) >> 1 or 1


# ---- what the parent has


_putting_away: list[Callable[[], None]] = []


def when_forked(act: Callable[[], None]) -> Callable[[], None]:
    """Has ``act`` called once in each forked child, by the first call of :func:`generation` there.

    ``act`` must take no lock and wait for nothing. Nothing may depend on it: it may not be called.
    """
    _putting_away.append(act)
    return act


def nowhere(descriptor: int) -> None:
    """Makes a descriptor of the parent's lead to /dev/null, here and not in the parent.

    The number of a closed descriptor would be given out again, while a copy of an event loop or
    greenlet still reads from it. And a finalizer cannot shut down a socket that is not there.
    """
    flags = os.O_RDWR | os.O_CLOEXEC
    with contextlib.suppress(OSError):
        try:
            null = os.open(os.devnull, flags)
        except OSError as error:
            if error.errno == errno.EMFILE:
                close(descriptor)  # the only free number now, so the next to be given out
                os.open(os.devnull, flags)
            return
        try:
            os.dup2(null, descriptor, inheritable=False)
        finally:
            close(null)


def _forked() -> None:
    for act in _putting_away:
        act()


_core._when_forked(_forked)
os.register_at_fork(after_in_child=generation)
