"""The ``a*`` methods: each calls its synchronous twin straight through.

For engines whose calls take microseconds on this host. Django's own ``a*`` methods hand
every call to a thread, which costs more than the call and queues behind the others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any

from django.core.cache.backends.base import DEFAULT_TIMEOUT

if TYPE_CHECKING:
    from nearcache.extras import Extras as Base
else:
    Base = object


class AsyncTwins(Base):
    """Everything of BaseCache and :class:`~nearcache.extras.Extras`, awaitable."""

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

    async def aincr_version(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        return self.incr_version(key, delta, version)

    async def adecr_version(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        return self.decr_version(key, delta, version)

    async def aclear(self) -> None:
        self.clear()

    async def aclose(self, **kwargs: Any) -> None:
        self.close(**kwargs)

    async def attl(self, key: Any, version: int | None = None) -> int | None:
        return self.ttl(key, version)

    async def apttl(self, key: Any, version: int | None = None) -> int | None:
        return self.pttl(key, version)

    async def aexpire(self, key: Any, timeout: Any, version: int | None = None) -> bool:
        return self.expire(key, timeout, version)

    async def apersist(self, key: Any, version: int | None = None) -> bool:
        return self.persist(key, version)

    async def agets(self, key: Any, version: int | None = None) -> tuple[Any, int] | None:
        return self.gets(key, version)

    async def acas(
        self,
        key: Any,
        value: Any,
        token: int,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
    ) -> bool:
        return self.cas(key, value, token, timeout, version)

    async def akeys(self, pattern: str = "*", version: int | None = None) -> list[str]:
        return self.keys(pattern, version)

    async def aiter_keys(
        self, pattern: str = "*", version: int | None = None
    ) -> AsyncIterator[str]:
        for key in self.iter_keys(pattern, version):
            yield key

    async def adelete_pattern(self, pattern: str, version: int | None = None) -> int:
        return self.delete_pattern(pattern, version)

    async def astats(self) -> dict[str, int]:
        return self.stats()

    async def acheck(self) -> list[str]:
        return self.check()
