"""One server: nothing stands between the topology and its line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nearcache.engines.redis.contract import READ
from nearcache.engines.redis.protocol.resp import ErrorReply, pack
from nearcache.engines.redis.target.target import Address, Target
from nearcache.engines.redis.topology.standalone import Standalone
from tests.redis.askers import Plain
from tests.redis.servers import Server

Ask = Callable[[Any], Plain]


def open_one(server: Server, **fields: Any) -> Standalone:
    return Standalone(
        Target(addresses=(Address(path=server.path),), **{"read_timeout_s": 20.0} | fields)
    )


def test_the_methods_are_the_line_s_own(server: Server) -> None:
    topology = open_one(server)
    for name in ("ask", "ask_many", "aask", "aask_many"):
        assert getattr(topology, name) == getattr(topology.primary, name)
    assert not topology.sharded


def test_making_one_connects_to_nothing(server: Server) -> None:
    def connections() -> int:
        return len(server.ask("CLIENT", "LIST").splitlines())

    before = connections()
    topology = open_one(server)
    assert topology.primaries() == [topology.primary]
    assert connections() == before
    assert topology.ask(pack("PING")) == b"PONG"
    assert connections() == before + 1
    topology.close()


def test_replies_come_in_the_order_of_requests(server: Server, asker: Ask) -> None:
    ask = asker(open_one(server))
    keys = [f"key:{number}" for number in range(500)]
    assert ask.each(*[("SET", key, key) for key in keys]) == [b"OK"] * 500
    replies = ask.each(*[("GET", key) for key in keys])
    assert replies == [key.encode() for key in keys]
    mixed = ask.each(("INCR", "n"), ("INCR", "key:1"), ("INCR", "n"))
    assert (mixed[0], mixed[2]) == (1, 2)
    assert isinstance(mixed[1], ErrorReply)
    [line] = ask.primaries()
    assert line is ask.topology.primary


def test_a_client_of_redis_py_for_the_rest(server: Server) -> None:
    topology = open_one(server, database=2)
    topology.client().set("whose", "redis-py's")
    assert topology.ask(pack("GET", "whose"), b"whose", READ) == b"redis-py's"
    topology.close()


def test_a_name_that_leads_elsewhere_after_a_failover_is_followed(
    pair: list[Server], redis_directory: Path, asker: Ask
) -> None:
    primary, replica = pair
    name = redis_directory / "name.sock"  # as a DNS name or a floating address
    os.symlink(primary.path, name)
    ask = asker(Standalone(Target(addresses=(Address(path=str(name)),))))
    assert ask("SET", "key", "value") == b"OK"
    replica.ask("REPLICAOF", "NO", "ONE")
    primary.ask("REPLICAOF", "127.0.0.1", replica.port)
    name.unlink()
    os.symlink(replica.path, name)
    refused = ask("SET", "key", "other")
    assert refused.code == "READONLY"
    ask.topology.told(refused)
    assert ask("SET", "key", "other") == b"OK"
    name.unlink()
