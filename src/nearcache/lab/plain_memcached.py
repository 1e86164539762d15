"""python-memcached as a cache backend, for comparison with its successors.

Django removed its own adapter in 4.1. This one is as thin as that was and takes no
position on errors: python-memcached answers None or 0 for a server that is away, which
is exactly what the canary of the lab must catch. Not meant for production.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from typing import Any

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache


class PlainMemcachedCache(BaseCache):
    def __init__(self, location: str, params: Mapping[str, Any]) -> None:
        super().__init__(dict(params))
        import memcache

        # The library's own default is protocol 0, the ASCII pickle of Python 1.
        self._client: Any = memcache.Client([location], pickleProtocol=pickle.HIGHEST_PROTOCOL)

    def get(self, key: str, default: Any = None, version: int | None = None) -> Any:
        value = self._client.get(self.make_and_validate_key(key, version=version))
        return default if value is None else value

    def set(
        self,
        key: str,
        value: Any,
        timeout: float | None = DEFAULT_TIMEOUT,
        version: int | None = None,
    ) -> None:
        raw_key = self.make_and_validate_key(key, version=version)
        self._client.set(raw_key, value, self._seconds(timeout))

    def add(
        self,
        key: str,
        value: Any,
        timeout: float | None = DEFAULT_TIMEOUT,
        version: int | None = None,
    ) -> bool:
        raw_key = self.make_and_validate_key(key, version=version)
        return bool(self._client.add(raw_key, value, self._seconds(timeout)))

    def delete(self, key: str, version: int | None = None) -> bool:
        return bool(self._client.delete(self.make_and_validate_key(key, version=version)))

    def get_many(self, keys: Iterable[str], version: int | None = None) -> dict[str, Any]:
        by_raw_key = {self.make_and_validate_key(key, version=version): key for key in keys}
        found = self._client.get_multi(list(by_raw_key))
        return {by_raw_key[raw_key]: value for raw_key, value in found.items()}

    def incr(self, key: str, delta: int = 1, version: int | None = None) -> int:
        value = self._client.incr(self.make_and_validate_key(key, version=version), delta)
        if value is None:
            raise ValueError(f"Key {key!r} not found")
        return int(value)

    def close(self, **kwargs: Any) -> None:
        """Keep the connection: the old adapter did not, and reconnecting is not the question."""

    def _seconds(self, timeout: float | None) -> int:
        chosen = self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout
        return 0 if chosen is None else int(chosen)
