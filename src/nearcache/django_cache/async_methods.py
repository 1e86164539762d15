"""Django's ``a*`` methods for backends whose own methods are native: each calls its twin.

For engines whose calls take microseconds on this host. Django's own ``a*`` methods hand
every call to a thread, which costs more than the call and queues behind the others. A
backend over :class:`~nearcache.django_cache.adapter.EngineCache` has real twins and needs none of
this.

What looks at the whole store takes longer: the loop has its turn after every slice of it, and
the one walk that has no slices, a tool's, goes to a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django.core.cache.backends.base import DEFAULT_TIMEOUT

if TYPE_CHECKING:
    from nearcache.django_cache.extra_methods import ExtraMethods as Base
else:
    Base = object

SLICE_ITEMS = 1000
"""How many items are looked at between two turns of the loop: well under a millisecond."""


class AsyncMethods(Base):
    """What BaseCache has and :class:`~.extra_methods.ExtraMethods` has not, to be awaited."""

    async def aadd(
        self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> bool:
        return self.add(key, value, timeout, version)

    async def aget(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        return self.get(key, default, version)

    async def aset(
        self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> None:
        self.set(key, value, timeout, version)

    async def atouch(
        self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> bool:
        return self.touch(key, timeout, version)

    async def adelete(self, key: Any, version: int | None = None) -> bool:
        return self.delete(key, version)

    async def aget_many(self, keys: Iterable[Any], version: int | None = None) -> dict[Any, Any]:
        return self.get_many(keys, version)

    async def aset_many(
        self,
        data: dict[Any, Any],
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
    ) -> list[Any]:
        return self.set_many(data, timeout, version)

    async def adelete_many(self, keys: Iterable[Any], version: int | None = None) -> None:
        self.delete_many(keys, version)

    async def ahas_key(self, key: Any, version: int | None = None) -> bool:
        return self.has_key(key, version)

    async def aincr(self, key: Any, delta: int = 1, version: int | None = None) -> Any:
        return self.incr(key, delta, version)

    # -- walks through the whole store -------------------------------------------------------

    async def adelete_pattern(self, pattern: str, version: int | None = None) -> int:
        """Deletes the keys that match, in slices; returns how many."""
        space = self._key_space(version)
        return await self._adelete_matching(space.prefix or b"", space.glob(pattern))

    async def aclear(self) -> None:
        own = self._own_prefix()
        if own:
            await self._adelete_matching(own, None)
        else:
            self.engine.clear()

    async def acheck(self) -> list[str]:
        """Reads the whole store in a thread; every line is a broken invariant."""
        return await asyncio.to_thread(self.engine.check)

    async def _adelete_matching(self, prefix: bytes, glob: bytes | None) -> int:
        cursor = deleted = 0
        while True:
            cursor, items = self.engine.scan(cursor, SLICE_ITEMS, prefix=prefix, glob=glob)
            deleted += self.engine.delete_many([item[0] for item in items])
            if not cursor:
                return deleted
            await self.clock.asleep(0)
