"""Tasks, greenlets and forked children that wait for locks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from nearcache.coordination.locks import Lock
from tests.redis.locks.one_name import (
    TTL_MS,
    Eventually,
    lock_of,
    until_renewed,
    waiters,
)
from tests.redis.servers import Server


def test_tasks_wait_in_order_and_do_not_stop_the_loop(engine: Any, admin: Any) -> None:
    async def main() -> list[int]:
        got: list[int] = []
        ticks = 0

        async def work(number: int) -> None:
            async with lock_of(engine):
                got.append(number)

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        ticking = asyncio.create_task(tick())
        async with lock_of(engine):
            tasks = []
            for number in range(5):
                tasks.append(asyncio.create_task(work(number)))
                while waiters(admin) <= number:
                    await asyncio.sleep(0.001)
            before = ticks
            async with asyncio.timeout(60):
                while ticks <= before + 10:
                    await asyncio.sleep(0.001)
        await asyncio.gather(*tasks)
        ticking.cancel()
        return got

    assert asyncio.run(main()) == list(range(5))


def test_a_loop_that_is_busy_for_longer_than_the_time_keeps_its_lock(engine: Any) -> None:
    async def main() -> None:
        async with lock_of(engine, timeout_s=3) as lock:
            until_renewed(lock)  # nothing of this loop runs
            lock.check()

    asyncio.run(main())


def test_a_cancelled_task_gives_its_place_up(
    engine: Any, admin: Any, eventually: Eventually
) -> None:
    async def main() -> None:
        async with lock_of(engine) as lock:
            task = asyncio.create_task(lock_of(engine).aacquire())
            while not waiters(admin):
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            while waiters(admin):
                await asyncio.sleep(0.001)
            assert not lock.lost

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_task_cancelled_while_it_acquires_leaves_no_lock(
    engine: Any, eventually: Eventually
) -> None:
    async def main() -> None:
        await lock_of(engine).aacquire(blocking=False)  # the connection stands

        for steps in range(1, 12):
            lock = Lock(engine, b"other", timeout_s=30)
            task = asyncio.create_task(lock.aacquire())
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                await lock.arelease()

    asyncio.run(main())
    eventually(lambda: engine.lock_acquire(b"other", TTL_MS), 20)  # sooner than its time is over


def run_script(server: Server, script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), server.path],
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_greenlets_wait_in_a_queue_and_let_the_others_run(server: Server) -> None:
    output = run_script(
        server,
        """
        from gevent import monkey; monkey.patch_all()
        import sys, gevent
        from nearcache.coordination.locks import Lock
        from tests.redis.locks.one_name import open_engine
        engine = open_engine(sys.argv[1])
        inside, most, ticks, got = 0, 0, 0, []
        def work(number):
            global inside, most
            with Lock(engine, b"name", timeout_s=30):
                inside += 1
                most = max(most, inside)
                gevent.sleep(0.005)
                got.append(number)
                inside -= 1
        def tick():
            global ticks
            while True:
                gevent.sleep(0.001)
                ticks += 1
        ticking = gevent.spawn(tick)
        gevent.joinall([gevent.spawn(work, number) for number in range(20)], raise_error=True)
        assert ticks > 10, ticks
        print(most, len(got))
        """,
    )
    assert output == "1 20"


def test_a_child_neither_renews_nor_releases_its_parent_s_lock(server: Server) -> None:
    output = run_script(
        server,
        """
        import os, sys, threading, time
        from nearcache.errors import LockLost
        from nearcache.coordination.locks import Lock
        from tests.redis.locks.one_name import open_engine, until_renewed
        engine = open_engine(sys.argv[1])
        with Lock(engine, b"name", timeout_s=4) as lock:
            pid = os.fork()
            if not pid:
                told = lock.lost and lock.token is not None
                for act in (lock.check, lock.renew, lock.release):
                    try:
                        act()
                        told = False
                    except LockLost:
                        pass
                idle = not [t for t in threading.enumerate() if t.name == "nearcache-leases"]
                with Lock(engine, b"child's own", timeout_s=30):
                    pass
                os._exit(0 if told and idle else 1)
            print(os.waitpid(pid, 0)[1], end=" ")
            until_renewed(lock)
            lock.check()
            assert engine.lock_acquire(b"name", 1000) is None
        print("held")
        """,
    )
    assert output == "0 held"
