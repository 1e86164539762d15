"""What looks at a whole store lets the event loop run meanwhile: counted in turns, not in time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from nearcache.backends import SharedMemoryCache

ITEMS = 20_000
PAGES = ITEMS // 1000


@pytest.fixture
def cache(private_path: Path) -> Any:
    location = str(private_path / "c")
    options = {"OPTIONS": {"size": "16MB"}}
    other = SharedMemoryCache(location, options)
    other.set("other", 1)
    cache = SharedMemoryCache(location, {"KEY_PREFIX": "p", **options})
    cache.set_many({f"k{n}": n for n in range(ITEMS)})
    return cache


async def all_keys(cache: Any) -> list[str]:
    return [key async for key in cache.aiter_keys()]


async def turns_of(walk: Callable[[], Awaitable[Any]]) -> tuple[int, Any]:
    """How often another task had its turn while ``walk`` ran, and what that gave."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await asyncio.sleep(0)
    before = turns
    result = await walk()
    task.cancel()
    return turns - before, result


@pytest.mark.parametrize(
    ("walk", "gives", "at_least"),
    [
        (lambda cache: cache.akeys(), lambda found: len(found) == ITEMS, PAGES // 2),
        (all_keys, lambda found: len(found) == ITEMS, PAGES // 2),
        (lambda cache: cache.adelete_pattern("k*"), lambda found: found == ITEMS, PAGES // 2),
        (lambda cache: cache.aclear(), lambda found: found is None, PAGES // 2),
        (lambda cache: cache.acheck(), lambda found: found == [], 2),
    ],
    ids=["akeys", "aiter_keys", "adelete_pattern", "aclear", "acheck"],
)
def test_the_loop_runs_during_a_walk(cache: Any, walk: Any, gives: Any, at_least: int) -> None:
    turns, result = asyncio.run(turns_of(lambda: walk(cache)))
    assert gives(result)
    assert turns >= at_least


def test_an_awaited_clear_leaves_other_prefixes(cache: Any) -> None:
    other = SharedMemoryCache(cache.path, {"OPTIONS": {"size": "16MB"}})
    asyncio.run(cache.aclear())
    assert cache.keys() == []
    assert other.get("other") == 1
    asyncio.run(other.aclear())
    assert other.get("other") is None
