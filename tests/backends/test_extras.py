"""The methods beyond Django's, over every backend."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.cache.backends.base import BaseCache

from nearcache.errors import LockNotAcquired, OptionError
from tests.backends.conftest import local_only

Make = Callable[..., Any]


def test_ttl_counts_down_in_seconds_and_pttl_in_milliseconds(cache: Any) -> None:
    cache.set("k", 1, 100)
    assert 70 < cache.ttl("k") <= 100
    assert 70_000 < cache.pttl("k") <= 100_001


def test_ttl_is_none_for_ever_and_zero_for_no_such_key(cache: Any) -> None:
    cache.set("k", 1, None)
    assert cache.ttl("k") is None
    assert cache.pttl("k") is None
    assert cache.ttl("missing") == 0
    assert cache.pttl("missing") == 0


def test_a_key_in_its_last_second_has_a_ttl_of_one(
    cache: Any, eventually: Callable[..., None]
) -> None:
    def has_a_ttl_of_one() -> bool:
        cache.set("k", 1, 0.9)
        return bool(cache.ttl("k") == 1)

    eventually(has_a_ttl_of_one)  # a machine may stop for that second


def test_expire_and_persist_move_the_deadline(cache: Any) -> None:
    cache.set("k", 1, 50)
    assert cache.expire("k", 100) is True
    assert cache.ttl("k") > 70
    assert cache.persist("k") is True
    assert cache.ttl("k") is None
    assert cache.expire("missing", 100) is False
    assert cache.persist("missing") is False


def test_pexpire_expire_at_and_pexpire_at_move_the_deadline(cache: Any) -> None:
    cache.set("k", 1, 50)
    assert cache.pexpire("k", 100_500) is True
    assert 70_000 < cache.pttl("k") <= 100_501
    assert cache.expire("k", timedelta(seconds=200)) is True
    assert 170 < cache.ttl("k") <= 200
    assert cache.expire_at("k", datetime.now(UTC) + timedelta(seconds=300)) is True
    assert 270 < cache.ttl("k") <= 300
    assert cache.expire_at("k", int(time.time()) + 400) is True
    assert 370 < cache.ttl("k") <= 400
    assert cache.pexpire_at("k", int(time.time() * 1000) + 500_000) is True
    assert 470 < cache.ttl("k") <= 500
    assert cache.pexpire_at("k", datetime.now() + timedelta(seconds=600)) is True  # noqa: DTZ005
    assert 570 < cache.ttl("k") <= 600
    for method in (cache.pexpire, cache.expire_at, cache.pexpire_at):
        assert method("missing", 10**13) is False
    assert cache.expire_at("k", 5) is True
    assert cache.get("k") is None


def test_infinite_and_endless_timeouts_mean_for_ever(cache: Any) -> None:
    cache.set("inf", 1, float("inf"))
    cache.set("endless", 1, 10**20)
    assert cache.ttl("inf") is None
    assert cache.ttl("endless") is None


def test_incr_keeps_the_deadline_whatever_the_number(cache: Any) -> None:
    for key, value, delta in [("int", 1, 1), ("float", 1.5, 1), ("big", 2**70, 1), ("i", 1, 2.5)]:
        cache.set(key, value, 1000)
        assert cache.incr(key, delta) == value + delta
        assert cache.get(key) == value + delta
        assert cache.ttl(key) > 900


def test_incr_past_64_bits_goes_on(cache: Any) -> None:
    cache.set("n", 2**63 - 1)
    assert cache.incr("n") == 2**63
    assert cache.incr("n") == 2**63 + 1
    assert cache.decr("n", 2) == 2**63 - 1


def test_incr_of_what_is_no_number_is_python_s_own_error(cache: Any) -> None:
    cache.set("k", "text")
    with pytest.raises(TypeError):
        cache.incr("k")
    assert cache.get("k") == "text"


@pytest.mark.parametrize("start", [0, 0.0])
def test_no_increment_is_lost_among_threads(make_cache: Make, start: float) -> None:
    make_cache().set("n", start)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: [make_cache().incr("n") for _ in range(100)], range(4)))
    assert make_cache().get("n") == 400


def test_incr_version_keeps_the_deadline(cache: Any) -> None:
    cache.set("k", None, 1000)
    assert cache.incr_version("k") == 2
    assert cache.get("k", "gone") == "gone"
    assert cache.get("k", "gone", version=2) is None
    assert cache.ttl("k", version=2) > 900
    assert cache.decr_version("k", version=2) == 1
    assert cache.ttl("k") > 900


def test_cas_stores_if_nobody_wrote_since(cache: Any) -> None:
    cache.set("k", [1])
    value, token = cache.gets("k")
    assert value == [1]
    assert cache.cas("k", [1, 2], token) is True
    assert cache.cas("k", "late", token) is False
    assert cache.get("k") == [1, 2]
    assert cache.gets("missing") is None


def test_keys_are_listed_as_they_were_given(cache: Any) -> None:
    cache.set_many({"user:1": 1, "user:2": 2, "other": 3, "\u20ac": 4})
    cache.set("user:9", 1, version=2)
    assert sorted(cache.keys()) == ["other", "user:1", "user:2", "\u20ac"]
    assert sorted(cache.keys("user:*")) == ["user:1", "user:2"]
    assert list(cache.iter_keys("user:*", version=2)) == ["user:9"]
    assert cache.keys("nothing*") == []


def test_more_keys_than_one_page_are_listed_once_each(cache: Any) -> None:
    cache.set_many({f"k{i}": i for i in range(2500)})
    keys = cache.keys()
    assert len(keys) == len(set(keys)) == 2500


def test_delete_pattern_deletes_what_matches(cache: Any) -> None:
    cache.set_many({"user:1": 1, "user:2": 2, "other": 3})
    cache.set("user:1", 1, version=2)
    assert cache.delete_pattern("user:*") == 2
    assert cache.keys() == ["other"]
    assert cache.delete_pattern("*", version=2) == 1


@pytest.mark.parametrize("prefix", ["a:b", "a*", "[x]", "q?", "back\\slash", "\u20ac"])
def test_a_prefix_with_special_characters_is_just_a_prefix(make_cache: Make, prefix: str) -> None:
    cache, others = make_cache(KEY_PREFIX=prefix), [make_cache(), make_cache(KEY_PREFIX="aXb")]
    others.append(make_cache(KEY_PREFIX="q1"))
    for other in others:
        other.set("k", "other")
    cache.set("k", "mine")
    assert cache.keys() == ["k"]
    assert cache.delete_pattern("*") == 1
    cache.set("k", "mine")
    cache.clear()
    assert cache.get("k") is None
    assert [other.get("k") for other in others] == ["other"] * 3


@local_only
def test_clear_without_a_prefix_empties_the_store(make_cache: Make) -> None:
    make_cache(KEY_PREFIX="p").set("k", 1)
    make_cache().clear()
    assert make_cache(KEY_PREFIX="p").get("k") is None


def test_clear_with_a_prefix_takes_all_its_versions(make_cache: Make) -> None:
    cache = make_cache(KEY_PREFIX="p")
    cache.set("k", 1)
    cache.set("k", 1, version=7)
    cache.clear()
    assert cache.get("k") is None
    assert cache.get("k", version=7) is None


def test_a_key_function_that_hashes_cannot_list(make_cache: Make) -> None:
    cache = make_cache(KEY_FUNCTION=lambda key, prefix, version: f"{len(key)}x{key[::-1]}")
    cache.set("key", "value")
    assert cache.get("key") == "value"
    with pytest.raises(OptionError, match="KEY_FUNCTION"):
        cache.keys()


def test_a_lock_excludes_other_objects_on_the_store(make_cache: Make) -> None:
    with make_cache().lock("job", timeout=60):
        assert not make_cache().lock("job").acquire(blocking=False)
        with pytest.raises(LockNotAcquired), make_cache().lock("job", blocking_timeout=0.01):
            pass
        assert make_cache().lock("other").acquire(blocking=False)
    assert make_cache().lock("job").acquire(blocking=False)


def test_a_lock_is_no_key(cache: Any) -> None:
    with cache.lock("name"):
        assert cache.get("name") is None
        assert cache.keys() == []


def test_get_or_set_computes_once_among_threads(make_cache: Make) -> None:
    computed, started = [], threading.Barrier(8)

    def compute() -> str:
        computed.append(1)
        return "value"

    def ask(_: int) -> Any:
        started.wait()
        return make_cache().get_or_set("k", compute)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8))) == ["value"] * 8
    assert len(computed) == 1


def test_get_or_set_computes_once_among_tasks(make_cache: Make) -> None:
    computed = []

    async def compute() -> str:
        computed.append(1)
        await asyncio.sleep(0.01)
        return "value"

    async def main() -> list[Any]:
        return await asyncio.gather(*(make_cache().aget_or_set("k", compute) for _ in range(20)))

    assert asyncio.run(main()) == ["value"] * 20
    assert len(computed) == 1


def test_a_computation_that_fails_lets_the_next_one_try(cache: Any) -> None:
    def fail() -> None:
        raise KeyError("no")

    with pytest.raises(KeyError):
        cache.get_or_set("k", fail)
    assert cache.get_or_set("k", lambda: "value") == "value"


def test_get_or_set_keeps_django_s_meaning(cache: Any) -> None:
    assert cache.get_or_set("k", None) is None
    assert cache.get_or_set("k", "other") is None
    with pytest.raises(TypeError, match="default"):
        cache.get_or_set("k")


def test_waiting_for_a_computation_is_bounded(make_cache: Make) -> None:
    cache = make_cache(options={"single_flight": 0.05})
    before = cache.stats()["flight_timeouts"]
    assert cache.engine.claim(b":1:k", 7, 60_000)
    assert cache.get_or_set("k", lambda: "value") == "value"
    assert cache.stats()["flight_timeouts"] == before + 1


def test_without_single_flight_everybody_computes_at_once(make_cache: Make) -> None:
    cache = make_cache(options={"single_flight": 0})
    assert cache.engine.claim(b":1:k", 7, 60_000)
    assert cache.get_or_set("k", lambda: "value") == "value"


def test_stats_and_check(cache: Any) -> None:
    cache.set("k", 1)
    assert cache.stats()["items"] == 1
    assert cache.check() == []


def test_a_value_that_cannot_be_read_is_a_counted_miss(cache: Any) -> None:
    before = cache.stats()["undecodable"]
    for raw in (b"\x83no pickle", b"\x8fno serializer", b"no header", b"\x93not packed"):
        cache.engine.set(b":1:k", raw, None)
        assert cache.get("k", "default") == "default"
        assert cache.get_many(["k"]) == {}
    assert cache.stats()["undecodable"] == before + 8
    assert cache.gets("k") is None


@local_only
def test_a_value_too_large_is_refused_counted_and_leaves_nothing_old(cache: Any) -> None:
    cache.set("k", "old")
    cache.set("k", "x" * (8 << 20))
    assert cache.get("k") is None
    assert cache.set_many({"a": 1, "k": "x" * (8 << 20)}) == ["k"]
    assert cache.get("a") == 1
    assert cache.stats()["refused"] >= 2


@local_only
@pytest.mark.parametrize("codec", [{}, {"compressor": "zlib", "compress_min": "1KB"}])
def test_the_first_value_that_is_refused_is_logged_and_no_other(
    make_cache: Make, codec: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    cache = make_cache(options=codec)
    large = os.urandom(2 << 20)
    for _ in range(2):
        cache.set("k", large)
        cache.set_many({"a": 1, "k": large})
    said = [record for record in caplog.records if "was not stored" in record.message]
    assert len(said) == 1
    assert "max_item" in said[0].message
    assert cache.stats()["refused"] >= 4


@pytest.mark.parametrize("serializer", ["auto", "pickle", "json"])
@pytest.mark.parametrize("compressor", ["none", "zlib"])
def test_every_serializer_and_compressor(
    make_cache: Make, serializer: str, compressor: str
) -> None:
    options = {"serializer": serializer, "compressor": compressor}
    cache = make_cache(options=options)
    for value in (1, "text", "x" * 5000, [1, "a"], {"a": None}, None, True):
        cache.set("k", value)
        assert cache.get("k") == value
        assert make_cache().get("k") == value
    make_cache().set("k", [1, 2])
    assert cache.get("k") == [1, 2]


@local_only
def test_max_entries_holds_whatever_the_way_in(make_cache: Make) -> None:
    cache = make_cache(options={"MAX_ENTRIES": 10})
    for i in range(50):
        cache.set(f"s{i}", i)
        cache.add(f"a{i}", i)
    cache.set_many({f"m{i}": i for i in range(50)})
    assert 0 < len(cache.keys()) <= 10
    full = len(cache.keys())
    cache.set(cache.keys()[0], "overwritten")
    assert len(cache.keys()) == full


def test_many_takes_iterators(cache: Any) -> None:
    cache.set_many({"a": 1, "b": None})
    assert cache.get_many(iter(["a", "b", "c"])) == {"a": 1, "b": None}
    assert cache.delete_many(iter(["a", "b"])) is None
    assert cache.get_many(["a", "b"]) == {}


def test_no_twin_is_one_of_django_s_that_go_to_a_thread(backend: Any) -> None:
    for name, theirs in vars(BaseCache).items():
        if inspect.iscoroutinefunction(theirs) and "sync_to_async" in inspect.getsource(theirs):
            assert getattr(backend, name) is not theirs, name


def test_every_twin_is_there_and_does_the_same(cache: Any) -> None:
    async def main() -> None:
        await cache.aset("k", 1, 100)
        assert await cache.aget("k") == 1
        assert await cache.aadd("k", 2) is False
        assert await cache.aincr("k") == 2
        assert await cache.adecr("k") == 1
        assert await cache.atouch("k", 50) is True
        assert await cache.attl("k") <= 50
        assert await cache.apttl("k") <= 50_001
        assert await cache.aexpire("k", 90) is True
        assert await cache.apersist("k") is True
        assert await cache.aget_many(["k"]) == {"k": 1}
        assert await cache.aset_many({"a": 1}) == []
        assert await cache.ahas_key("a") is True
        assert sorted(await cache.akeys()) == ["a", "k"]
        assert sorted([key async for key in cache.aiter_keys()]) == ["a", "k"]
        value, token = await cache.agets("k")
        assert await cache.acas("k", value + 1, token) is True
        assert await cache.aincr_version("k") == 2
        assert await cache.adecr_version("k", version=2) == 1
        assert await cache.aget_or_set("new", lambda: "plain") == "plain"
        assert await cache.adelete_pattern("n*") == 1
        # The lock of get_or_set may still be there, which Redis counts.
        assert (await cache.astats())["items"] >= 2
        assert await cache.acheck() == []
        await cache.adelete_many(["a"])
        assert await cache.adelete("k") is True
        async with cache.lock("job"):
            pass
        await cache.aclear()
        await cache.aclose()

    asyncio.run(main())


def test_the_constructor_opens_nothing(make_cache: Make, private_path: Any) -> None:
    make_cache("untouched")
    assert not list(private_path.glob("untouched*"))
