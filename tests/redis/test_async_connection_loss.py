"""An event loop's connection that is lost: what is asked again, once, and what never is."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from nearcache.base.clock import FakeClock
from nearcache.engines.redis.connection import async_wire
from nearcache.engines.redis.connection.async_connection import AsyncConnection
from nearcache.engines.redis.connection.breaker import Breaker
from nearcache.engines.redis.contract import ONCE, READ, SAFE
from nearcache.engines.redis.protocol.resp import pack
from nearcache.engines.redis.target.target import Address
from nearcache.errors import CircuitOpen, ConnectionFailed
from nearcache.lab.servers import free_port
from tests.redis.async_connections import PING, blocked, ids_of, kill, line_of, line_to, run, until
from tests.redis.servers import Server


def test_what_may_be_repeated_survives_its_connection(server: Server) -> None:
    line = line_of(server)

    async def main() -> None:
        read = asyncio.create_task(line.ask(pack("BLPOP", "list", 0), None, READ))
        await blocked(server)
        kill(server)
        await until(lambda: line.stats()["async_retries"] == 1)
        await blocked(server)
        with server.client() as client:
            client.rpush("list", "value")
        assert await read == [b"list", b"value"]
        assert line.stats()["async_connects"] == 2

    run(main)


def test_it_is_repeated_once_only(server: Server) -> None:
    line = line_of(server)

    async def main() -> None:
        read = asyncio.create_task(line.ask(pack("BLPOP", "list", 0), None, SAFE))
        for _ in range(2):
            await blocked(server)
            kill(server)
            await until(lambda: not ids_of(server) or read.done())
        with pytest.raises(ConnectionFailed):
            await read

    run(main)


def test_what_must_not_be_repeated_is_not_once_it_was_written(server: Server) -> None:
    line = line_of(server)

    async def main() -> None:
        popped = asyncio.create_task(line.ask(pack("BLPOP", "list", 0), None, ONCE))
        counted = asyncio.create_task(line.ask(pack("INCR", "counter"), None, ONCE))
        await blocked(server)
        kill(server)
        for task in (popped, counted):
            with pytest.raises(ConnectionFailed, match="may or may not have been carried out"):
                await task
        assert await line.ask(pack("INCR", "counter"), None, ONCE) == 1
        assert [type(each) for each in line.breaker.told] == [ConnectionFailed]

    run(main)


def test_a_connection_closed_while_idle_costs_nobody_an_error(server: Server) -> None:
    line = line_of(server)

    async def main() -> None:
        for expected in range(1, 4):
            assert await line.ask(pack("INCR", "counter"), None, ONCE) == expected
            kill(server)
            await asyncio.sleep(0.01)  # the loop sees it
        assert line.breaker.told == []

    run(main)


@pytest.mark.parametrize("idle_s", [0.02, async_wire.IDLE_S * 1.5])
def test_nor_one_closed_while_the_loop_stood_still(server: Server, idle_s: float) -> None:
    line = line_of(server)
    with asyncio.Runner() as runner:
        for expected in range(1, 4):
            assert runner.run(line.ask(pack("INCR", "counter"), None, ONCE)) == expected
            kill(server)
            time.sleep(idle_s)
    assert line.breaker.told == []


def test_nor_one_closed_while_a_task_kept_the_loop_from_looking(server: Server) -> None:
    line = line_of(server)

    async def main() -> None:
        for expected in range(1, 4):
            assert await line.ask(pack("INCR", "counter"), None, ONCE) == expected
            kill(server)
            time.sleep(async_wire.IDLE_S * 1.5)  # and straight on to the next request
        assert line.breaker.told == []

    run(main)


def test_nobody_there_is_one_failure_for_all_who_ask(server: Server) -> None:
    line = line_to(Address(host="127.0.0.1", port=free_port()))

    async def main() -> None:
        asked = (line.ask(PING, None, READ) for _ in range(50))
        results = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(each, ConnectionFailed) for each in results)
        assert line.name in str(results[0])
        assert len({id(each) for each in results}) == 50
        assert results[0].__cause__ is not None
        assert len(line.breaker.told) == 1

    run(main)


def test_an_open_circuit_answers_at_once_and_closes_when_the_server_answers(
    server: Server,
) -> None:
    line = line_of(server)
    clock = FakeClock()
    line.breaker = breaker = Breaker("server", failures=1, clock=clock.monotonic_s)

    async def main() -> None:
        breaker.failed(ConnectionFailed("away"))
        with pytest.raises(CircuitOpen, match="away"):
            await line.ask(PING)
        clock.advance_ms(2000)
        assert await line.ask(PING) == b"PONG"
        assert breaker.state == "closed"

    run(main)


class Odd:
    """Shakes hands as a server does, and then does not keep to the protocol."""

    def __init__(self, nonsense: bytes) -> None:
        self.nonsense = nonsense

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.answering.append(asyncio.current_task())
        while data := await reader.read(1000):
            if b"ECHO" in data:
                writer.write(self.nonsense)
            else:
                word = b"+PONG\r\n" if b"PING" in data else b"+OK\r\n"
                writer.write(word * data.count(b"*"))
        writer.close()

    async def __aenter__(self) -> AsyncConnection:
        self.answering: list[Any] = []
        self.server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        return line_to(Address(host="127.0.0.1", port=self.server.sockets[0].getsockname()[1]))

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        await asyncio.gather(*self.answering)


def test_what_is_no_resp_is_an_error_and_the_connection_is_left() -> None:
    async def main() -> None:
        async with Odd(b"HTTP/1.1 400 Bad Request\r\n\r\n") as line:
            with pytest.raises(ConnectionFailed, match="not Redis's protocol"):
                await line.ask(pack("ECHO", "mine"))
            assert not line._line().connected
            assert len(line.breaker.told) == 1

    run(main)


def test_a_reply_too_many_is_taken_by_nobody() -> None:
    async def main() -> None:
        async with Odd(b"+mine\r\n+whose?\r\n") as line:
            assert await line.ask(pack("ECHO", "mine")) == b"mine"
            assert not line._line().connected

    run(main)
