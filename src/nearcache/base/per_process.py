"""What belongs to a process, and how a forked child notices that it is another one.

A fork need not run any hook of Python's: uWSGI's does not by default, nor does C code. So nobody
waits to be told. :func:`generation` is a number that a forked child does not share, at the price
of one load. Whoever has something of one process (a connection, a thread, a lock, a lease, random
numbers) keeps the number beside it, compares where it is used, and in another process takes a
new one, *as a whole*: a lock that a thread of the parent held at the moment of the fork stays held
in the child for ever, and so does what is behind it.

    once(key, make)     survives a fork: settings, engines, tables
    OfProcess(make)     made anew in each child
    Mutex()             a lock, of the kind that ``threading`` makes now, and of this process

The first who asks in a child also calls what was given to :func:`when_forked`: descriptors of
the parent are put away there. That is tidiness, and never what correctness hangs on. Where
Python's hooks run, asking is all that the one we have does.

Nor may a lock be kept as it was made: ``gunicorn -k gevent --preload`` imports and forks first,
and patches ``threading`` in the child. A native lock that a greenlet waits for stops them all;
a native ``RLock`` lets all of them in. What is kept is a :class:`Mutex`.
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
    "unique_number",
    "when_forked",
]

T = TypeVar("T")

generation = _core.generation


class OfProcess(Generic[T]):
    """``here()`` gives what ``make`` made in this very process, whoever asked first."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: dict[int, T] = {}

    def here(self) -> T:
        number = generation()
        try:
            return self._made[number]
        except KeyError:
            # Of two threads that come at once, one made it in vain.
            made = self._made.setdefault(number, self._make())
        for other in list(self._made):
            if other != number:
                self._made.pop(other, None)
        return made


class Mutex:
    """``with mutex.now():`` holds a lock of the kind that ``threading`` makes now.

    It is another one in a forked child, and after gevent has patched ``threading``.
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
_mutex = Mutex(reentrant=True)


def once(key: Hashable, make: Callable[[], T]) -> T:
    """What ``make`` returned when it was first called for ``key``; errors are not kept.

    ``make`` runs under this module's lock, so it must wait for nobody, and logs nothing: a log
    handler has a lock of its own, and may use a cache. It may come back here, as may what
    interrupts it (a signal handler, a finalizer): what was made first counts.
    """
    try:
        found: T = _made[key]
    except KeyError:
        with _mutex.now():
            if key not in _made:
                _made.setdefault(key, make())
            found = _made[key]
    return found


_dice = OfProcess(_random.Random)


def chance() -> float:
    """From 0 to below 1. ``random`` itself goes on in each child with its parent's numbers."""
    return _dice.here().random()


def unique_number() -> int:
    """A random number from 1 to 2**63 - 1, of the system's: a forked child gets others."""
    return int.from_bytes(os.urandom(8)) >> 1 or 1


# ---- the parent's


_putting_away: list[Callable[[], None]] = []


def when_forked(act: Callable[[], None]) -> Callable[[], None]:
    """Has it called in each forked child, once, as soon as anybody there asks who he is.

    It must take no lock, wait for nothing, and need not be called at all.
    """
    _putting_away.append(act)
    return act


def nowhere(descriptor: int) -> None:
    """Makes a descriptor of the parent's lead to /dev/null, here and not in the parent.

    Closed it would be given out again, while a copied event loop or greenlet still reads from
    it. Nor can a finalizer shut down what is not there.
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
