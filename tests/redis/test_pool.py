"""Connections of one's own: bounded, first come first served, gone when nobody needs them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from typing import Any

import pytest
import redis

from nearcache import errors
from nearcache.engines.redis.connection import clients
from nearcache.engines.redis.connection.fair_semaphore import AsyncFairSemaphore, FairSemaphore
from nearcache.engines.redis.target.target import Address, Target
from tests.redis.servers import Server, wait_for


def target_of(server: Server, **fields: Any) -> Target:
    defaults = {"pool_connections": 2, "pool_timeout_s": 60.0, "read_timeout_s": 20.0}
    return Target(addresses=(Address(path=server.path),), **(defaults | fields))


def connections_of(server: Server, name: str) -> list[dict[str, str]]:
    with server.client() as client:
        return [each for each in client.client_list() if each["name"] == name]


# ---- the gate


def test_seats_go_to_whoever_came_first() -> None:
    gate, served = FairSemaphore(1), []
    assert gate.enter(0)

    def visit(number: int) -> None:
        assert gate.enter(60)
        served.append(number)
        gate.leave()

    threads = []
    for number in range(20):
        threads.append(threading.Thread(target=visit, args=(number,)))
        threads[-1].start()
        wait_for(lambda: gate.waiting == len(threads))
    gate.leave()
    for thread in threads:
        thread.join()
    assert served == list(range(20))


def test_nobody_passes_the_queue_and_who_gave_up_is_passed_over() -> None:
    gate, late, served = FairSemaphore(1), [], []
    assert gate.enter(0)

    def wait() -> None:
        served.append(gate.enter(60))

    waiter = threading.Thread(target=wait)
    waiter.start()
    wait_for(lambda: gate.waiting)
    assert not gate.enter(0)  # not the queue's first, so not at all
    impatient = threading.Thread(target=lambda: late.append(gate.enter(0.02)))
    impatient.start()
    impatient.join()
    assert late == [False]
    assert gate.waiting == 1
    gate.leave()
    waiter.join()
    assert served == [True]
    gate.leave()
    assert gate.enter(0)


def test_many_threads_never_hold_more_seats_than_there_are() -> None:
    gate, inside, most = FairSemaphore(3), [], []

    def visit() -> None:
        for _ in range(300):
            if gate.enter(0.0001):
                inside.append(None)
                most.append(len(inside))
                inside.pop()
                gate.leave()

    threads = [threading.Thread(target=visit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) <= 3
    assert gate.waiting == 0
    assert all(gate.enter(0) for _ in range(3))
    assert not gate.enter(0)


def test_a_cancelled_task_loses_no_seat() -> None:
    async def main() -> None:
        gate = AsyncFairSemaphore(1)
        assert await gate.enter(0)
        served: list[int] = []

        async def visit(number: int) -> None:
            assert await gate.enter(60)
            served.append(number)
            gate.leave()

        tasks = [asyncio.create_task(visit(number)) for number in range(6)]
        while gate.waiting < 6:
            await asyncio.sleep(0)
        tasks[1].cancel()  # while it waits
        gate.leave()
        tasks[0].cancel()  # after it was given the seat, before it ran
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(each, asyncio.CancelledError) for each in results[:2]] == [True, True]
        assert served == [2, 3, 4, 5]
        assert await gate.enter(0)
        assert not await gate.enter(0)

    asyncio.run(main())


# ---- the pools


def test_a_full_pool_says_so_in_redis_py_s_way_and_in_ours(server: Server) -> None:
    client = clients.client(target_of(server, pool_timeout_s=0.02))
    taken = [client.connection_pool.get_connection() for _ in range(2)]
    with pytest.raises(redis.ConnectionError) as caught:
        client.get("key")
    assert isinstance(caught.value, errors.PoolTimeout)
    assert "all 2 connections" in str(caught.value)
    for connection in taken:
        client.connection_pool.release(connection)
    assert client.get("key") is None


def test_threads_share_few_connections(server: Server) -> None:
    client = clients.client(target_of(server, connection_kwargs=(("client_name", "few"),)))
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda: answers.extend(client.incr("n") for _ in range(20)))
        for _ in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == list(range(1, 201))
    assert 1 <= len(connections_of(server, "few")) <= 2


def test_the_same_target_has_one_client(server: Server) -> None:
    assert clients.client(target_of(server)) is clients.client(target_of(server))
    assert clients.client(target_of(server)) is not clients.client(target_of(server, database=1))


def test_a_killed_connection_costs_one_error_and_no_seat(server: Server) -> None:
    client = clients.client(target_of(server, connection_kwargs=(("client_name", "killed"),)))
    for _ in range(5):
        assert client.ping()
        with server.client() as killer:
            for each in connections_of(server, "killed"):
                killer.client_kill(each["addr"])
        assert client.ping()  # found closed when taken from the pool, and made anew


def test_what_cannot_connect_takes_no_seat(server: Server) -> None:
    client = clients.client(Target(addresses=(Address(path="/nowhere"),), pool_connections=1))
    for _ in range(3):
        with pytest.raises(redis.ConnectionError, match="nowhere"):
            client.ping()


# ---- asyncio


def test_tasks_wait_in_line_for_the_connections_of_their_loop(server: Server) -> None:
    target = target_of(server, connection_kwargs=(("client_name", "tasks"),))

    async def main() -> None:
        client = clients.aclient(target)
        assert client is clients.aclient(target)
        answers = await asyncio.gather(*(client.incr("n") for _ in range(50)))
        assert sorted(answers) == list(range(1, 51))
        assert 1 <= len(connections_of(server, "tasks")) <= 2

    asyncio.run(main())
    wait_for(lambda: not connections_of(server, "tasks"))


def test_cancelled_tasks_lose_neither_seat_nor_somebody_s_reply(server: Server) -> None:
    async def main() -> None:
        client = clients.aclient(target_of(server))

        async def say(word: str) -> None:
            assert await client.echo(word) == word.encode()

        for moment in range(30):
            tasks = [asyncio.create_task(say(f"{moment}-{number}")) for number in range(6)]
            for _ in range(moment):
                await asyncio.sleep(0)
            tasks[moment % 6].cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(each is None or type(each) is asyncio.CancelledError for each in results)
        await asyncio.gather(*(say(str(number)) for number in range(10)))

    asyncio.run(main())


def test_a_full_pool_of_a_loop_says_so(server: Server) -> None:
    async def main() -> None:
        client = clients.aclient(target_of(server, pool_timeout_s=0.02))
        taken = [await client.connection_pool.get_connection() for _ in range(2)]
        with pytest.raises(redis.ConnectionError) as caught:
            await client.get("key")
        assert isinstance(caught.value, errors.PoolTimeout)
        for connection in taken:
            await client.connection_pool.release(connection)
        assert await client.get("key") is None

    asyncio.run(main())


# ---- forks, greenlets, the end


def test_a_forked_child_connects_anew_and_leaves_the_parent_s_connections(server: Server) -> None:
    client = clients.client(target_of(server, connection_kwargs=(("client_name", "forked"),)))
    taken = client.connection_pool.get_connection()
    client.set("who", "parent")
    before = {each["id"] for each in connections_of(server, "forked")}
    child = os.fork()
    if child == 0:
        try:
            # The parent's seat is not taken here: both connections of the pool can be had.
            ours = [client.connection_pool.get_connection() for _ in range(2)]
            for connection in ours:
                connection.send_command("CLIENT", "ID")
            ids = {str(connection.read_response()) for connection in ours}
            os._exit(0 if not ids & before else 1)
        except BaseException:  # noqa: BLE001 - a child of pytest must not become a second pytest
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    taken.send_command("PING")
    assert taken.read_response() == b"PONG"
    client.connection_pool.release(taken)
    assert client.get("who") == b"parent"
    assert before <= {each["id"] for each in connections_of(server, "forked")}


GREENLETS = """
from gevent import monkey; monkey.patch_all()
import gevent, sys
from nearcache.engines.redis.connection import clients
from nearcache.engines.redis.target.target import Address, Target
target = Target(addresses=(Address(path=sys.argv[1]),), pool_connections=3,
                pool_timeout_s=60, read_timeout_s=20,
                connection_kwargs=(("client_name", "greenlets"),))
client = clients.client(target)
order = []
def visit(number):
    order.append(number)
    assert client.blpop("nothing", 0.05) is None
    return client.echo(str(number))
visits = [gevent.spawn(visit, number) for number in range(30)]
killed = gevent.spawn(visit, 30)
gevent.sleep(0.02)
killed.kill()
gevent.joinall(visits, raise_error=True)
assert [each.value for each in visits] == [b"%d" % n for n in range(30)]
print(sum(each["name"] == "greenlets" for each in client.client_list()))
"""


def test_greenlets_wait_without_stopping_each_other(server: Server) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", GREENLETS, server.path],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert 1 <= int(done.stdout) <= 3


AT_EXIT = """
import asyncio, sys
from nearcache.engines.redis.connection import clients
from nearcache.engines.redis.target.target import Address, Target
target = Target(addresses=(Address(path=sys.argv[1]),), read_timeout_s=20)
clients.client(target).ping()
async def main():
    asyncio.get_running_loop().slow_callback_duration = 600  # -X dev tells of a slow host
    await clients.aclient(target).ping()
asyncio.run(main())
"""


def test_the_interpreter_ends_without_a_word(server: Server) -> None:
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", AT_EXIT, server.path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
