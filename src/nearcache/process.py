"""State that belongs to the process: made once per key, whoever asks first.

Django makes a new backend object per thread and per asyncio task, so nothing dear may live
on one. What is here survives a fork, as shared mappings do.

So an object with sockets must renew itself in the child: it registers with
``os.register_at_fork`` what forgets its parent's connections (closing, never shutting them
down) and its locks, as :class:`nearcache.engines.redis.line.SharedLine` does. Or it is kept in
a table that forks empty, as in :func:`nearcache.engines.redis.pool.once_here`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")

_made: dict[Hashable, Any] = {}
_lock = threading.Lock()


def once(key: Hashable, make: Callable[[], T]) -> T:
    """What ``make`` returned when it was first called for ``key``; errors are not kept.

    ``make`` runs under this module's lock: it must not come back here.
    """
    try:
        found: T = _made[key]
    except KeyError:
        with _lock:
            if key not in _made:
                _made[key] = make()
            found = _made[key]
    return found


def _after_fork() -> None:
    # Another thread of the parent may have held the lock; that thread is not in this process.
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
