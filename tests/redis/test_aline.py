"""One connection per loop for all its tasks: order, silence, loss, room, ends."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from nearcache.engines.redis import aline
from nearcache.engines.redis.aline import AsyncLine
from nearcache.engines.redis.breaker import Breaker
from nearcache.engines.redis.resp import ErrorReply, pack
from nearcache.engines.redis.target import Address, Target
from nearcache.engines.redis.topology import ONCE, READ, SAFE
from nearcache.errors import CircuitOpen, ConnectionFailed, ReplyTimeout
from tests.redis.servers import Server, free_port

PING = pack("PING")


class Record(Breaker):
    """A breaker that remembers what it was told."""

    def __init__(self) -> None:
        super().__init__("server", failures=1000)
        self.told: list[BaseException] = []

    def failed(self, error: BaseException) -> None:
        self.told.append(error)
        super().failed(error)


def line_to(address: Address, **fields: Any) -> AsyncLine:
    target = Target(addresses=(address,), **({"read_timeout_s": 5.0} | fields))
    line = AsyncLine(target, address)
    line.breaker = Record()
    return line


def line_of(server: Server, name: str = "line", **fields: Any) -> AsyncLine:
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


def wait_until(condition: Callable[[], Any]) -> None:
    give_up_at = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.001)


async def until(condition: Callable[[], Any]) -> None:
    give_up_at = time.monotonic() + 10
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
    wait_until(lambda: not ids_of(server))


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
    monkeypatch.setattr(aline, "MOST_UNSENT", 4 << 20)
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
            await until(lambda: mine.unsent_bytes > aline.MOST_UNSENT)
            for _ in range(20):
                await asyncio.sleep(0)
                assert mine.unsent_bytes < aline.MOST_UNSENT + len(value) + 100
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
    line = line_of(server, read_timeout_s=0.1)

    async def main() -> None:
        await line.ask(PING)
        (before,) = ids_of(server)
        server.pause()
        try:
            began = time.monotonic()
            asked = (line.ask(pack("ECHO", n), None, READ) for n in range(50))
            results = await asyncio.gather(*asked, return_exceptions=True)
            took = time.monotonic() - began
        finally:
            server.resume()
        assert {type(each) for each in results} == {ReplyTimeout}
        assert "within 0.1 s" in str(results[0])
        assert len({id(each) for each in results}) == 50  # each its own traceback
        assert 0.1 <= took < 1
        assert await line.ask(pack("ECHO", "mine")) == b"mine"
        assert before not in ids_of(server)
        assert [type(each) for each in line.breaker.told] == [ReplyTimeout]

    run(main)


def test_silence_is_counted_from_the_last_reply_not_from_the_first_request(
    server: Server,
) -> None:
    line = line_of(server, read_timeout_s=0.25)
    # 50 ms of the server's time. All together they take longer than the timeout.
    nap = pack(
        "EVAL",
        "local function now() local t = redis.call('TIME') return t[1] * 1000000 + t[2] end"
        " local began = now() repeat until now() - began > 50000 return 1",
        0,
    )

    async def main() -> None:
        naps = []
        for _ in range(8):
            naps.append(asyncio.create_task(line.ask(nap)))
            # The server answers no sooner than it has carried out all that it has read.
            await asyncio.sleep(0.04)
        assert await asyncio.gather(*naps) == [1] * 8

    run(main)


BUSY = """
import asyncio, sys, time
from tests.redis.test_aline import *
def kept_busy(line, pause, resume, runner):
    async def main():
        assert await line.ask(PING) == b"PONG"
        pause()
        asked = asyncio.ensure_future(line.ask(pack("ECHO", "there")))
        for _ in range(3):
            await asyncio.sleep(0)  # written by now
        resume()
        time.sleep(0.2)  # the reply comes, and the time runs out, and nobody looks
        assert await asked == b"there"
    runner.run(main())
