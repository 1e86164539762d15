"""A bounded number of seats, given out first come first served.

    enter   takes a seat, or waits in the queue for one
    leave   gives a seat back: to the first of the queue, never past it

Nothing here takes a lock. The garbage collector may run a ``__del__`` in any thread, at any
allocation, and redis-py's finalizers give connections back. A lock that the interrupted thread
holds would never come free. The operations of ``deque`` are atomic, and that is enough.

*Rejected:* ``threading.Semaphore`` (a caller that comes at the right moment passes those that
wait); ``queue.LifoQueue``, which redis-py's blocking pool uses (it forgets the first in line).
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Any


class FairSemaphore:
    """For threads, and for greenlets where gevent has patched ``threading``."""

    def __init__(self, seats: int) -> None:
        self._free: deque[None] = deque([None] * seats)
        self._queue: deque[Any] = deque()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def enter(self, wait_s: float) -> bool:
        """True with a seat; False if none came free in time."""
        if not self._queue:
            try:
                self._free.pop()
            except IndexError:
                pass
            else:
                return True
        # Looked up now: gevent may have replaced `Lock` since the import.
        turn = threading.Lock()
        turn.acquire()
        self._queue.append(turn)
        self._seat()
        try:
            return turn.acquire(timeout=wait_s) or not self._gave_up(turn)
        except BaseException:  # a greenlet was killed, a signal handler raised
            if not self._gave_up(turn):
                self.leave()
            raise

    def leave(self) -> None:
        self._free.append(None)
        self._seat()

    def _seat(self) -> None:
        # A caller that adds a seat, or a waiter, looks for the other half afterwards. So of two
        # callers that come at the same time the later one finds both.
        while self._free and self._queue:
            try:
                self._free.pop()
            except IndexError:
                return
            try:
                turn = self._queue.popleft()
            except IndexError:
                self._free.append(None)
            else:
                turn.release()

    def _gave_up(self, turn: Any) -> bool:
        """False if the seat had been given before the caller could leave the queue."""
        try:
            self._queue.remove(turn)
        except ValueError:
            return False
        return True


class AsyncFairSemaphore:
    """For the tasks of one event loop."""

    def __init__(self, seats: int) -> None:
        self._free = seats
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    async def enter(self, wait_s: float) -> bool:
        """True with a seat; False if none came free in time."""
        if self._free and not self._queue:
            self._free -= 1
            return True
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await asyncio.wait([turn], timeout=wait_s)
        except asyncio.CancelledError:
            if turn.done():
                self.leave()
            raise
        finally:
            if not turn.done():
                self._queue.remove(turn)
        return turn.done()

    def leave(self) -> None:
        if self._queue:
            self._queue.popleft().set_result(None)
        else:
            self._free += 1
