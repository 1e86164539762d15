"""The rows that run in one process: operation, peer, and what the project promises."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.measure import Comparison, Work, compare
from bench.peers import FLOATS, SMALL, shared_memory

MANY_KEYS = 1_000_000
# Longer than YOUNG_MS of crates/nearcache-core/src/store.rs: until then a process that may become
# another user's (root's) asks at each call whose it is, which is not what a site pays later.
YOUNG_S = 10.5


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    operation: str
    against: str
    at_least: float
    comparison: Comparison


def rows(where: Path) -> Iterator[Row]:
    """Measures row by row."""
    from django.core.cache import caches

    ours, locmem, disk = caches["default"], caches["locmem"], caches["disk"]
    fresh = caches["fresh"]
    values = {"S": SMALL, "F": FLOATS, "int": 12345, "short_str": "a short text"}

    def row(operation: str, peer: Any, against: str, at_least: float, work: Making) -> Row:
        return Row(operation, against, at_least, compare(work(ours), work(peer)))

    for cache in (ours, fresh, locmem, disk):
        for name, value in values.items():
            cache.set(name, value)
            assert cache.get(name) == value
    time.sleep(YOUNG_S)
    yield row("get S, A/A", ours, "itself", 0, getting("S"))
    yield row("get S", locmem, "LocMemCache", 6, getting("S"))
    yield row("set S", locmem, "LocMemCache", 3, setting("S", SMALL))
    yield row("get int", locmem, "LocMemCache", 10, getting("int"))
    yield row("get short str", locmem, "LocMemCache", 10, getting("short_str"))
    yield row("get F", locmem, "LocMemCache", 1.8, getting("F"))
    for name in ("S", "F"):
        comparison = compare(getting(name)(fresh), getting(name)(locmem))
        yield Row(f"get {name}, decoded anew", "LocMemCache", 0, comparison)
    yield row("set F", locmem, "LocMemCache", 0, setting("F", FLOATS))
    yield row("get_many 100 x S", locmem, "LocMemCache", 4, getting_many(100))
    yield row("aget S", locmem, "LocMemCache", 100, getting_async("S"))
    yield row("get S", disk, "DiskCache", 12, getting("S"))
    yield row("set S", disk, "DiskCache", 25, setting("S", SMALL))
    yield from uniform_row(where, locmem)


Making = Callable[[Any], Work]


def getting(key: str) -> Making:
    """get of one key."""

    def make(cache: Any) -> Work:
        def work(count: int) -> None:
            get = cache.get
            for _ in range(count):
                get(key)

        return work

    return make


def setting(key: str, value: object) -> Making:
    """set of one key."""

    def make(cache: Any) -> Work:
        def work(count: int) -> None:
            store = cache.set
            for _ in range(count):
                store(key, value)

        return work

    return make


def getting_many(keys: int) -> Making:
    """get_many of that many keys."""

    def make(cache: Any) -> Work:
        names = [f"many{number}" for number in range(keys)]
        cache.set_many(dict.fromkeys(names, SMALL))
        assert len(cache.get_many(names)) == keys

        def work(count: int) -> None:
            for _ in range(count):
                cache.get_many(names)

        return work

    return make


def getting_async(key: str) -> Making:
    """aget of one key, inside one event loop."""

    def make(cache: Any) -> Work:
        async def run(count: int) -> None:
            for _ in range(count):
                await cache.aget(key)

        # One loop for all rounds: a connection belongs to its loop.
        runner = asyncio.Runner()
        return lambda count: runner.run(run(count))

    return make


def uniform_row(where: Path, locmem: Any) -> Iterator[Row]:
    """get over so many keys that neither processor caches nor kept objects help."""
    from django.core.cache.backends.base import BaseCache
    from django.utils.module_loading import import_string

    config = shared_memory(where / "uniform", "512MB")
    ours: BaseCache = import_string(config.pop("BACKEND"))(config.pop("LOCATION"), config)
    names = [f"item:{number}" for number in range(MANY_KEYS)]
    for cache in (ours, locmem):
        for name in names:
            cache.set(name, SMALL)
        assert all(cache.has_key(name) for name in names), "every key is there"
    random.Random(2).shuffle(names)

    def make(cache: Any) -> Work:
        position = 0

        def work(count: int) -> None:
            nonlocal position
            get = cache.get
            for at in range(position, position + count):
                get(names[at % MANY_KEYS])
            position += count

        return work

    comparison = compare(make(ours), make(locmem))
    yield Row("get S, 1,000,000 keys", "LocMemCache", 3, comparison)
    locmem.clear()
