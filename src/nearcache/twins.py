"""Django's ``a*`` methods for backends whose own methods are native: each calls its twin.

For engines whose calls take microseconds on this host. Django's own ``a*`` methods hand
every call to a thread, which costs more than the call and queues behind the others. A
backend over :class:`~nearcache.adapter.EngineCache` has real twins and needs none of this.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django.core.cache.backends.base import DEFAULT_TIMEOUT

if TYPE_CHECKING:
    from nearcache.extras import Extras as Base
else:
    Base = object


class AsyncTwins(Base):
    """What BaseCache has and :class:`~nearcache.extras.Extras` has not, awaitable."""

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

    async def adecr(self, key: Any, delta: int = 1, version: int | None = None) -> Any:
        return self.decr(key, delta, version)
