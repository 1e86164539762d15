"""Caches with one fault each. The lab must notice every one of them."""

from __future__ import annotations

from typing import Any

from django.core.cache.backends.locmem import LocMemCache


class DropsSomeSets(LocMemCache):
    """Every tenth set is lost. The first few, which the canary makes, are not."""

    sets = 0

    def set(self, key: str, *arguments: Any, **options: Any) -> None:
        self.sets += 1
        if self.sets % 10:
            super().set(key, *arguments, **options)


class KeepsStaleCopies(LocMemCache):
    """Answers from its own copy once it has one, whatever others have written since."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.copies: dict[str, Any] = {}

    def get(self, key: str, *arguments: Any, **options: Any) -> Any:
        if key not in self.copies:
            self.copies[key] = super().get(key, *arguments, **options)
        return self.copies[key]


class StaleAfterTheCanary(KeepsStaleCopies):
    """As above, but it passes the canary: only reads under measurement show it."""

    def get(self, key: str, *arguments: Any, **options: Any) -> Any:
        if key.endswith(":canary"):
            return LocMemCache.get(self, key, *arguments, **options)
        return super().get(key, *arguments, **options)


class SwapsKeys(LocMemCache):
    """get_many hands out the right values under the wrong keys."""

    def get_many(self, keys: Any, version: int | None = None) -> dict[str, Any]:
        found = super().get_many(keys, version=version)
        return dict(zip(found, reversed(list(found.values())), strict=True))


class Damages(LocMemCache):
    """A field comes back changed."""

    def get(self, key: str, default: Any = None, version: int | None = None) -> Any:
        value = super().get(key, default, version)
        return {**value, "hour": "12:31"} if isinstance(value, dict) else value


class ForgetsToDelete(LocMemCache):
    def delete(self, key: str, version: int | None = None) -> bool:
        return key.endswith(":canary") and super().delete(key, version=version)


class CountsTwice(LocMemCache):
    def incr(self, key: str, delta: int = 1, version: int | None = None) -> int:
        return super().incr(key, 2 * delta, version=version)
