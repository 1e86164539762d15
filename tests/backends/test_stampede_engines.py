"""Stampede protection over every backend: the same answers, natively or in Python."""

from __future__ import annotations

import asyncio
import functools
import logging
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nearcache import _core
from nearcache.backends import RedisCache, SharedMemoryCache
from nearcache.base.clock import FakeClock
from nearcache.codec.envelope import Envelope, opened
from nearcache.coordination import background_refresh
from tests.backends.classes import MemoryCache, PlainSharedMemoryCache
from tests.backends.conftest import PATIENT

BACKENDS = [MemoryCache, PlainSharedMemoryCache, SharedMemoryCache, RedisCache]

Make = Callable[..., Any]


@pytest.fixture
def clock() -> FakeClock:
    """That of the protection; the stores read the host's, and both begin at the same time."""
    return FakeClock(time.time_ns() // 1_000_000)


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend.__name__)
def make(
    request: pytest.FixtureRequest, private_path: Path, clock: FakeClock
) -> Callable[..., Any]:
    backend = request.param
    members = {"clock": clock, "chance": staticmethod(lambda: 0.5)}
    timed = type(f"Timed{backend.__name__}", (backend,), members)

    def made(**options: Any) -> Any:
        if backend is RedisCache:
            server = request.getfixturevalue("redis_server")
            return timed(f"unix://{server.path}", {"OPTIONS": PATIENT | options})
        return timed(str(private_path / "cache"), {"OPTIONS": {"size": "4MB", **options}})

    return made


@pytest.fixture
def cache(make: Make) -> Any:
    return make()


@pytest.fixture(params=["plain", "awaited"])
def get_or_set(request: pytest.FixtureRequest, cache: Any) -> Callable[..., Any]:
    def plain(*args: Any, **extras: Any) -> Any:
        value = cache.get_or_set(*args, **extras)
        for thread in list(background_refresh._threads.here()):
            thread.join()
        return value

    if request.param == "plain":
        return plain

    def awaited(*args: Any, **extras: Any) -> Any:
        async def main() -> Any:
            value = await cache.aget_or_set(*args, **extras)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            ours = [task for task in others if "arun" in repr(task)]
            await asyncio.gather(*ours)  # what runs behind the call
            return value

        return asyncio.run(main())

    return awaited


@pytest.mark.parametrize("backend", [SharedMemoryCache, RedisCache])
def test_what_is_native_hides_no_name_of_python_by_chance(backend: type) -> None:
    native = (_core.FusedCache, _core.RedisCommands, _core.CacheArguments)
    above = [each for each in backend.__mro__ if each not in native]
    names = {name for each in above for name in vars(each) if re.match("_[^_]", name)}
    hidden = {name for each in native if issubclass(backend, each) for name in vars(each)} & names
    assert hidden == {"_raw_key"}  # the same, faster


UNREADABLE = b"\x8fof a class that is gone, or of a newer version"


@pytest.mark.parametrize("extras", [{}, {"early": 1}, {"stale": 60}])
@pytest.mark.parametrize("enveloped", [False, True])
def test_a_value_that_nobody_can_read_is_computed_anew(
    cache: Any, get_or_set: Any, clock: FakeClock, enveloped: bool, extras: dict[str, Any]
) -> None:
    there = Envelope(clock.now_ms() + 60_000, 0, 0, UNREADABLE).sealed()
    cache.engine.set(b":1:k", there if enveloped else UNREADABLE, None)
    assert get_or_set("k", lambda: "new", 60, **extras) == "new"
    assert get_or_set("k", lambda: "newer", 60, **extras) == "new"
    assert cache.stats()["undecodable"] == 1


