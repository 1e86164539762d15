"""Redis 7.0 and a current Valkey say the same, in both protocols, to both parsers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nearcache import errors
from nearcache.base.clock import SystemClock
from nearcache.engines.contract import ABSENT
from nearcache.engines.redis.engine import RedisEngine
from nearcache.engines.redis.target.target import Address, Target
from nearcache.engines.redis.topology.standalone import Standalone
from tests.redis.askers import Plain
from tests.redis.servers import Server, running

HOUR_MS = 3_600_000
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def one_of_each(redis_directory: Path, either: dict[str, Any]) -> Iterator[Server]:
    with running(redis_directory, **either) as server:
        yield server


@pytest.fixture(params=[(2, "hiredis"), (2, "python"), (3, "hiredis"), (3, "python")], ids=str)
def run(request: pytest.FixtureRequest, one_of_each: Server, asker: Callable[[Any], Plain]) -> Run:
    """Calls (or awaits) a method of the engine."""
    one_of_each.ask("FLUSHALL")
    one_of_each.ask("SCRIPT", "FLUSH")
    protocol, parser = request.param
    where = (Address(path=one_of_each.path),)
    topology = Standalone(
        Target(addresses=where, protocol=protocol, parser=parser, read_timeout_s=20.0)
    )
    engine: Any = RedisEngine(topology)
    engine.close = topology.close
    return asker(engine).run


def soon() -> int:
    return SystemClock().now_ms() + HOUR_MS


def test_the_servers_are_two(one_of_each: Server, either: dict[str, Any]) -> None:
    info = one_of_each.ask("INFO", "server")
    version = info.partition("valkey_version:" if either else "redis_version:")[2]
    major = int(version.partition(".")[0])
    assert major >= 8 if either else major >= 6


def test_values_and_deadlines(run: Run) -> None:
    value = bytes(range(256)) * 300
    assert run("set", b"key", value, soon())
    assert run("get", b"key") == value
    assert run("get", b"none") is None
    assert 0 < run("expires_at", b"key") - SystemClock().now_ms() <= HOUR_MS
    assert run("touch", b"key", None)
    assert run("expires_at", b"key") is None
    assert run("touch", b"key", soon())
    assert run("expires_at", b"none") == ABSENT
    assert not run("add", b"key", b"other", soon())
    assert run("add", b"new", b"value", soon())
    assert run("contains", b"new")
    assert run("delete", b"new")
    assert not run("delete", b"new")
    assert run("get_and_set", b"key", b"next", soon()) == value
    assert run("get_and_set", b"fresh", b"first", None) is None


def test_counters_and_versions(run: Run) -> None:
    assert run("incr", b"count", 1) is None
    run("set", b"count", b"41", soon())
    assert run("incr", b"count", 1) == 42
    assert run("incr", b"count", -2) == 40
    assert run("expires_at", b"count") is not None
    run("set", b"count", b"9223372036854775807", None)
    with pytest.raises(errors.DataError):
        run("incr", b"count", 1)
    run("set", b"key", b"text", None)
    with pytest.raises(errors.DataError):
        run("incr", b"key", 1)
    value, version = run("gets", b"key")
    assert value == b"text"
    assert run("cas", b"key", b"next", version, soon())
    assert not run("cas", b"key", b"lost", version, soon())
    assert run("get", b"key") == b"next"


def test_many(run: Run) -> None:
    items = [(b"many:%d" % number, b"%d" % number) for number in range(2500)]
    keys = [key for key, _ in items]
    assert run("set_many", items, soon()) == []
    assert run("get_many", [*keys, b"none"]) == [*(value for _, value in items), None]
    seen: set[bytes] = set()
    cursor, steps = 0, 0
    while cursor or not steps:
        cursor, found = run("scan", cursor, 500, prefix=b"many:1")
        seen |= {item[0] for item in found}
        steps += 1
    assert seen == {key for key in keys if key.startswith(b"many:1")}
    assert run("delete_many", keys[:10]) == 10
    assert run("clear_matching", prefix=b"many:1") == len(seen - set(keys[:10]))
    left = run("stats")["items"]
    assert left == len(keys) - 10 - len(seen - set(keys[:10]))
    run("clear")
    assert run("get", keys[2000]) is None


def test_a_key_of_another_kind(run: Run, one_of_each: Server) -> None:
    one_of_each.ask("RPUSH", "list", "value")
    assert run("get_many", [b"list", b"none"]) == [None, None]
    with pytest.raises(errors.DataError, match="WRONGTYPE"):
        run("get", b"list")
