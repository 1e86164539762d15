"""State that belongs to the process: made once per key, whoever asks first.

Django makes a new backend object per thread and per asyncio task, so nothing dear may live
on one. What is here survives a fork, as shared mappings do.

So an object with sockets must renew itself in the child: it registers with
``os.register_at_fork`` what forgets its parent's connections (closing, never shutting them
down) and its locks, as :class:`nearcache.engines.redis.line.SharedLine` does. Or it is kept in
a table that forks empty, as in :func:`nearcache.engines.redis.pool.once_here`.

Nor may a lock be kept as it was made: ``gunicorn -k gevent --preload`` imports and forks first,
and patches ``threading`` in the child. A native lock that a greenlet waits for stops them all;
a native ``RLock`` lets all of them in. What is kept is a :class:`Mutex`.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")

_mutexes: weakref.WeakSet[Mutex] = weakref.WeakSet()


class Mutex:
    """``with mutex.now():`` holds a lock of the kind that ``threading`` makes now.

    It is another one in a forked child, and after gevent has patched ``threading``.
    """

    def __init__(self, *, reentrant: bool = False) -> None:
        self._reentrant = reentrant
        self._locks: dict[object, Any] = {}
        _mutexes.add(self)

    def now(self) -> Any:
        kind = threading.Lock
        lock = self._locks.get(kind)
        if lock is None:
            made = threading.RLock() if self._reentrant else kind()
            lock = self._locks.setdefault(kind, made)
        return lock


_made: dict[Hashable, Any] = {}
_mutex = Mutex()


def once(key: Hashable, make: Callable[[], T]) -> T:
    """What ``make`` returned when it was first called for ``key``; errors are not kept.

    ``make`` runs under this module's lock: it must not come back here.
    """
    try:
        found: T = _made[key]
    except KeyError:
        with _mutex.now():
            if key not in _made:
                _made[key] = make()
            found = _made[key]
    return found


def _after_fork() -> None:
    # Another thread of the parent may have held one; that thread is not in this process.
    for mutex in list(_mutexes):
        mutex._locks.clear()


os.register_at_fork(after_in_child=_after_fork)