"""


def test_a_loop_kept_busy_takes_what_has_come_meanwhile(server: Server) -> None:
    scope: dict[str, Any] = {}
    exec(BUSY, scope)
    with asyncio.Runner() as runner:
        scope["kept_busy"](line_of(server, read_timeout_s=0.1), server.pause, server.resume, runner)


def test_a_large_value_may_take_longer_than_the_timeout(redis_directory: Path) -> None:
    path = str(redis_directory / "slow.sock")
    line, value = line_to(Address(path=path), read_timeout_s=0.3), b"x" * (4 << 20)

    def take_slowly(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            while b"PING" not in (data := connection.recv(1000)):
                connection.sendall(b"+OK\r\n" * data.count(b"*"))
            connection.sendall(b"+PONG\r\n")
            left = len(pack("SET", "key", value))
            while left > 0:
                time.sleep(0.02)
                data = connection.recv(100_000)
                left -= len(data) or left  # gave up
            connection.sendall(b"+OK\r\n")
            connection.recv(1)

    async def main() -> None:
        assert await line.ask(pack("SET", "key", value)) == b"OK"

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        taker = threading.Thread(target=take_slowly, args=(listening,))
        taker.start()
        began = time.monotonic()
        run(main)
        assert time.monotonic() - began > 0.6
        taker.join()


# ---- loss


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


@pytest.mark.parametrize("idle_s", [0.02, aline.IDLE_S * 1.5])
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
            time.sleep(aline.IDLE_S * 1.5)  # and straight on to the next request
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
    line.breaker = breaker = Breaker("server", failures=1, pause_s=0.02)

    async def main() -> None:
        breaker.failed(ConnectionFailed("away"))
        with pytest.raises(CircuitOpen, match="away"):
            await line.ask(PING)
        await asyncio.sleep(0.03)
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

    async def __aenter__(self) -> AsyncLine:
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


# ---- loops, forks


def test_200_short_loops_leave_nothing_behind(server: Server) -> None:
    line = line_of(server)

    async def main() -> bytes:
        assert len(ids_of(server)) == 0
        replies = await asyncio.gather(*(line.ask(PING) for _ in range(3)))
        return bytes(replies[0])

    for _ in range(200):
        assert asyncio.run(main()) == b"PONG"
        wait_until(lambda: not ids_of(server))
    gc.collect()  # a ResourceWarning would be an error
    assert len(line._by_loop) <= 1


def test_loops_of_async_to_sync_leave_nothing_behind(server: Server) -> None:
    line, seen = line_of(server), []

    async def view() -> None:
        assert await line.ask(PING) == b"PONG"
        seen.append(len(ids_of(server)))

    for _ in range(20):
        async_to_sync(view)()
        wait_until(lambda: not ids_of(server))
    assert seen == [1] * 20
    gc.collect()


def test_a_loop_that_ends_while_tasks_wait_leaves_nothing_behind(server: Server) -> None:
    line = line_of(server)

    async def main() -> None:
        waiting = asyncio.create_task(line.ask(pack("BLPOP", "list", 0)))
        await blocked(server)
        assert not waiting.done()

    run(main)
    wait_until(lambda: not ids_of(server))
    gc.collect()


def test_loops_thrown_away_keep_no_connection(server: Server) -> None:
    line = line_of(server)
    loops = [asyncio.new_event_loop() for _ in range(5)]
    for loop in loops:
        assert loop.run_until_complete(line.ask(PING)) == b"PONG"
    assert len(ids_of(server)) == 5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # asyncio's own, and deserved
        for number, loop in enumerate(loops):
            if number % 2:
                loop.close()
        del loop, loops
        gc.collect()
    wait_until(lambda: not ids_of(server))


def test_a_loop_used_again_keeps_its_connection(server: Server) -> None:
    line = line_of(server)
    with asyncio.Runner() as runner:
        runner.run(line.ask(PING))
        before = ids_of(server)
        runner.run(line.ask(PING))
        assert ids_of(server) == before
    wait_until(lambda: not ids_of(server))


def test_two_loops_in_two_threads_have_a_connection_each(server: Server) -> None:
    line, together = line_of(server), threading.Barrier(2)
    counts = []

    async def main() -> None:
        await line.ask(PING)
        together.wait(10)
        counts.append(len(ids_of(server)))
        together.wait(10)
        replies = await asyncio.gather(*(line.ask(pack("ECHO", n)) for n in range(500)))
        assert replies == [b"%d" % number for number in range(500)]

    threads = [threading.Thread(target=run, args=(main,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [2, 2]


def test_close_drops_the_connections_of_all_loops(server: Server) -> None:
    line = line_of(server)

    async def main() -> None:
        assert await line.ask(PING) == b"PONG"
        before = ids_of(server)
        line.close()
        await until(lambda: not ids_of(server))
        assert await line.ask(PING) == b"PONG"
        assert not before & ids_of(server)

    run(main)


def test_a_child_forked_inside_a_loop_starts_anew(server: Server) -> None:
    line = line_of(server)

    async def in_child(before: set[str]) -> int:
        mine = str(await line.ask(pack("CLIENT", "ID")))
        return 0 if mine not in before else 1

    async def main() -> None:
        await line.ask(PING)
        before = ids_of(server)
        waiting = asyncio.create_task(line.ask(pack("BLPOP", "list", 0), None, ONCE))
        await blocked(server)
        child = os.fork()
        if child == 0:
            try:
                os._exit(asyncio.run(in_child(before)))
            except BaseException:  # noqa: BLE001 - must not become a second pytest
                os._exit(2)
        assert (await asyncio.to_thread(os.waitpid, child, 0))[1] == 0
        # The parent's connection is as it was.
        with server.client() as client:
            client.rpush("list", "value")
        assert await waiting == [b"list", b"value"]
        assert ids_of(server) == before

    run(main)


def test_a_child_that_runs_its_parent_s_loop_starts_anew_too(server: Server) -> None:
    line = line_of(server)
    with asyncio.Runner() as runner:
        assert runner.run(line.ask(PING)) == b"PONG"
        before = ids_of(server)
        child = os.fork()
        if child == 0:
            try:
                os._exit(str(runner.run(line.ask(pack("CLIENT", "ID")))) in before)
            except BaseException:  # noqa: BLE001 - must not become a second pytest
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert runner.run(line.ask(PING)) == b"PONG"
        assert ids_of(server) == before


UVLOOP = (
    BUSY
    + """