@pytest.mark.parametrize("age_s", [0, 30])
def test_a_value_that_nobody_can_read_is_none_to_fall_back_on(
    cache: Any, get_or_set: Any, clock: FakeClock, age_s: int
) -> None:
    there = Envelope(clock.now_ms() + (10 - age_s) * 1000, 60_000, 0, UNREADABLE).sealed()
    cache.engine.set(b":1:k", there, None)
    with pytest.raises(ZeroDivisionError):
        get_or_set("k", lambda: 1 // 0, 60, early=1, stale_on_error=60)


class Awaits:
    async def __call__(self) -> str:
        return "value"


@pytest.mark.parametrize("extras", [{}, {"wait": 0}, {"timeout": 0}, {"early": 1, "stale": 60}])
def test_what_can_be_awaited_is_awaited(cache: Any, extras: dict[str, Any]) -> None:
    async def compute(value: str = "value") -> str:
        await asyncio.sleep(0)
        return value

    async def main() -> None:
        ways = [compute, functools.partial(compute, "value"), Awaits(), lambda: compute()]
        for number, way in enumerate([*ways, compute(), asyncio.ensure_future(compute())]):
            assert await cache.aget_or_set(f"k{number}", way, **extras) == "value"
            if extras.get("timeout") != 0:
                assert await cache.aget(f"k{number}") == "value"

    asyncio.run(main())


def test_a_coroutine_in_a_plain_call_is_an_error_that_says_what_to_do(cache: Any) -> None:
    async def compute() -> str:
        return "value"

    with pytest.raises(TypeError, match="aget_or_set"):
        cache.get_or_set("k", compute)
    assert cache.get_or_set("k", lambda: "value") == "value"


def test_a_soft_deadline_is_everybody_s(
    make: Make, get_or_set: Any, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    cache = make()
    cache.set("other", [1])
    for value in ("text", b"bytes", {"a": (1, 2)}, None, [object]):
        cache.delete("k")
        assert get_or_set("k", lambda value=value: value, 10, stale=60) == value
        assert cache.get("k", "miss") == value
        assert cache.get_many(["k", "other"]) == {"k": value, "other": [1]}
        clock.advance_ms(10_000)
        assert cache.get("k", "miss") == "miss"
        assert cache.get("k") is None
        assert cache.get_many(["k", "other"]) == {"other": [1]}
        assert asyncio.run(cache.aget("k", "miss")) == "miss"
        assert cache.gets("k") is None
        assert get_or_set("k", lambda: "new", 10, stale=60) == value
    assert cache.counters.undecodable == 0
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_an_undecodable_value_is_still_counted(cache: Any, get_or_set: Any, clock: Any) -> None:
    before = cache.counters.undecodable  # of the process: the tests of one backend share it
    cache.engine.set(b":1:bad", b"\x8fgarbage", None)
    get_or_set("k", lambda: "v", 10, stale=60)
    clock.advance_ms(10_000)
    for _ in range(3):
        assert cache.get("k") is None
        assert cache.get("bad") is None
        assert cache.get("k") is None
    assert cache.counters.undecodable == before + 3


def test_an_early_recompute_replaces_the_value(
    cache: Any, get_or_set: Any, clock: FakeClock
) -> None:
    def slow(value: str) -> Callable[[], str]:
        def compute() -> str:
            clock.advance_ms(2000)
            return value

        return compute

    assert get_or_set("k", slow("first"), 100, early=True) == "first"
    clock.advance_ms(97_000)
    assert get_or_set("k", slow("second"), 100, early=True) == "first"
    clock.advance_ms(2000)
    assert get_or_set("k", slow("third"), 100, early=True) == "third"
    assert cache.get("k") == "third"


def test_an_error_leaves_the_old_value(cache: Any, get_or_set: Any, clock: FakeClock) -> None:
    calls = []

    def fail() -> None:
        calls.append(1)
        raise KeyError("database")

    assert get_or_set("k", lambda: "old", 10, stale_on_error=60) == "old"
    clock.advance_ms(11_000)
    for _ in range(3):
        assert get_or_set("k", fail, 10, stale_on_error=60) == "old"
    assert len(calls) == 1
    clock.advance_ms(60_000)
    with pytest.raises(KeyError, match="database"):
        get_or_set("k", fail, 10, stale_on_error=60)


def test_touch_keeps_the_grace(cache: Any, get_or_set: Any, clock: FakeClock) -> None:
    get_or_set("k", lambda: "v", 10, stale=60)
    for touch in (
        lambda: cache.touch("k", 100),
        lambda: cache.expire("k", 100),
        lambda: asyncio.run(cache.atouch("k", 100)),
    ):
        assert touch()
        envelope = opened(cache.engine.get(b":1:k"))
        assert envelope
        # Natively by the store's own clock, which ticks.
        assert abs(envelope.soft_ms - clock.now_ms() - 100_000) < 5_000
        assert 110_000 < cache.pttl("k") < 162_000
    clock.advance_ms(101_000)
    assert not cache.touch("k", 100)
    assert cache.get("k") is None
    assert not cache.touch("absent", 100)
    cache.set("plain", "v", 10)
    assert cache.touch("plain", 100)
    assert cache.touch("plain", 0)
    assert cache.get("plain") is None


def test_over_redis_a_touch_is_one_round_trip_and_knows_other_types(
    redis_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = RedisCache(f"unix://{redis_server.path}", {"OPTIONS": PATIENT})
    trips = []
    asked = cache._topology.ask_each
    monkeypatch.setattr(
        cache._topology, "ask_each", lambda *args: trips.append(args) or asked(*args)
    )
    monkeypatch.setattr(cache._topology, "ask", lambda *args: trips.append(args))
    with redis_server.client() as client:
        client.hset(cache.make_key("hash"), "field", 1)
        client.set(cache.make_key("empty"), "")
        client.set(cache.make_key("text"), "text")
        assert [cache.touch(key, 100) for key in ("hash", "empty", "text", "absent")] == [
            True,
            True,
            True,
            False,
        ]
        assert len(trips) == 4
        assert client.pttl(cache.make_key("hash")) > 50_000
        assert cache.persist("hash")
        assert client.pttl(cache.make_key("hash")) == -1
        assert cache.touch("hash", 0)
        assert not client.exists(cache.make_key("hash"))


def test_a_compressed_or_pickled_value_stays_so_inside(make: Make, clock: FakeClock) -> None:
    cache = make(compressor="zlib", compress_min=10, serializer="pickle")
    assert cache.get_or_set("k", lambda: "a" * 10_000, 10, stale=60) == "a" * 10_000
    assert len(cache.engine.get(b":1:k")) < 200
    assert cache.get("k") == "a" * 10_000
    assert make().get("k") == "a" * 10_000


def test_counters_stay_counters(cache: Any, get_or_set: Any) -> None:
    assert get_or_set("n", lambda: 5, 10, stale=60) == 5
    assert cache.incr("n") == 6
    assert cache.get("n") == 6
