"""A large reply on a slow link: who waits behind it waits as long as its bytes flow."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from nearcache.engines.redis.connection.sync_connection import SyncConnection
from nearcache.engines.redis.contract import READ
from nearcache.engines.redis.protocol.resp import pack
from nearcache.engines.redis.target.target import Target
from nearcache.errors import ReplyTimeout
from tests.redis.async_connections import line_to
from tests.redis.proxies import proxy
from tests.redis.servers import Server

BIG = bytes(4_000_000)
PACE = len(BIG) // 400  # it takes four seconds
WAIT_S = 1.5


@pytest.fixture
def big(server: Server) -> Server:
    with server.client() as client:
        client.set("big", BIG)
    return server


def test_threads_wait_while_its_bytes_flow(big: Server) -> None:
    with proxy(big) as slow:
        line = SyncConnection(Target(read_timeout_s=20.0, connect_timeout_s=20.0), slow.address)
        line.ask(pack(b"PING"))
        line._wait_s = WAIT_S
        slow.pace = PACE
        replies: dict[Any, Any] = {}

        def ask(name: str, packed: bytes) -> None:
            replies[name] = line.ask(packed, None, READ)

        leader = threading.Thread(target=ask, args=("big", pack(b"GET", b"big")))
        leader.start()
        while not line._state.channel.moved:
            time.sleep(0.001)
        others = [
            threading.Thread(target=ask, args=(n, pack(b"ECHO", b"%d" % n))) for n in range(3)
        ]
        for each in others:
            each.start()
        for each in [leader, *others]:
            each.join()
        line.close()
    assert replies == {"big": BIG, **{n: b"%d" % n for n in range(3)}}
    assert line.stats()["abandoned"] == line.stats()["deposed"] == 0


def test_nobody_waits_for_a_trickle(big: Server) -> None:
    """The leader does, at most as long as its 64 KB per time limit take; the others do not."""
    with proxy(big) as slow:
        line = SyncConnection(Target(read_timeout_s=20.0, connect_timeout_s=20.0), slow.address)
        line.ask(pack(b"PING"))
        line._wait_s = 0.3
        slow.pace = 1
        leader = threading.Thread(target=line.ask, args=(pack(b"GETRANGE", b"big", 0, 300),))
        leader.start()
        while not line._state.channel.moved:
            time.sleep(0.001)
        with pytest.raises(ReplyTimeout, match="behind other commands"):
            line.ask(pack(b"ECHO", b"x"), None, READ)
        slow.pace = None
        leader.join()
        line.close()


def test_tasks_wait_while_its_bytes_flow(big: Server) -> None:
    async def main() -> None:
        assert await line.ask(pack("PING")) == b"PONG"
        slow.pace = PACE
        asked = [line.ask(pack("GET", "big"), None, READ)]
        asked += [line.ask(pack("ECHO", n), None, READ) for n in range(3)]
        assert await asyncio.gather(*asked) == [BIG, b"0", b"1", b"2"]
        assert line.stats()["async_timeouts"] == 0

    with proxy(big) as slow:
        line = line_to(slow.address, read_timeout_s=WAIT_S)
        asyncio.run(main())
