"""What the Redis engine does beyond the contract of all engines (tests/contract)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from typing import Any

import pytest

from nearcache.base.sans_io import run
from nearcache.engines.contract import Engine
from nearcache.engines.redis.contract import READ
from nearcache.engines.redis.engine import RedisEngine, open_redis
from nearcache.engines.redis.protocol.resp import pack
from nearcache.engines.redis.target.target import Address, Target
from nearcache.errors import DataError, EngineError
from tests.redis.servers import Server


@pytest.fixture
def engine(server: Server) -> Iterator[RedisEngine]:
    engine = open_redis(Target(addresses=(Address(path=server.path),), read_timeout_s=20.0))
    yield engine
    engine.topology.close()


def test_one_engine_per_target_and_process() -> None:
    here, there = (Target(addresses=(Address(host="h", port=port),)) for port in (1, 2))
    assert open_redis(here) is open_redis(Target(addresses=(Address(host="h", port=1),)))
    assert open_redis(here) is not open_redis(there)


def test_every_method_of_an_engine_is_there_twice() -> None:
    for name in [each for each in vars(Engine) if not each.startswith("_")]:
        assert callable(getattr(RedisEngine, name))
        assert asyncio.iscoroutinefunction(getattr(RedisEngine, f"a{name}")), name
    assert asyncio.iscoroutinefunction(RedisEngine.alen)


def test_the_twins_do_the_same(engine: RedisEngine) -> None:
    async def main() -> None:
        assert await engine.aset(b"k", b"v", None) is True
        assert await engine.aget(b"k") == b"v"
        found = await engine.agets(b"k")
        assert found is not None
        assert await engine.acas(b"k", b"1", found[1], None) is True
        assert await engine.aincr(b"k", 2) == 3
        assert await engine.aadd(b"k", b"x", None) is False
        assert await engine.aget_and_set(b"k", b"w", None) == b"3"
        assert await engine.aset_many([(b"a", b"1"), (b"b", b"2")], None) == []
        assert await engine.aget_many([b"a", b"none", b"b"]) == [b"1", None, b"2"]
        assert await engine.atouch(b"a", None) is True
        assert await engine.aexpires_at(b"a") is None
        assert await engine.acontains(b"a") is True
        assert await engine.amove(b"a", b"c") is True
        assert sorted(item[0] for item in (await engine.ascan(0, 100))[1]) == [b"b", b"c", b"k"]
        assert await engine.adelete(b"b") is True
        assert await engine.adelete_many([b"c", b"none"]) == 1
        assert await engine.alen() == 1
        assert (await engine.astats())["items"] == 1
        assert await engine.acheck() == []
        assert await engine.aclear_matching(prefix=b"k") == 1
        await engine.aset(b"k", b"v", None)
        await engine.aclear()
        assert await engine.acull(5) == 0
        assert await engine.alen() == 0

    asyncio.run(main())


class Counted:
    """A topology that counts: each of these calls is one write, and one wait for replies."""

    def __init__(self, topology: Any) -> None:
        self._topology = topology
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        self.asked += name in {"ask", "ask_each", "ask_many"}
        return getattr(self._topology, name)


def requests_of(engine: RedisEngine, server: Server, call: Any) -> list[str]:
    """The commands that a call of one round trip sends."""
    counted = Counted(engine.topology)
    with server.client(decode_responses=True) as client, client.monitor() as monitor:
        engine.topology.ask(pack(b"ECHO", b"begin"))
        call(RedisEngine(counted))  # type: ignore[arg-type]
        engine.topology.ask(pack(b"ECHO", b"end"))
        seen: list[str] = []
        for event in monitor.listen():
            seen.append(event["command"])
            if seen[-1] == "ECHO end":
                break
    assert counted.asked == 1, seen
    return [command.split()[0] for command in seen[seen.index("ECHO begin") + 1 : -1]]


@pytest.mark.parametrize(
    ("call", "commands"),
    [
        (lambda e: e.get(b"k"), ["GET"]),
        (lambda e: e.set(b"k", b"v", e.clock.now_ms() + 5000), ["SET"]),
        (lambda e: e.add(b"k", b"v", None), ["SET"]),
        (lambda e: e.touch(b"k", None), ["PERSIST", "EXISTS"]),
        (lambda e: e.touch(b"k", e.clock.now_ms() + 5000), ["PEXPIRE"]),
        (lambda e: e.expires_at(b"k"), ["PTTL"]),
        (lambda e: e.get_and_set(b"k", b"v", None), ["SET"]),
        (lambda e: e.get_many([b"%d" % i for i in range(1000)]), ["MGET"]),
        (lambda e: e.set_many([(b"a", b"1"), (b"b", b"2")], 10**14), ["SET", "SET"]),
        (lambda e: e.delete_many([b"a", b"b", b"c"]), ["UNLINK"]),
        (lambda e: e.move(b"k", b"l"), ["RENAME"]),
    ],
)
def test_each_is_one_round_trip(
    engine: RedisEngine, server: Server, call: Any, commands: list[str]
) -> None:
    engine.set(b"k", b"1", None)
    assert requests_of(engine, server, call) == commands


def test_a_script_is_one_round_trip_once_the_server_knows_it(
    engine: RedisEngine, server: Server
) -> None:
    engine.set(b"k", b"1", None)
    with server.client() as client:
        client.script_flush()
    assert engine.incr(b"k", 1) == 2
    sent = requests_of(engine, server, lambda engine: engine.incr(b"k", 1))
    assert sent[0] == "EVALSHA"
    assert engine.get(b"k") == b"3"


def test_incr_is_exact_beyond_what_lua_s_numbers_hold(engine: RedisEngine) -> None:
    engine.set(b"n", b"%d" % 2**62, None)
    assert engine.incr(b"n", 1) == 2**62 + 1
    assert engine.get(b"n") == b"%d" % (2**62 + 1)


def test_a_lifetime_is_sent_as_time_left_not_as_a_date(engine: RedisEngine, server: Server) -> None:
    class Ahead:
        def now_ms(self) -> int:
            return 10**13  # as if this host's clock were centuries ahead of the server's

    apart = RedisEngine(engine.topology, Ahead())  # type: ignore[arg-type]
    apart.set(b"k", b"v", 10**13 + 60_000)
    with server.client() as client:
        assert 0 < client.pttl("k") <= 60_000
    deadline = apart.expires_at(b"k")
    assert deadline is not None
    assert 10**13 < deadline <= 10**13 + 60_000


def test_the_token_of_gets_is_the_value_s_sha1(engine: RedisEngine) -> None:
    engine.set(b"k", b"v", None)
    found = engine.gets(b"k")
    assert found is not None
    assert found[1] == int(hashlib.sha1(b"v", usedforsecurity=False).hexdigest(), 16)
    engine.set(b"k", b"w", None)
    engine.set(b"k", b"v", None)
    assert engine.cas(b"k", b"new", found[1], None)


def test_cas_gives_the_deadline_it_is_told(engine: RedisEngine) -> None:
    engine.set(b"k", b"v", None)
    for lifetime_ms in (60_000, None):
        found = engine.gets(b"k")
        assert found is not None
        deadline = None if lifetime_ms is None else engine.clock.now_ms() + lifetime_ms
        assert engine.cas(b"k", b"v2", found[1], deadline)
        left = engine.expires_at(b"k")
        assert (left is None) == (deadline is None)
    found = engine.gets(b"k")
    assert found is not None
    assert engine.cas(b"k", b"v3", found[1], 1)
    assert engine.get(b"k") is None


def test_move_keeps_the_deadline_and_says_if_nothing_was_there(engine: RedisEngine) -> None:
    engine.set(b"k", b"v", engine.clock.now_ms() + 60_000)
    engine.set(b"l", b"old", None)
    assert engine.move(b"k", b"l") is True
    assert engine.get(b"k") is None
    assert engine.get(b"l") == b"v"
    deadline = engine.expires_at(b"l")
    assert deadline is not None
    assert deadline - engine.clock.now_ms() > 0
    assert engine.move(b"k", b"l") is False
    assert engine.get(b"l") == b"v"


def test_keys_of_other_types_are_errors_of_data(engine: RedisEngine, server: Server) -> None:
    with server.client() as client:
        client.rpush("k", 1)
    for call in (lambda: engine.get(b"k"), lambda: engine.incr(b"k", 1), lambda: engine.gets(b"k")):
        with pytest.raises(DataError):
            call()
    assert engine.get_many([b"k"]) == [None]


def test_an_error_reply_is_raised_with_its_text(engine: RedisEngine) -> None:
    with pytest.raises(EngineError, match="unknown command"):
        run(engine._one(READ, b"k", b"NOSUCHCOMMAND", b"k"), engine, engine.clock)


def test_no_step_of_deleting_by_pattern_is_large(engine: RedisEngine, server: Server) -> None:
    with server.client() as client:
        pipeline = client.pipeline(transaction=False)
        for start in range(0, 100_000, 1000):
            pipeline.mset({f"{'x' if i % 10 else 'y'}:{i}": i for i in range(start, start + 1000)})
        pipeline.execute()
        client.config_resetstat()
        assert engine.clear_matching(prefix=b"y:") == 10_000
        assert client.dbsize() == 90_000
        stats = client.info("commandstats")
    # A server answers nobody else meanwhile: a thousandth of a second each, or less.
    assert stats["cmdstat_scan"]["calls"] >= 100_000 / 1000
    assert stats["cmdstat_unlink"]["calls"] >= 10_000 / 1000


def test_clear_leaves_locks_and_flush_does_not(engine: RedisEngine) -> None:
    engine.set(b"k", b"v", None)
    token = engine.lock_acquire(b"name", 60_000)
    assert token
    engine.clear()
    assert engine.get(b"k") is None
    assert engine.lock_acquire(b"name", 60_000) is None
    engine.flush()
    assert engine.lock_acquire(b"name", 60_000) is not None
