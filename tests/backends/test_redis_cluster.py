"""RedisCache over a cluster: keys live on three servers, and nobody has to know."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from nearcache.backends import RedisCache
from nearcache.django_cache.redis.methods import key_of
from tests.backends.conftest import PATIENT
from tests.redis.cluster_servers import ClusterServers


@pytest.fixture
def cache(one_cluster: ClusterServers) -> Iterator[Any]:
    one_cluster.flush()
    nodes = ",".join(map(str, one_cluster.addresses))
    cache = RedisCache(f"redis+cluster://{nodes}", {"KEY_PREFIX": "p", "OPTIONS": PATIENT})
    yield cache
    cache.engine.topology.close()


NUMBERS = {f"k{i}": i for i in range(60)}


def test_one_cache_on_several_servers(cache: Any, one_cluster: ClusterServers) -> None:
    assert cache.set_many(NUMBERS, 100) == []
    assert all(node.ask("DBSIZE") > 0 for node in one_cluster.primaries())
    assert cache.get_many([*NUMBERS, "missing"]) == NUMBERS
    assert cache.get("k7") == 7
    assert cache.incr("k7") == 8
    assert cache.set("k7", "x" * 100_000, 100) is True
    assert cache.get("k7") == "x" * 100_000
    assert cache.set("k7", 1, nx=True) is False
    assert cache.set("k7", 1, xx=True) is True
    assert cache.add("k7", 1) is False
    assert cache.incr_version("k7") == 2
    assert cache.get("k7", version=2) == 1
    assert cache.ttl("k8") > 50
    assert sorted(cache.keys("k1?")) == [f"k1{i}" for i in range(10)]
    assert cache.delete_pattern("k1?") == 10
    assert cache.stats()["items"] == 50
    assert cache.get_or_set("new", lambda: "computed") == "computed"
    with cache.lock("name", timeout=50):
        assert not cache.lock("name").acquire(blocking=False)
    assert cache.delete_many(NUMBERS) is None
    assert cache.keys() == ["new"]
    cache.clear()
    assert cache.keys() == cache.keys(version=2) == []
    assert cache.check() == []


def test_the_same_in_coroutines(cache: Any) -> None:
    async def main() -> None:
        assert await cache.aset_many(NUMBERS, 100) == []
        assert await cache.aget_many([*NUMBERS, "missing"]) == NUMBERS
        assert await asyncio.gather(*map(cache.aget, NUMBERS)) == list(NUMBERS.values())
        assert await cache.aset("k7", 70) is True
        assert await cache.aincr("k7") == 71
        assert await cache.aadd("k7", 1) is False
        assert await cache.aincr_version("k7") == 2
        assert min([key async for key in cache.aiter_keys("k1?")]) == "k10"
        assert await cache.adelete_pattern("k1?") == 10
        assert await cache.aget_or_set("new", lambda: "computed") == "computed"
        await cache.aclear()
        assert await cache.akeys() == []

    asyncio.run(main())


@pytest.mark.parametrize("key", ["k", "", "two words", "\u20ac" * 50, "$5\r\n", "x" * 300])
@pytest.mark.filterwarnings("ignore::django.core.cache.CacheKeyWarning")
def test_the_key_of_a_command_is_found(cache: Any, key: str) -> None:
    raw = cache._raw_key(key)
    assert key_of(cache._get_command(key)) == raw
    assert key_of(cache._set_command(key, "x" * 1000, 5, None, True)) == raw
    assert key_of(cache._set_command(key, b"\r\n$3\r\nabc\r\n", 0)) == raw
    assert key_of(cache._command(b"INCRBY", key, 3, b"5")) == cache._raw_key(key, 3)
