"""A primary with replicas that the settings name."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nearcache.engines.redis.connection.connection_state import CLOSED
from nearcache.engines.redis.target.target import Address, Target
from nearcache.engines.redis.topology.standalone import Standalone
from tests.redis.askers import Plain
from tests.redis.servers import Server, wait_for

Ask = Callable[[Any], Plain]


@pytest.fixture
def counted(pair: list[Server]) -> Iterator[list[Server]]:
    for server in pair:
        server.ask("CONFIG", "RESETSTAT")
    yield pair
    for server in pair:
        server.resume()


def open_pair(pair: list[Server], **fields: Any) -> Standalone:
    primary, replica = (Address(path=server.path) for server in pair)
    patient = {"read_timeout_s": 20.0, "connect_timeout_s": 20.0}  # a slow host is no fault
    return Standalone(Target(addresses=(primary,), replicas=(replica,), **patient | fields))


def hurry(line: Any, seconds: float) -> None:
    """The connections that this server has wait for a reply no longer."""
    channel = line._line._state.channel
    if channel is not CLOSED:
        limit = struct.pack("ll", 0, int(seconds * 1_000_000))
        channel.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    for reference in line._aline._by_loop.here().values():
        wire = reference()._wire
        wire._timeout_s = seconds
        wire._timer.cancel()
        wire._timer = None


def calls(server: Server, command: str) -> int:
    stats = server.ask("INFO", "commandstats")
    name = f"cmdstat_{command}:"
    line = next((line for line in stats.splitlines() if line.startswith(name)), "calls=0,")
    return int(line.partition("calls=")[2].partition(",")[0])


def settle(ask: Plain, replica: Server) -> None:
    ask("SET", "key", "value")
    wait_for(lambda: replica.ask("GET", "key") == "value", "replication")
    replica.ask("CONFIG", "RESETSTAT")


def test_reads_go_to_the_primary_unless_asked(counted: list[Server], asker: Ask) -> None:
    ask = asker(open_pair(counted))
    settle(ask, counted[1])
    assert ask("GET", "key") == b"value"
    assert (calls(counted[0], "get"), calls(counted[1], "get")) == (1, 0)


def test_reads_go_to_the_replica_if_asked(counted: list[Server], asker: Ask) -> None:
    ask = asker(open_pair(counted, read_replicas=True))
    settle(ask, counted[1])
    assert ask("GET", "key") == b"value"
    assert ask.each(("GET", "key"), ("GET", "none")) == [b"value", None]
    assert ask("INCR", "count") == 1
    assert (calls(counted[0], "get"), calls(counted[1], "get")) == (0, 3)
    assert calls(counted[0], "incr") == 1
    stats = ask.topology.stats()
    assert (stats["replica_reads"], stats["replica_fallbacks"]) == (2, 0)


def test_a_replica_that_is_down_is_passed_over(counted: list[Server], asker: Ask) -> None:
    ask = asker(open_pair(counted, read_replicas=True))
    settle(ask, counted[1])
    counted[1].kill()
    for _ in range(10):
        assert ask("GET", "key") == b"value"
        assert ask.each(("GET", "key")) == [b"value"]
    assert ask.topology.stats()["replica_fallbacks"] == 20


def test_a_replica_that_hangs_costs_its_timeout_and_then_nothing(
    counted: list[Server], asker: Ask
) -> None:
    ask = asker(open_pair(counted, read_replicas=True, breaker_failures=1, breaker_s=600.0))
    settle(ask, counted[1])
    assert ask("GET", "key") == b"value"
    [replica] = ask.topology._others
    hurry(replica, 0.05)
    counted[1].pause()
    for _ in range(20):
        assert ask("GET", "key") == b"value"
    assert ask.topology.stats()["replica_fallbacks"] == 20
    assert replica.breaker.stats()["failures"] == 1


def test_a_replica_out_of_step_is_passed_over(counted: list[Server], asker: Ask) -> None:
    ask = asker(open_pair(counted, read_replicas=True))
    settle(ask, counted[1])
    counted[1].ask("CONFIG", "SET", "replica-serve-stale-data", "no")
    counted[1].ask("REPLICAOF", "127.0.0.1", 1)
    assert ask("GET", "key") == b"value"
    assert ask.each(("GET", "key"), ("GET", "none")) == [b"value", None]
    assert ask.topology.stats()["replica_fallbacks"] == 2
