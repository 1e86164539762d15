"""A cache that is right when it is proven, and wrong when a site is warmed up with it."""

from __future__ import annotations

from typing import Any

from django.core.cache.backends.locmem import LocMemCache


class AnswersForAnotherKey(LocMemCache):
    def set(self, key: str, *arguments: Any, **options: Any) -> None:
        if ":traffic:" in key or ":fill:" in key:
            key = key.rpartition(":")[0]
        super().set(key, *arguments, **options)

    def get(self, key: str, *arguments: Any, **options: Any) -> Any:
        if ":traffic:" in key or ":fill:" in key:
            key = key.rpartition(":")[0]
        return super().get(key, *arguments, **options)