import os, signal, uvloop, redis
line = line_to(Address(path=sys.argv[1]), read_timeout_s=0.1,
               connection_kwargs=(("client_name", "uv"),))
admin = redis.Redis(unix_socket_path=sys.argv[1])
async def main():
    replies = await asyncio.gather(*(line.ask(pack("ECHO", n)) for n in range(1000)))
    assert replies == [b"%d" % n for n in range(1000)]
    value = b"x" * (20 << 20)
    assert await line.ask(pack("SET", "huge", value)) == b"OK"
    assert await line.ask(pack("GET", "huge")) == value
for _ in range(10):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
def send(number):
    os.kill(int(sys.argv[2]), number)
with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    kept_busy(line, lambda: send(signal.SIGSTOP), lambda: send(signal.SIGCONT), runner)
    for expected in range(1, 4):
        assert runner.run(line.ask(pack("INCR", "counter"))) == expected
        for each in admin.client_list():
            if each["name"] == "uv":
                admin.client_kill_filter(_id=each["id"])
        time.sleep(aline.IDLE_S * 1.5)
admin.close()
"""
)


def test_uvloop(server: Server) -> None:
    pytest.importorskip("uvloop", reason="uvloop is not installed, nor asked for: NOT TESTED")
    command = [sys.executable, "-W", "error", "-c", UVLOOP, server.path]
    assert server.process
    command.append(str(server.process.pid))
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
