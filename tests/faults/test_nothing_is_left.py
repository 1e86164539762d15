"""A computation that is over leaves its value, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from nearcache.backends import RedisCache
from tests.backends.conftest import PATIENT
from tests.redis.cluster_servers import ClusterServers
from tests.redis.servers import Server

KEYS = 300


def cache_at(server: Server, **options: Any) -> Any:
    params = {"KEY_PREFIX": "shop", "OPTIONS": PATIENT | options}
    return RedisCache(f"unix://{server.path}", params)


@pytest.fixture
def admin(redis_server: Server) -> Iterator[Any]:
    client = redis.Redis(unix_socket_path=str(redis_server.path))
    yield client
    client.acl_deluser("narrow")
    client.close()


def test_values_are_all_there_is_after_computing_them(redis_server: Server, admin: Any) -> None:
    cache = cache_at(redis_server)
    for number in range(KEYS):
        assert cache.get_or_set(f"k{number}", lambda number=number: [number], 5) == [number]
    assert admin.dbsize() == KEYS
    assert not admin.keys("*nearcache*")


def test_the_same_awaited_and_after_failures(redis_server: Server, admin: Any) -> None:
    cache = cache_at(redis_server)

    async def failing() -> None:
        raise KeyError("database")

    async def main() -> None:
        for number in range(KEYS):
            await cache.aget_or_set(f"k{number}", lambda: "value", 5)
            with pytest.raises(KeyError):
                await cache.aget_or_set("failing", failing)

    asyncio.run(main())
    assert admin.dbsize() == KEYS


def test_a_cluster_too(one_cluster: ClusterServers) -> None:
    one_cluster.flush()
    address = one_cluster.addresses[0]
    where = f"redis://{address.host}:{address.port}"
    cache: Any = RedisCache(where, {"OPTIONS": {"cluster": True, **PATIENT}})
    for number in range(KEYS):
        cache.get_or_set(f"k{number}", lambda: "value", 5)
    assert len(cache.engine) == KEYS
    cache.engine.topology.close()


def test_while_computing_there_is_one_key_more_which_nobody_sees(
    redis_server: Server, admin: Any
) -> None:
    cache = cache_at(redis_server)

    def compute() -> str:
        (claim,) = admin.keys()
        assert claim.startswith(b"shop:1:k"), "under the prefix: an ACL may allow that alone"
        assert 0 < admin.pttl(claim) <= 3000
        assert cache.keys() == list(cache.iter_keys()) == []
        assert cache.delete_pattern("*") == 0
        cache.clear()
        assert admin.exists(claim), "clear() is about values"
        return "value"

    assert cache.get_or_set("k", compute) == "value"
    assert admin.keys() == [b"shop:1:k"]


@pytest.mark.parametrize("scripting", ["+@scripting", "-@scripting"])
def test_a_user_with_few_rights_may_compute(
    redis_server: Server, admin: Any, scripting: str
) -> None:
    rights = "on >secret ~shop:* -@all +set +get +pexpire +unlink +ping +hello +client +select"
    admin.execute_command("ACL", "SETUSER", "narrow", *rights.split(), scripting)
    cache = cache_at(redis_server, USERNAME="narrow", PASSWORD="secret")
    for number in range(3):
        assert cache.get_or_set(f"k{number}", lambda: "value", 5) == "value"
    assert admin.dbsize() == 3
    cache.engine.topology.close()


def test_a_server_that_is_full_still_forgets_claims(redis_server: Server, admin: Any) -> None:
    engine = cache_at(redis_server).engine
    assert engine.claim(b"shop:1:k", 7, 60_000)
    admin.config_set("maxmemory", "1")
    try:
        assert engine.claim(b"shop:1:k", 7, 60_000), "asked again by its owner"
        engine.unclaim(b"shop:1:k", 7)
        assert admin.dbsize() == 0
    finally:
        admin.config_set("maxmemory", "0")
