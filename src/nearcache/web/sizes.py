"""How many bytes a value takes where a cache keeps it: the articles' "size of data saved".

Asked of the store itself where its adapter lets us; the length of the pickle otherwise.
It is the value alone: no key, and nothing of what the server adds.
"""

from __future__ import annotations

import os
import pickle
from typing import Any

from django.core.cache.backends.filebased import FileBasedCache
from django.core.cache.backends.locmem import LocMemCache


def stored_bytes(cache: Any, key: str, value: Any) -> int | None:
    """None if it is not there any more. Raises what the cache raises."""
    if isinstance(cache, LocMemCache):
        found = cache._cache.get(cache.make_key(key))  # type: ignore[attr-defined]
        return None if found is None else len(found)
    if isinstance(cache, FileBasedCache):
        return os.stat(cache._key_to_file(key)).st_size  # type: ignore[attr-defined]
    if hasattr(cache, "engine") and hasattr(cache, "_raw_key"):  # nearcache's own
        raw = cache.engine.get(cache._raw_key(key, None))
        return None if raw is None else len(raw)
    redis = _redis_client(cache)
    if redis is not None:
        return int(redis.strlen(str(cache.make_key(key)))) or None
    return len(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


def _redis_client(cache: Any) -> Any | None:
    """redis-py's client behind django-redis and behind Django's own backend."""
    if type(cache).__module__ == "django.core.cache.backends.redis":
        return cache._cache.get_client()
    client: Any = getattr(cache, "client", None)
    return client.get_client() if hasattr(client, "get_client") else None
