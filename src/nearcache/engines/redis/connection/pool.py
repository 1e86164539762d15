"""Connections for one caller each: for blocking commands, transactions, Pub/Sub and ``client``.

Everything else shares one connection (:mod:`.sync_connection`, :mod:`.async_connection`). Here are
redis-py's connections in redis-py's pools, which are made bounded *and* fair. A caller that finds
all connections taken queues, first come first served, for ``Target.pool_timeout_s`` at most. Then
it gets :class:`PoolTimeout`. There is one pool per process and server, and for asyncio one per loop
and server.

A forked child has pools of its own. Idle connections are closed at the end of the interpreter, and
of an event loop.
"""

from __future__ import annotations

import atexit
import contextlib
import inspect
import threading
import weakref
from typing import Any

import redis
import redis.asyncio

from nearcache import errors
from nearcache.base.per_process import Mutex, generation, when_forked
from nearcache.engines.redis.connection.connect import put_away
from nearcache.engines.redis.connection.fair_semaphore import AsyncFairSemaphore, FairSemaphore


class PoolTimeout(errors.PoolTimeout, redis.ConnectionError):
    """No connection of the pool came free in time. Callers of redis-py expect redis-py's error."""


def too_late(limit: int, wait_s: float, waiting: int) -> PoolTimeout:
    """The error to raise."""
    return PoolTimeout(
        f"all {limit} connections of the pool stayed taken for {wait_s:g} s, and {waiting} more"
        " callers wait: give connections back sooner, or raise pool_connections"
    )


_PARAMETERS = inspect.signature(redis.ConnectionPool.get_connection).parameters
# redis-py 5.2 wants the command's name, and does nothing with it. Later ones warn of a name.
_NAME = ("_",) if _PARAMETERS["command_name"].default is inspect.Parameter.empty else ()


class FairPool(redis.ConnectionPool):
    """redis-py's pool with ``limit`` connections at most, and a queue for ``wait_s`` seconds."""

    limit = 50
    wait_s = 5.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._process = generation()
        self._renewing = Mutex()
        super().__init__(*args, **{"max_connections": self.limit} | kwargs)
        _pools.add(self)

    def _checkpid(self) -> None:
        # redis-py calls this before anything else. Its own method waits for a lock, which another
        # thread of the parent may have held at the moment of the fork.
        if self._process != generation():
            with self._renewing.now():
                if self._process != generation():
                    self._forget()

    def reset(self) -> None:
        # redis-py calls this from its constructor, and from a child that finds itself forked.
        self._seated: set[Any] = set()
        self._gate = FairSemaphore(self.max_connections)
        super().reset()

    def get_connection(self, command_name: Any = None, *keys: Any, **options: Any) -> Any:
        self._checkpid()
        gate = self._gate
        if not gate.enter(self.wait_s):
            raise too_late(self.max_connections, self.wait_s, gate.waiting)
        try:
            connection = super().get_connection(*_NAME)
        except BaseException:
            gate.leave()
            raise
        self._seated.add(connection)
        return connection

    def release(self, connection: Any) -> None:
        # super().get_connection releases what it could not connect, which has no seat yet.
        seated, gate = connection in self._seated, self._gate
        self._seated.discard(connection)
        try:
            super().release(connection)
        finally:
            if seated:
                gate.leave()

    def put_away(self) -> None:
        """In a forked child: no copy of a greenlet reads from the parent's connections any more."""
        seated = list(self._seated)  # before the comparison: another thread may take new ones
        if self._process != generation():
            for connection in seated:
                put_away(connection._sock)  # there is no public way

    def _forget(self) -> None:
        """In a forked child: lets go of the parent's connections, without a QUIT."""
        self._lock = threading.RLock()
        self._fork_lock = threading.RLock()
        self.reset()
        self._process = generation()


class AsyncFairPool(redis.asyncio.ConnectionPool):
    """:class:`FairPool` for the tasks of one loop."""

    limit = 50
    wait_s = 5.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"max_connections": self.limit} | kwargs)
        self._seated: set[Any] = set()
        self._gate = AsyncFairSemaphore(self.max_connections)

    async def get_connection(self, command_name: Any = None, *keys: Any, **options: Any) -> Any:
        if not await self._gate.enter(self.wait_s):
            raise too_late(self.max_connections, self.wait_s, self._gate.waiting)
        try:
            connection = await super().get_connection(*_NAME)  # type: ignore[no-untyped-call]
        except BaseException:
            self._gate.leave()
            raise
        self._seated.add(connection)
        return connection

    async def release(self, connection: Any) -> None:
        seated = connection in self._seated
        self._seated.discard(connection)
        try:
            await super().release(connection)
        finally:
            if seated:
                self._gate.leave()


# ---- all of this process


_pools: weakref.WeakSet[FairPool] = weakref.WeakSet()


@when_forked
def _put_away() -> None:
    for pool in list(_pools):
        pool.put_away()


def close_all() -> None:
    """Closes the connections that nobody has taken; the next request makes new ones."""
    for pool in list(_pools):
        with contextlib.suppress(redis.RedisError, OSError):
            pool.disconnect(inuse_connections=False)


atexit.register(close_all)
