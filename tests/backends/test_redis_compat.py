"""``compat``: the bytes of Django's own RedisCache and of django-redis, on one server with them."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.cache.backends.redis import RedisCache as DjangoCache
from django.http import HttpResponse
from django_redis.cache import RedisCache as DjangoRedisCache

from nearcache.backends import RedisCache
from tests.backends.conftest import PATIENT
from tests.redis.servers import Server

SERIALIZERS = {
    "pickle": "django_redis.serializers.pickle.PickleSerializer",
    "json": "django_redis.serializers.json.JSONSerializer",
    "msgpack": "django_redis.serializers.msgpack.MSGPackSerializer",
}
COMPRESSORS = {
    "none": "django_redis.compressors.identity.IdentityCompressor",
    "zlib": "django_redis.compressors.zlib.ZlibCompressor",
    "gzip": "django_redis.compressors.gzip.GzipCompressor",
    "lzma": "django_redis.compressors.lzma.LzmaCompressor",
    "lz4": "django_redis.compressors.lz4.Lz4Compressor",
}
PLAIN = [1, -5, 2**63 - 1, "text", "", "17", "x" * 5000, [1, 2.5, None, True], {"a": {"b": [1]}}]
PICKLED = [
    *PLAIN,
    (1, 2),
    {1, 2},
    b"bytes",
    b"12",
    True,
    None,
    2.0,
    datetime(2026, 1, 1, tzinfo=UTC),
]

Pair = tuple[Any, Any]


@pytest.fixture
def url(redis_server: Server) -> str:
    return f"unix://{redis_server.path}?db=0"


@pytest.fixture
def django_pair(url: str) -> Iterator[Pair]:
    theirs = DjangoCache(url, {"OPTIONS": {}})
    ours = RedisCache(url, {"OPTIONS": PATIENT | {"compat": "django"}})
    yield ours, theirs
    ours.engine.topology.close()
    theirs._cache.get_client().connection_pool.disconnect()


@pytest.fixture
def django_redis_pair(url: str, request: pytest.FixtureRequest) -> Iterator[Pair]:
    serializer, compressor = getattr(request, "param", ("pickle", "none"))
    options = {"SERIALIZER": SERIALIZERS[serializer], "COMPRESSOR": COMPRESSORS[compressor]}
    theirs = DjangoRedisCache(url, {"OPTIONS": options})
    # The settings of there, and one word more.
    ours = RedisCache(url, {"OPTIONS": {**PATIENT, **options, "compat": "django-redis"}})
    yield ours, theirs
    ours.engine.topology.close()
    theirs.client.get_client().connection_pool.disconnect()


def check_both_ways(ours: Any, theirs: Any, values: list[Any]) -> None:
    many = {f"m{at}": value for at, value in enumerate(values)}
    for writer, reader in ((ours, theirs), (theirs, ours)):
        for at, value in enumerate(values):
            writer.set(f"k{at}", value, 100)
            assert_same(reader.get(f"k{at}"), value)
        writer.set_many(many, 100)
        found = reader.get_many(list(many))
        assert found.keys() == many.keys()
        for key, value in many.items():
            assert_same(found[key], value)
        assert writer.add("new", "added") is True
        assert reader.add("new", "late") is False
        assert reader.get("new") == "added"
        writer.delete("new")
        assert reader.has_key("new") is False
        writer.clear()


def assert_same(found: Any, value: Any) -> None:
    assert found == value
    assert type(found) is type(value)


def check_counters(ours: Any, theirs: Any) -> None:
    for writer, reader in ((ours, theirs), (theirs, ours)):
        writer.set("n", 40, 100)
        assert reader.incr("n") == 41
        assert writer.incr("n", 2) == 43
        assert reader.decr("n", 3) == 40
        assert writer.get("n") == reader.get("n") == 40
        assert ours.ttl("n") > 50
        writer.set("n", -7)
        assert reader.get("n") == -7


def test_django_s_bytes_both_ways(django_pair: Pair) -> None:
    check_both_ways(*django_pair, PICKLED)
    check_counters(*django_pair)


@pytest.mark.parametrize(
    "django_redis_pair",
    [("pickle", compressor) for compressor in COMPRESSORS],
    indirect=True,
    ids="-".join,
)
def test_django_redis_s_pickles_both_ways(django_redis_pair: Pair) -> None:
    check_both_ways(*django_redis_pair, PICKLED)
    check_counters(*django_redis_pair)


@pytest.mark.parametrize(
    "django_redis_pair",
    [(serializer, compressor) for serializer in ("json", "msgpack") for compressor in COMPRESSORS],
    indirect=True,
    ids="-".join,
)
def test_django_redis_s_other_serializers_both_ways(django_redis_pair: Pair) -> None:
    check_both_ways(*django_redis_pair, PLAIN)
    check_counters(*django_redis_pair)


def test_extras_work_on_each_other_s_keys(django_redis_pair: Pair) -> None:
    ours, theirs = django_redis_pair
    theirs.set_many({"user:1": 1, "user:2": 2, "other": 3}, 100)
    assert sorted(ours.keys("user:*")) == sorted(theirs.keys("user:*")) == ["user:1", "user:2"]
    assert ours.expire("user:1", 50) is True
    assert theirs.ttl("user:1") <= 50
    assert ours.persist("user:2") is True
    assert theirs.ttl("user:2") is None
    assert ours.incr_version("other") == 2
    assert theirs.get("other", version=2) == 3
    assert ours.delete_pattern("user:*") == 2
    assert theirs.keys("*") == []


def test_coroutines_write_the_same_bytes(django_redis_pair: Pair) -> None:
    ours, theirs = django_redis_pair

    async def main() -> None:
        await ours.aset("k", (1, 2))
        await ours.aset_many({"a": [1], "n": 5})
        assert await ours.aincr("n") == 6
        theirs.set("t", {"x": 1})
        assert await ours.aget_many(["t", "k"]) == {"t": {"x": 1}, "k": (1, 2)}

    asyncio.run(main())
    assert theirs.get_many(["k", "a", "n"]) == {"k": (1, 2), "a": [1], "n": 6}


def test_get_or_set_stores_what_the_others_can_read(django_redis_pair: Pair) -> None:
    ours, theirs = django_redis_pair
    assert ours.get_or_set("k", lambda: {"computed": True}) == {"computed": True}
    assert theirs.get("k") == {"computed": True}


@pytest.fixture
def moved(url: str) -> Iterator[RedisCache]:
    """Where the BACKEND was changed and nothing else."""
    cache = RedisCache(url, {"OPTIONS": PATIENT})
    yield cache
    cache.engine.topology.close()


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "value", [True, {"a": 1}, HttpResponse("page")], ids=["bool", "dict", "page"]
)
def test_a_pickle_left_behind_is_a_counted_miss(
    moved: RedisCache, value: Any, protocol: int
) -> None:
    moved.client.set(moved.make_key("k"), pickle.dumps(value, protocol))
    before = moved.stats()["undecodable"]
    assert moved.get("k", "missed") == "missed"
    assert moved.get_many(["k"]) == {}
    assert asyncio.run(moved.aget("k", "missed")) == "missed"
    assert moved.get_or_set("k", "computed") == "computed"
    assert moved.stats()["undecodable"] > before + 2
    assert moved.get("k") == "computed"


def check_left_behind(moved: RedisCache, theirs: Any, values: list[Any]) -> None:
    """Of what the old backend wrote, integers are read, and all else is missed and counted."""
    for value in values:
        theirs.set("k", value, 100)
        before = moved.stats()["undecodable"]
        if type(value) is int:
            assert moved.get("k") == value
        else:
            assert moved.get("k", "missed") == "missed"
            assert moved.stats()["undecodable"] == before + 1


def test_after_django_s_backend(moved: RedisCache, django_pair: Pair) -> None:
    check_left_behind(moved, django_pair[1], [*PICKLED, HttpResponse("page")])


@pytest.mark.parametrize(
    "django_redis_pair",
    [(serializer, compressor) for serializer in SERIALIZERS for compressor in COMPRESSORS],
    indirect=True,
    ids="-".join,
)
def test_after_django_redis(moved: RedisCache, django_redis_pair: Pair) -> None:
    check_left_behind(moved, django_redis_pair[1], PLAIN)


def test_after_pickles_of_django_redis(moved: RedisCache, django_redis_pair: Pair) -> None:
    check_left_behind(moved, django_redis_pair[1], [*PICKLED, HttpResponse("page")])


@pytest.mark.parametrize("theirs_is", ["django", "django-redis"])
def test_a_move_without_a_cold_cache(url: str, theirs_is: str) -> None:
    """Their values are read, ours are written: the new format takes over as values expire."""
    theirs: Any = DjangoCache(url, {}) if theirs_is == "django" else DjangoRedisCache(url, {})
    theirs.set_many({"a": (1, 2), "n": 5, "s": "text"})
    ours = RedisCache(url, {"OPTIONS": PATIENT | {"read_formats": theirs_is}})
    assert ours.get_many(["a", "n", "s"]) == {"a": (1, 2), "n": 5, "s": "text"}
    ours.set("a", "ours")
    assert ours.get("a") == "ours"
    ours.engine.topology.close()
    client = theirs._cache.get_client() if theirs_is == "django" else theirs.client.get_client()
    client.connection_pool.disconnect()
