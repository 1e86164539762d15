"""A lock for async code only: what ``cache.alock`` gives.

It is a :class:`nearcache.coordination.locks.Lock`, whose plain methods would block the event loop.
Here the methods with the plain names are awaited, as those of redis-py's async locks are::

    async with cache.alock("nightly", timeout=30, wait=5) as lock:
        await write(rows, fence=lock.token)

    lock = cache.alock("nightly")
    if await lock.acquire(blocking=False): ...
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from nearcache.coordination.locks import Lock


class AsyncLock:
    """A lock whose methods are awaited; making one asks nobody."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock

    @property
    def token(self) -> int | None:
        return self._lock.token

    @property
    def lost(self) -> bool:
        return self._lock.lost

    def check(self) -> None:
        """Raises LockLost if the lock was lost; asks nobody."""
        self._lock.check()

    async def acquire(
        self, *, blocking: bool = True, blocking_timeout: float | None = None
    ) -> bool:
        return await self._lock.aacquire(blocking=blocking, blocking_timeout=blocking_timeout)

    async def renew(self, timeout: float | None = None) -> None:
        await self._lock.arenew(timeout)

    async def release(self) -> None:
        await self._lock.arelease()

    async def __aenter__(self) -> Self:
        await self._lock.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._lock.__aexit__(kind, error, traceback)
