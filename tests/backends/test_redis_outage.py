"""While the server is away: raised, or forgiven where that is asked for, and told once."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.contrib.sessions.backends.cache import SessionStore
from django.core.cache import caches
from django.test import override_settings

from nearcache.backends import RedisCache
from nearcache.base.clock import FakeClock
from nearcache.base.degraded_mode import DegradedMode
from nearcache.errors import (
    AuthenticationFailed,
    CircuitOpen,
    ConnectionFailed,
    DataError,
    EngineUnavailable,
    ServerNotReady,
)
from tests.backends.conftest import PATIENT
from tests.redis.servers import Server, running

FAST = PATIENT | {"breaker_pause": 0.05}
Make = Callable[..., Any]


@pytest.fixture
def server(redis_directory: Path) -> Iterator[Server]:
    with running(redis_directory) as server:
        yield server


@pytest.fixture
def make(server: Server) -> Iterator[Make]:
    made: list[Any] = []

    def make(**given: Any) -> Any:
        params = {"KEY_PREFIX": given.pop("KEY_PREFIX", ""), "OPTIONS": FAST | given}
        made.append(RedisCache(f"unix://{server.path}", params))
        return made[-1]

    yield make
    for cache in made:
        cache.engine.topology.close()


def test_by_default_everything_raises(make: Make, server: Server) -> None:
    cache = make()
    cache.set("k", 1)
    server.kill()
    for call in (lambda: cache.get("k"), lambda: cache.set("k", 2), lambda: cache.ttl("k")):
        with pytest.raises(EngineUnavailable):
            call()
    with pytest.raises(EngineUnavailable):
        asyncio.run(cache.aget("k"))


def test_forgiven_it_is_a_cache_that_holds_nothing(make: Make, server: Server) -> None:
    cache = make(on_error="miss")
    cache.set("k", 1)
    server.kill()
    assert cache.get("k") is None
    assert cache.get("k", "default") == "default"
    assert cache.get("k", default="default") == "default"
    assert cache.get_many(["k"]) == {}
    assert cache.set("k", 1) is False
    assert cache.add("k", 1) is False
    assert cache.set_many({"a": 1, "b": 2}) == ["a", "b"]
    assert cache.touch("k") is False
    assert cache.delete("k") is False
    assert cache.delete_many(["k"]) is None
    assert cache.has_key("k") is False
    assert "k" not in cache
    assert cache.get_or_set("k", lambda: "computed") == "computed"
    assert cache.ttl("k") == cache.pttl("k") == 0
    assert cache.expire("k", 5) is cache.pexpire("k", 5) is cache.persist("k") is False
    assert cache.expire_at("k", 5) is cache.pexpire_at("k", 5) is False
    assert cache.keys() == list(cache.iter_keys()) == []
    assert cache.delete_pattern("*") == 0
    assert cache.clear() is None
    assert cache.stats()["forgiven"] >= 20


def test_forgiven_in_coroutines_as_well(make: Make, server: Server) -> None:
    cache = make(on_error="miss")
    server.kill()

    async def main() -> None:
        assert await cache.aget("k", "default") == "default"
        assert await cache.aset("k", 1) is False
        assert await cache.aadd("k", 1) is False
        assert await cache.aget_many(["k"]) == {}
        assert await cache.aset_many({"k": 1}) == ["k"]
        assert await cache.adelete("k") is False
        assert await cache.attl("k") == 0
        assert [key async for key in cache.aiter_keys()] == await cache.akeys() == []
        assert await cache.aget_or_set("k", lambda: "computed") == "computed"
        assert (await cache.astats())["forgiven"] >= 8
        with pytest.raises(EngineUnavailable):
            await cache.aincr("k")

    asyncio.run(main())


def test_numbers_and_decisions_are_never_made_up(make: Make, server: Server) -> None:
    cache = make(on_error="miss")
    cache.set("k", 1)
    server.kill()
    for call in (
        lambda: cache.incr("k"),
        lambda: cache.decr("k"),
        lambda: cache.incr("k", ignore_key_check=True),
        lambda: cache.incr_version("k"),
        lambda: cache.gets("k"),
        lambda: cache.cas("k", 2, 1),
        lambda: cache.lock("k", timeout=1).acquire(blocking=False),
        lambda: cache.check(),
        lambda: cache.flush_all(),
    ):
        with pytest.raises(EngineUnavailable):
            call()


def test_one_line_at_the_beginning_and_one_at_the_end(
    make: Make,
    server: Server,
    caplog: pytest.LogCaptureFixture,
    eventually: Callable[[Callable[[], object]], None],
) -> None:
    cache, other = make(on_error="miss"), make(on_error="miss")
    with caplog.at_level(logging.INFO, "nearcache.outage"):
        cache.set("k", 1)
        assert not _told(caplog)
        server.kill()
        for _ in range(10):
            cache.get("k")
            other.delete("k")
        assert len(_told(caplog)) == 1
        assert "does not answer" in _told(caplog)[0]
        server.start()
        server.wait_ready()
        eventually(lambda: cache.set("k", 1))
        assert cache.get("k") == 1
        assert len(_told(caplog)) == 2
        assert "answers again" in _told(caplog)[1]


def test_django_redis_s_setting_for_all_caches_counts(make: Make, server: Server) -> None:
    server.kill()
    with override_settings(DJANGO_REDIS_IGNORE_EXCEPTIONS=True):
        assert make().get("k", "default") == "default"
        with pytest.raises(EngineUnavailable):
            make(on_error="raise").get("k")
    assert make(IGNORE_EXCEPTIONS=True).get("k", "default") == "default"


def test_a_wrong_password_is_no_outage(make: Make, server: Server) -> None:
    with server.client() as client:
        client.config_set("requirepass", "right")
    cache = make(PASSWORD="wrong", on_error="miss")
    for _ in range(5):
        with pytest.raises(AuthenticationFailed) as caught:
            cache.get("k")
        assert "wrong" not in str(caught.value)
    with pytest.raises(AuthenticationFailed):
        asyncio.run(cache.aget("k"))
    assert make(PASSWORD="right").set("k", 1) is True


def test_a_key_of_another_type_is_no_outage(make: Make, server: Server) -> None:
    cache = make(on_error="miss")
    with server.client() as client:
        client.rpush(":1:list", 1)
    for call in (lambda: cache.get("list"), lambda: cache.incr("list"), lambda: cache.gets("list")):
        with pytest.raises(DataError):
            call()
    assert cache.get_many(["list"]) == {}
    assert cache.set("list", "mine now") is True


def test_a_full_server_is_an_outage_of_writes(make: Make, server: Server) -> None:
    raising, forgiving = make(), make(on_error="miss")
    with server.client() as client:
        client.set(":1:k", b"1")
        client.config_set("maxmemory", "1mb")
        client.config_set("maxmemory-policy", "noeviction")
    with pytest.raises(ServerNotReady, match="maxmemory"):
        raising.set("k", b"x" * 100_000)
    assert forgiving.set("k", b"x" * 100_000) is False
    assert forgiving.set_many({"a": b"x" * 1000}) == ["a"]
    assert forgiving.get("k") == 1


def _fill(server: Server) -> None:
    with server.client() as client:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", "100kb")


def _empty(server: Server) -> None:
    with server.client() as client:
        client.config_set("maxmemory", "0")


def _through_set(cache: Any, number: int) -> None:
    if cache.get(f"k{number}") is None:
        cache.set(f"k{number}", "x" * 2000)
    cache.delete(f"k{number}")


def _through_get_or_set(cache: Any, number: int) -> None:
    assert cache.get_or_set(f"k{number}", "x" * 2000) == "x" * 2000


def _through_add_and_set_many(cache: Any, number: int) -> None:
    cache.get_many(["a"])
    cache.add(f"k{number}", 1)
    cache.set_many({"a": 1})
    cache.set("a", 1, timeout=0)  # which deletes


@pytest.mark.parametrize("use", [_through_set, _through_get_or_set, _through_add_and_set_many])
def test_a_full_server_is_told_of_in_two_lines(
    make: Make, server: Server, caplog: pytest.LogCaptureFixture, use: Callable[[Any, int], None]
) -> None:
    cache = make(on_error="miss")
    _fill(server)
    for number in range(1000):
        use(cache, number)
    assert len(_told(caplog)) == 1
    assert "takes no writes: until it does, they are dropped" in _told(caplog)[0]
    assert "OOM" in _told(caplog)[0]
    assert cache.stats()["forgiven"] >= 1000
    _empty(server)
    for number in range(1000):
        use(cache, number)
    assert len(_told(caplog)) == 2
    assert "takes writes again" in _told(caplog)[1]


def test_a_full_server_is_told_of_in_two_lines_by_coroutines_too(
    make: Make, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    cache = make(on_error="miss")

    async def use() -> None:
        for number in range(50):
            assert await cache.aget(f"k{number}") is None
            await cache.aset(f"k{number}", 1)
            await cache.aadd(f"k{number}", 1)
            await cache.adelete(f"k{number}")
            await cache.aget_or_set(f"k{number}", 1)
            await cache.adelete(f"k{number}")

    _fill(server)
    asyncio.run(use())
    _empty(server)
    asyncio.run(use())
    began, ended = _told(caplog)
    assert "takes no writes" in began
    assert "takes writes again: 150 in" in ended


def test_writes_without_a_primary_do_not_end_with_each_read_of_a_replica(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outage = DegradedMode("primary and replica", FakeClock())
    for _ in range(100):
        outage.forgive(ConnectionFailed("refused"), write=True)
        if outage.on:
            outage.end()
    assert len(_told(caplog)) == 3
    assert "takes no writes" in _told(caplog)[2]
    outage.end_of_writes()
    assert len(_told(caplog)) == 4
    assert "takes writes again: 99 in" in _told(caplog)[3]
    assert (outage.on, outage.refused, outage.drops) == (False, False, False)


def test_a_write_after_an_outage_ends_the_doubt_silently(caplog: pytest.LogCaptureFixture) -> None:
    outage = DegradedMode("server", FakeClock())
    outage.forgive(ConnectionFailed("refused"), write=True)
    outage.end()
    assert outage.drops
    outage.end_of_writes()
    assert not outage.drops
    assert len(_told(caplog)) == 2


def test_a_server_that_answers_that_it_cannot_is_not_said_to_be_silent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outage = DegradedMode("server", FakeClock())
    outage.forgive(ServerNotReady("LOADING: wait"))
    assert "server does not serve: until it does, reads miss" in _told(caplog)[0]


def test_a_call_during_an_outage_asks_nobody(make: Make, server: Server) -> None:
    cache = make(on_error="miss", breaker_pause=3600)
    cache.set("k", 1)
    server.kill()
    raising = make(breaker_pause=3600)
    for _ in range(5):
        cache.get("k")
    with pytest.raises(CircuitOpen):
        raising.get("k")
    server.start()
    server.wait_ready()
    with server.client() as client:
        client.set(":1:k", 1)
        before = client.info("stats")["total_connections_received"]
        # So no call waits for a timeout, nor for a connection.
        assert [cache.get("k") for _ in range(50)] == [None] * 50
        assert client.info("stats")["total_connections_received"] == before


def test_a_session_is_not_tried_ten_thousand_times(server: Server) -> None:
    sessions = {
        "BACKEND": "nearcache.backends.RedisCache",
        "LOCATION": f"unix://{server.path}",
        "OPTIONS": FAST | {"on_error": "miss"},
    }
    settings = {
        "CACHES": {"default": sessions, "other": {**sessions, "KEY_PREFIX": "other"}},
        "SESSION_ENGINE": "django.contrib.sessions.backends.cache",
    }
    with override_settings(**settings):
        SessionStore().create()
        server.kill()
        with pytest.raises(EngineUnavailable):
            SessionStore().create()
        assert caches["other"].add("k", 1) is False
        assert caches["default"].get("k") is None
        with override_settings(SESSION_ENGINE="django.contrib.sessions.backends.db"):
            assert caches["default"].add("k", 1) is False
        caches["default"].engine.topology.close()


def test_close_keeps_the_connection(make: Make, server: Server) -> None:
    cache = make()
    cache.set("k", 1)
    for _ in range(10):
        cache.close(signal=None)
        assert make().get("k") == 1
    with server.client() as client:
        assert client.info("stats")["total_connections_received"] <= 3  # one of them is this


def test_all_threads_share_one_connection_and_all_tasks_another(make: Make, server: Server) -> None:
    def use(number: int) -> None:
        cache = make()  # as Django does for each thread and each task
        cache.set(f"k{number}", number)
        assert cache.get(f"k{number}") == number

    async def ause(number: int) -> None:
        cache = make()
        await cache.aset(f"k{number}", number)
        assert await cache.aget(f"k{number}") == number

    async def main() -> None:
        await asyncio.gather(*map(ause, range(20)))

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(use, range(20)))
    asyncio.run(main())
    with server.client() as client:
        # The test's own two: waiting for the server, and this one.
        assert client.info("stats")["total_connections_received"] <= 4


def test_parent_and_child_of_a_fork_have_connections_of_their_own(make: Make) -> None:
    cache = make()
    cache.set("k", "parent")
    child = os.fork()
    if child == 0:
        ok = False
        try:
            ok = all(cache.get("k") == "parent" for _ in range(200))
        finally:
            os._exit(0 if ok else 1)
    cache.set("n", 5)
    assert all(cache.get("k") == "parent" for _ in range(200))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "nearcache.outage"]
