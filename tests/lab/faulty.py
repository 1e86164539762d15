"""Caches and arms with one fault each. The lab must notice every one of them."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Mapping
from typing import Any

from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.redis import RedisCache

from nearcache.lab.arms.alias import AliasArm
from nearcache.lab.base.messages import Visit, Visited
from nearcache.lab.load import fixed_rate, open_loop
from nearcache.lab.proofs.brief import GONE_AFTER_S


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


class GetsSlower(LocMemCache):
    """Every get takes a little longer than the one before: a machine that is throttled."""

    gets = 0

    def get(self, key: str, *arguments: Any, **options: Any) -> Any:
        GetsSlower.gets += 1
        end = time.perf_counter_ns() + 200 * GetsSlower.gets
        while time.perf_counter_ns() < end:
            pass
        return super().get(key, *arguments, **options)


class AnswersFromAnotherDatabase(RedisCache):
    """Its settings name one database; it uses another, which some other alias has."""

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        super().__init__(server.replace("db=0", "db=1"), params)


class HasNoKeys(LocMemCache):
    """Nothing is wrong with it, but its keys cannot be made apart from its calls."""

    def make_and_validate_key(self, key: str, version: int | None = None) -> str:
        if key.endswith(":parts:00") and sys._getframe(1).f_code.co_name == "_make_key":
            raise TypeError("this one has no keys")
        return super().make_and_validate_key(key, version=version)


class NeverForgets(LocMemCache):
    """Keeps everything for good, whatever it was told."""

    def set(self, key: str, value: Any, timeout: Any = None, version: int | None = None) -> None:
        super().set(key, value, None, version)


class TakesItsTime(AliasArm):
    """Begins so slowly that what was stored for a second must be gone at its first visit."""

    def begin(self) -> Mapping[str, str]:
        proof = super().begin()
        assert self.brief.stored_at is not None
        time.sleep(GONE_AFTER_S)
        return proof


class LateGenerator(AliasArm):
    """The generator of load oversleeps, as one does whose CPU is taken away."""

    def visit(self, visit: Visit) -> Visited:
        def oversleep(moment_ns: int) -> None:
            open_loop.wait_until(moment_ns + 2_000_000)

        fixed_rate.drive = functools.partial(open_loop.drive, wait=oversleep)  # type: ignore[assignment]
        return super().visit(visit)


class ForgetsItsParser(AliasArm):
    """Proves one parser in its first process, and another one in its second."""

    def begin(self) -> Mapping[str, str]:
        first = "/0-" in self.setup.directory
        return {**super().begin(), "parser": "hiredis" if first else "python"}
