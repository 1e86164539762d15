"""What tests of one connection per loop share: a line, and a look at the server's side of it."""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Callable, Coroutine
from typing import Any

from nearcache.engines.redis.connection.async_connection import AsyncConnection
from nearcache.engines.redis.connection.breaker import Breaker
from nearcache.engines.redis.protocol.resp import pack
from nearcache.engines.redis.target.target import Address, Target
from tests.redis.servers import Server

PING = pack("PING")


class Record(Breaker):
    """A breaker that remembers what it was told."""

    def __init__(self) -> None:
        super().__init__("server", failures=1000)
        self.told: list[BaseException] = []

    def failed(self, error: BaseException) -> None:
        self.told.append(error)
        super().failed(error)


def line_to(address: Address, **fields: Any) -> AsyncConnection:
    target = Target(
        addresses=(address,), **({"read_timeout_s": 20.0, "connect_timeout_s": 20.0} | fields)
    )
    line = AsyncConnection(target, address)
    line.breaker = Record()
    return line


def line_of(server: Server, name: str = "line", **fields: Any) -> AsyncConnection:
    named = (("client_name", name),)
    return line_to(Address(path=server.path), connection_kwargs=named, **fields)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(main())


def ids_of(server: Server, name: str = "line") -> set[str]:
    with server.client() as client:
        return {each["id"] for each in client.client_list() if each["name"] == name}


def kill(server: Server, name: str = "line") -> None:
    with server.client() as client:
        for each in ids_of(server, name):
            client.client_kill_filter(_id=each)


def impatient(line: AsyncConnection, seconds: float) -> None:
    """The connection that there is waits for a reply no longer; the next is patient again."""
    wire = line._line()._wire
    assert wire
    wire._timeout_s = seconds
    if wire._timer is not None:
        wire._timer.cancel()
        wire._timer = None


async def until(condition: Callable[[], Any]) -> None:
    give_up_at = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < give_up_at
        await asyncio.sleep(0.001)


async def blocked(server: Server, name: str = "line") -> None:
    """Returns when that connection waits for a list."""
    with server.client() as client:

        def seen() -> bool:
            found = [each for each in client.client_list() if each["name"] == name]
            return any("b" in each["flags"] for each in found)

        await until(seen)


def keep_busy(
    runner: asyncio.Runner,
    line: AsyncConnection,
    pause: Callable[[], Any],
    resume: Callable[[], Any],
) -> None:
    """A reply that comes while nobody looks, and later than the line waits for one, is taken."""

    async def main() -> None:
        assert await line.ask(PING) == b"PONG"
        wire = line._line()._wire
        assert wire
        reply_came = select.poll()
        reply_came.register(wire._transport.get_extra_info("socket").fileno(), select.POLLIN)
        impatient(line, 0.05)
        pause()
        asked = asyncio.ensure_future(line.ask(pack("ECHO", "there")))
        for _ in range(3):
            await asyncio.sleep(0)  # written by now
        resume()
        assert reply_came.poll(10_000)  # and nobody looks
        time.sleep(0.1)  # and the time runs out
        assert await asked == b"there"

    runner.run(main())
