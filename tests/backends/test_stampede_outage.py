"""get_or_set while the server is away: with on_error="miss" it computes, and says nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nearcache.backends import RedisCache
from nearcache.errors import EngineUnavailable
from nearcache.memoize import Memoized, memoize
from tests.backends.conftest import PATIENT
from tests.redis.servers import Server, running


@pytest.fixture
def server(redis_directory: Path) -> Iterator[Server]:
    with running(redis_directory) as server:
        yield server


def cache_of(server: Server, **options: Any) -> Any:
    return RedisCache(
        f"unix://{server.path}", {"OPTIONS": PATIENT | {"breaker_pause": 0.05, **options}}
    )


@pytest.mark.parametrize("extras", [{}, {"early": True, "stale": 60, "stale_on_error": 60}])
def test_an_outage_that_is_forgiven_is_a_miss(server: Server, extras: dict[str, Any]) -> None:
    cache = cache_of(server, on_error="miss")
    assert cache.get_or_set("k", lambda: "before", 300, **extras) == "before"
    server.kill()
    assert cache.get_or_set("k", lambda: "during", 300, **extras) == "during"
    assert asyncio.run(cache.aget_or_set("k", lambda: "during", 300, **extras)) == "during"
    with pytest.raises(KeyError, match="database"):
        cache.get_or_set("k", fail, 300, **extras)
    server.start()
    server.wait_ready()


@pytest.mark.parametrize("extras", [{}, {"early": True, "stale": 60, "stale_on_error": 60}])
def test_an_outage_that_is_not_forgiven_comes_out(server: Server, extras: dict[str, Any]) -> None:
    cache = cache_of(server, on_error="raise")
    cache.get_or_set("k", lambda: "before", 300, **extras)
    server.kill()
    with pytest.raises(EngineUnavailable):
        cache.get_or_set("k", lambda: "during", 300, **extras)
    server.start()
    server.wait_ready()


def test_a_server_that_goes_away_while_a_value_is_computed_costs_only_the_storing(
    server: Server,
) -> None:
    cache = cache_of(server, on_error="miss")

    def compute() -> str:
        server.kill()
        return "computed"

    assert cache.get_or_set("k", compute, 300, stale=60) == "computed"
    server.start()
    server.wait_ready()


def fail() -> None:
    raise KeyError("database")


def test_memoized_functions_work_without_their_cache(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = cache_of(server, on_error="miss")
    monkeypatch.setattr(Memoized, "_cache", cache)
    calls: list[int] = []

    @memoize(timeout=300, stale=60, ignore=["calls"])
    def total(a: int) -> int:
        calls.append(a)
        return a

    assert [total(1), total(1)] == [1, 1]
    server.kill()
    assert [total(1), total.refresh(1), total.invalidate(1)] == [1, 1, False]
    assert len(calls) == 3
    server.start()
    server.wait_ready()
