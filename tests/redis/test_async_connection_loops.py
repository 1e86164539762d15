"""A connection belongs to its event loop: it ends with it, and a forked child makes its own."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import warnings

from asgiref.sync import async_to_sync

from nearcache.engines.redis.contract import ONCE
from nearcache.engines.redis.protocol.resp import pack
from tests.needs import need_package
from tests.redis.async_connections import PING, blocked, ids_of, line_of, run, until
from tests.redis.servers import Server, wait_for


def test_200_short_loops_leave_nothing_behind(server: Server) -> None:
    line = line_of(server)

    async def main() -> bytes:
        assert len(ids_of(server)) == 0
        replies = await asyncio.gather(*(line.ask(PING) for _ in range(3)))
        return bytes(replies[0])

    for _ in range(200):
        assert asyncio.run(main()) == b"PONG"
        wait_for(lambda: not ids_of(server))
    gc.collect()  # a ResourceWarning would be an error
    assert len(line._by_loop.here()) <= 1


def test_loops_of_async_to_sync_leave_nothing_behind(server: Server) -> None:
    line, seen = line_of(server), []

    async def view() -> None:
        assert await line.ask(PING) == b"PONG"
        seen.append(len(ids_of(server)))

    for _ in range(20):
        async_to_sync(view)()
        wait_for(lambda: not ids_of(server))
    assert seen == [1] * 20
    gc.collect()


def test_a_loop_that_ends_while_tasks_wait_leaves_nothing_behind(server: Server) -> None:
    line = line_of(server)

    async def main() -> None:
        waiting = asyncio.create_task(line.ask(pack("BLPOP", "list", 0)))
        await blocked(server)
        assert not waiting.done()

    run(main)
    wait_for(lambda: not ids_of(server))
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
    wait_for(lambda: not ids_of(server))


def test_a_loop_used_again_keeps_its_connection(server: Server) -> None:
    line = line_of(server)
    with asyncio.Runner() as runner:
        runner.run(line.ask(PING))
        before = ids_of(server)
        runner.run(line.ask(PING))
        assert ids_of(server) == before
    wait_for(lambda: not ids_of(server))


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


UVLOOP = """
import asyncio, os, signal, sys, time, redis, uvloop
from nearcache.engines.redis.connection import async_wire
from nearcache.engines.redis.protocol.resp import pack
from nearcache.engines.redis.target.target import Address
from tests.redis.async_connections import keep_busy, line_to
line = line_to(Address(path=sys.argv[1]), connection_kwargs=(("client_name", "uv"),))
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
    keep_busy(runner, line, lambda: send(signal.SIGSTOP), lambda: send(signal.SIGCONT))
    for expected in range(1, 4):
        assert runner.run(line.ask(pack("INCR", "counter"))) == expected
        for each in admin.client_list():
            if each["name"] == "uv":
                admin.client_kill_filter(_id=each["id"])
        time.sleep(async_wire.IDLE_S * 1.5)
admin.close()
"""


def test_loops_of_uvloop_do_as_asyncio_s(server: Server) -> None:
    need_package("uvloop")
    assert server.process
    command = [sys.executable, "-W", "error", "-c", UVLOOP, server.path, str(server.process.pid)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_closing_what_is_idle_leaves_other_loops_and_those_who_wait_alone(server: Server) -> None:
    line = line_of(server)
    pop = pack("BLPOP", "list", "60")

    async def waits() -> None:
        assert await line.ask(pop, None, ONCE) == [b"list", b"item"]

    async def other() -> None:
        with server.client() as client:
            await until(lambda: client.info("clients")["blocked_clients"] == 1)
            await line.ask(PING)
            assert len(ids_of(server)) == 2
            mine = asyncio.create_task(line.ask(pop, None, ONCE))
            await until(lambda: client.info("clients")["blocked_clients"] == 2)
            line.close_idle()
            client.rpush("list", "item", "item")
            assert await mine == [b"list", b"item"]
            line.close_idle()
            await until(lambda: len(ids_of(server)) <= 1)

    waiter = threading.Thread(target=run, args=(waits,))
    waiter.start()
    run(other)
    waiter.join()
    assert line.stats()["async_retries"] == 0
