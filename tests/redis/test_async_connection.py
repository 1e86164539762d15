"""One connection per loop for all its tasks: order, room, silence, and who is cancelled."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from nearcache.engines.redis.connection import async_connection
from nearcache.engines.redis.contract import ONCE, READ, SAFE
from nearcache.engines.redis.protocol.resp import ErrorReply, pack
from nearcache.engines.redis.target.target import Address
from nearcache.errors import ReplyTimeout
from tests.redis.async_connections import (
    PING,
    blocked,
    ids_of,
    impatient,
    keep_busy,
    line_of,
    line_to,
    run,
    until,
)
from tests.redis.servers import Server, wait_for

# ---- asking


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("unix", [True, False])
def test_every_task_gets_its_own_reply_over_one_connection(
    server: Server, protocol: Any, unix: bool
) -> None:
    place = Address(path=server.path) if unix else Address(host="127.0.0.1", port=server.port)
    line = line_to(place, protocol=protocol, connection_kwargs=(("client_name", "line"),))

    async def main() -> None:
        replies = await asyncio.gather(*(line.ask(pack("ECHO", n)) for n in range(1000)))
        assert replies == [b"%d" % number for number in range(1000)]
        assert len(ids_of(server)) == 1

    run(main)
    wait_for(lambda: not ids_of(server))


def test_requests_of_one_iteration_of_the_loop_are_one_write(server: Server) -> None:
    line = line_of(server)

    async def main() -> None:
        await line.ask(PING)
        before = line.stats()["async_writes"]
        await asyncio.gather(*(line.ask(PING) for _ in range(100)))
        assert line.stats()["async_writes"] == before + 1

    run(main)


def test_many_commands_in_one_request(server: Server) -> None:
    line = line_of(server)

    async def main() -> None:
        packed = b"".join(pack("ECHO", number) for number in range(50))
        first, alone, none, second = await asyncio.gather(
            line.ask_many(packed, 50),
            line.ask(pack("ECHO", "alone")),
            line.ask_many(b"", 0),
            line.ask_many(pack("ECHO", "one"), 1),
        )
        assert first == [b"%d" % number for number in range(50)]
        assert (alone, none, second) == (b"alone", [], [b"one"])

    run(main)


def test_an_error_reply_is_a_reply(server: Server) -> None:
    line = line_of(server)

    async def main() -> None:
        assert await line.ask(pack("SET", "text", "x")) == b"OK"
        reply, after = await asyncio.gather(line.ask(pack("LPUSH", "text", "y")), line.ask(PING))
        assert isinstance(reply, ErrorReply)
        assert (reply.code, after) == ("WRONGTYPE", b"PONG")

    run(main)


def test_a_missing_key_and_booleans_of_resp3_are_replies_too(server: Server) -> None:
    line = line_of(server, protocol=3)

    async def main() -> None:
        assert await line.ask(pack("GET", "missing")) is None
        false = pack("EVAL", "redis.setresp(3); return false", 0)
        true = pack("EVAL", "redis.setresp(3); return true", 0)
        assert await asyncio.gather(line.ask(false), line.ask(true), line.ask(PING)) == [
            False,
            True,
            b"PONG",
        ]

    run(main)


def test_huge_values_travel_among_small_ones(server: Server) -> None:
    line = line_of(server)
    value = os.urandom(1 << 20) * 40

    async def main() -> None:
        put = line.ask(pack("SET", "huge", value), None, SAFE)
        results = await asyncio.gather(put, *(line.ask(pack("ECHO", n)) for n in range(100)))
        assert results[0] == b"OK"
        got, *small = await asyncio.gather(
            line.ask(pack("GET", "huge"), None, READ),
            *(line.ask(pack("ECHO", number)) for number in range(100)),
        )
        assert got == value
        assert small == [b"%d" % number for number in range(100)]

    run(main)


def test_callers_wait_while_too_much_is_unsent(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_connection, "MOST_UNSENT", 4 << 20)
    line = line_of(server, read_timeout_s=20.0)
    value = b"x" * (1 << 20)

    async def main() -> None:
        await line.ask(PING)
        server.pause()
        try:
            sets = [
                asyncio.create_task(line.ask(pack("SET", number, value), None, SAFE))
                for number in range(40)
            ]
            mine = line._line()
            await until(lambda: mine.unsent_bytes > async_connection.MOST_UNSENT)
            for _ in range(20):
                await asyncio.sleep(0)
                assert mine.unsent_bytes < async_connection.MOST_UNSENT + len(value) + 100
            sets[-1].cancel()
        finally:
            server.resume()
        assert set(await asyncio.gather(*sets[:-1])) == {b"OK"}
        assert mine.unsent_bytes == 0

    run(main)


# ---- silence


def test_a_silent_server_fails_everybody_at_once_and_its_connection_is_left(
    server: Server,
) -> None:
    line = line_of(server)

    async def main() -> None:
        await line.ask(PING)
        (before,) = ids_of(server)
        impatient(line, 0.1)
        server.pause()
        try:
            asked = (line.ask(pack("ECHO", n), None, READ) for n in range(50))
            results = await asyncio.gather(*asked, return_exceptions=True)
        finally:
            server.resume()
        assert {type(each) for each in results} == {ReplyTimeout}
        assert "within 0.1 s" in str(results[0])
        assert len({id(each) for each in results}) == 50  # each its own traceback
        assert line.stats()["async_timeouts"] == 1
        assert await line.ask(pack("ECHO", "mine")) == b"mine"
        assert before not in ids_of(server)
        assert [type(each) for each in line.breaker.told] == [ReplyTimeout]

    run(main)


class Skipping(asyncio.SelectorEventLoop):
    """A loop whose time can be moved on, so that a real pause is next to nothing in it."""

    skipped_s = 0.0

    def time(self) -> float:
        return super().time() + self.skipped_s


def run_skipping(main: Callable[[Skipping], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=Skipping) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, Skipping)
        runner.run(main(loop))


def test_silence_is_counted_from_the_last_reply_not_from_the_first_request(
    server: Server,
) -> None:
    line = line_of(server, read_timeout_s=100.0)

    async def main(loop: Skipping) -> None:
        pops = [asyncio.create_task(line.ask(pack("BLPOP", "list", 0))) for _ in range(4)]
        for popped in pops:
            await blocked(server)
            loop.skipped_s += 60  # all together they take longer than the timeout
            await asyncio.sleep(0.01)
            with server.client() as client:
                client.rpush("list", "value")
            assert await popped == [b"list", b"value"]

    run_skipping(main)


def test_a_loop_kept_busy_takes_what_has_come_meanwhile(server: Server) -> None:
    with asyncio.Runner() as runner:
        keep_busy(runner, line_of(server), server.pause, server.resume)


def test_a_large_value_may_take_longer_than_the_timeout(redis_directory: Path) -> None:
    path = str(redis_directory / "slow.sock")
    line, value = line_to(Address(path=path), read_timeout_s=100.0), b"x" * (4 << 20)
    may_take, took = threading.Semaphore(0), threading.Semaphore(0)

    def take_slowly(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            while b"PING" not in (data := connection.recv(1000)):
                connection.sendall(b"+OK\r\n" * data.count(b"*"))
            connection.sendall(b"+PONG\r\n")
            left = len(pack("SET", "key", value))
            while left > 0:
                assert may_take.acquire(timeout=30)
                for _ in range(8):
                    left -= len(connection.recv(min(left, 100_000)))
                took.release()
            connection.sendall(b"+OK\r\n")
            connection.recv(1)

    async def main(loop: Skipping) -> None:
        asked = asyncio.create_task(line.ask(pack("SET", "key", value)))
        await until(lambda: line._line()._wire)
        mine = line._line()._wire
        assert mine
        for _ in range(5):
            unsent = mine._transport.get_write_buffer_size()
            may_take.release()
            await asyncio.to_thread(took.acquire, timeout=30)
            await until(lambda unsent=unsent: mine._transport.get_write_buffer_size() < unsent)
            loop.skipped_s += 110
            await asyncio.sleep(0.01)
            assert not asked.done()
        may_take.release(1000)  # as much as is left
        assert await asked == b"OK"

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        taker = threading.Thread(target=take_slowly, args=(listening,))
        taker.start()
        run_skipping(main)
        taker.join()


# ---- cancelled


def test_the_reply_of_a_cancelled_task_is_dropped(server: Server) -> None:
    line = line_of(server)

    async def main() -> None:
        await line.ask(PING)
        (before,) = ids_of(server)
        for moment in range(6):
            tasks = [asyncio.create_task(line.ask(pack("ECHO", n))) for n in range(10)]
            for _ in range(moment):
                await asyncio.sleep(0)
            tasks[3].cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(results.pop(3), asyncio.CancelledError) or moment > 2
            assert results == [b"%d" % n for n in range(10) if n != 3]
        assert {before} == ids_of(server)

    run(main)


def test_what_was_cancelled_before_there_is_a_connection_is_never_sent(server: Server) -> None:
    line = line_of(server)

    async def main() -> None:
        task = asyncio.create_task(line.ask(pack("INCR", "counter"), None, ONCE))
        await asyncio.sleep(0)
        task.cancel()
        assert await line.ask(pack("INCR", "counter"), None, ONCE) == 1

    run(main)


def test_cancelling_all_tasks_while_connecting_leaves_the_line_usable(server: Server) -> None:
    line = line_of(server)

    async def main() -> None:
        task = asyncio.create_task(line.ask(PING))
        for _ in range(3):
            await asyncio.sleep(0)
        for each in asyncio.all_tasks() - {asyncio.current_task()}:
            each.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await line.ask(PING) == b"PONG"

    run(main)
