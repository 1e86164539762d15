"""Named locks over Redis: round trips, order, wake-ups, and everything that can get lost."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from nearcache.backends import RedisCache
from nearcache.engines.redis import locks as locks_module
from nearcache.engines.redis.bells import CHANNELS
from nearcache.engines.redis.lock_scripts import LOCK_KEYS, TAKE_MS, lock_key
from nearcache.errors import EngineUnavailable, LockLost, LockNotAcquired
from nearcache.locks import Lock
from nearcache.metrics import Counters
from tests.redis.lock_engine import open_engine
from tests.redis.servers import Server, wait_for

NAME = b"name"
TTL_MS = 30_000
TAKE_S = TAKE_MS / 1000
LOCK = lock_key(NAME)

Eventually = Callable[[Callable[[], object]], None]


@pytest.fixture
def engine(server: Server, eventually: Eventually) -> Iterator[Any]:
    engine = open_engine(server.path)

    def answers() -> bool:
        with contextlib.suppress(EngineUnavailable):
            return engine.contains(b"any") is not None
        return False

    eventually(answers)  # the last test may have killed the server, and its circuit is open yet
    yield engine
    engine.topology.close()


@pytest.fixture
def admin(server: Server) -> Iterator[Any]:
    with server.client(decode_responses=True) as client:
        yield client


def lock_of(engine: Any, **options: Any) -> Lock:
    return Lock(engine, NAME, **{"timeout_s": 30, "wait_s": 10} | options)


def waiters(admin: Any) -> int:
    return sum(field.startswith("w") for field in admin.hkeys(LOCK))


def nobody_asked_of_late(admin: Any) -> None:
    """Two seconds later, as far as the places in the queue are concerned."""
    for field, place in admin.hgetall(LOCK).items():
        if field.startswith("p"):
            admin.hset(LOCK, field, "1 " + place.partition(" ")[2])


def run_out(admin: Any) -> None:
    """Later than the holder's time."""
    admin.hset(LOCK, "until", 1)


def hold(engine: Any, ttl_ms: int = TTL_MS) -> int:
    token = engine.lock_acquire(NAME, ttl_ms)
    assert token
    return int(token)


# -- alone ---------------------------------------------------------------------------------------


def test_acquire_and_release_are_one_round_trip_each(engine: Any, admin: Any) -> None:
    with lock_of(engine):  # scripts are known and connections made from now on
        pass
    admin.config_resetstat()
    with lock_of(engine):
        pass
    calls = {name: stat["calls"] for name, stat in admin.info("commandstats").items()}
    inside = {"cmdstat_time", "cmdstat_hmget", "cmdstat_hset", "cmdstat_pexpire"}
    assert set(calls) - {"cmdstat_config|resetstat"} == {"cmdstat_evalsha"} | inside
    assert calls["cmdstat_evalsha"] == 2


def test_what_got_lost_may_be_asked_again(engine: Any) -> None:
    ask = engine.lock_script
    first = ask(locks_module.ACQUIRE, NAME, 77, TTL_MS)
    assert ask(locks_module.ACQUIRE, NAME, 77, TTL_MS) == first
    assert ask(locks_module.ACQUIRE, NAME, 78, TTL_MS) == 0
    assert engine.lock_release(NAME, first)
    assert engine.lock_release(NAME, first)
    second = hold(engine)
    assert engine.lock_release(NAME, first)
    assert not engine.lock_release(NAME, second + 1)
    assert engine.lock_release(NAME, second)
    assert engine.lock_release(NAME, first)
    assert not engine.lock_renew(NAME, second, TTL_MS)


def test_a_release_after_its_time_is_never_told_that_all_was_well(engine: Any, admin: Any) -> None:
    first = hold(engine)
    run_out(admin)
    assert not engine.lock_release(NAME, first)
    second = hold(engine)
    assert not engine.lock_release(NAME, first)
    assert engine.lock_release(NAME, second)
    assert not engine.lock_release(NAME, first)


def test_tokens_grow_whatever_happens(engine: Any, admin: Any) -> None:
    tokens = [hold(engine)]
    for event in (
        lambda: engine.lock_release(NAME, tokens[-1]),
        lambda: run_out(admin),
        lambda: admin.flushall(),
        lambda: admin.delete(LOCK),
    ):
        event()
        tokens.append(hold(engine))
    assert tokens == sorted(set(tokens))


def test_nothing_stays_on_the_server_for_ever(engine: Any, admin: Any) -> None:
    hold(engine)
    engine.lock_wait(NAME, None, TTL_MS, 0)
    keys = admin.keys(LOCK_KEYS.decode() + "*")
    assert len(keys) == 1
    assert all(admin.pttl(key) > 0 for key in keys)


@pytest.mark.parametrize("name", [b"", b"}", b"{", b"{}", b"a}b{c", b"{tag}x", b"\xff\x00 \r\n"])
def test_any_bytes_are_a_name(name: bytes, engine: Any) -> None:
    with Lock(engine, name, timeout_s=30):
        assert engine.lock_acquire(name, TTL_MS) is None
    assert engine.lock_acquire(name, TTL_MS)


def test_a_lock_without_a_time_gets_one(engine: Any, admin: Any) -> None:
    with Lock(engine, NAME):
        until_ms = int(admin.hget(LOCK, "until"))
        assert until_ms == pytest.approx(time.time() * 1000 + 30_000, abs=1000)


# -- the queue -----------------------------------------------------------------------------------


def in_order(engine: Any, admin: Any, eventually: Eventually, count: int) -> list[int]:
    """Lets so many threads queue up one after the other; the order in which they got it."""
    got: list[int] = []

    def work(number: int) -> None:
        with lock_of(engine):
            got.append(number)

    token = hold(engine)
    with ThreadPoolExecutor(count) as threads:
        for number in range(count):
            threads.submit(work, number)
            eventually(lambda number=number: waiters(admin) == number + 1)  # type: ignore[misc]
        engine.lock_release(NAME, token)
    return got


def test_first_come_first_served(engine: Any, admin: Any, eventually: Eventually) -> None:
    assert in_order(engine, admin, eventually, 6) == list(range(6))
    assert waiters(admin) == 0


def test_nobody_passes_a_queue(engine: Any, admin: Any) -> None:
    token = hold(engine)
    _, ticket = engine.lock_wait(NAME, None, TTL_MS, 0)
    engine.lock_release(NAME, token)
    assert engine.lock_acquire(NAME, TTL_MS) is None
    assert engine.lock_wait(NAME, None, TTL_MS, 0)[0] is None
    assert engine.lock_wait(NAME, ticket, TTL_MS, 0)[0]


@pytest.mark.parametrize("protocol", [2, 3])
def test_waiters_are_woken_and_do_not_poll(
    protocol: int,
    server: Server,
    admin: Any,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = open_engine(server.path, protocol=protocol)
    monkeypatch.setattr(locks_module, "ASK_AGAIN_S", 60.0)
    monkeypatch.setattr("nearcache.locks.WAIT_MS", 60_000)
    in_order(engine, admin, eventually, 2)  # the process listens from now on
    eventually(lambda: admin.pubsub_channels(CHANNELS.decode() + "*"))
    admin.config_resetstat()
    began = time.monotonic()
    assert in_order(engine, admin, eventually, 4) == list(range(4))
    assert time.monotonic() - began < 5
    # One to hold, four to join, four to say "I am here", five to release.
    assert admin.info("commandstats")["cmdstat_evalsha"]["calls"] == 14
    engine.topology.close()


def test_a_server_that_forbids_wake_ups_costs_half_a_second(
    engine: Any, admin: Any, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    admin.acl_setuser("default", enabled=True, reset_channels=True)
    try:
        began = time.monotonic()
        assert in_order(engine, admin, eventually, 2) == [0, 1]
        assert time.monotonic() - began < 3
    finally:
        admin.acl_setuser("default", enabled=True, channels=["*"])


def test_a_user_needs_no_more_rights_than_docs_say(
    engine: Any, server: Server, admin: Any, eventually: Eventually
) -> None:
    text = (Path(__file__).parents[2] / "docs" / "locks.md").read_text()
    rights = re.search(r"needs `([^`]*nearcache:lock[^`]*)`", text)
    assert rights
    admin.execute_command("ACL", "SETUSER", "locker", "reset", "on", ">pw", *rights[1].split())
    limited = open_engine(server.path, username="locker", password="pw")
    try:
        assert in_order(limited, admin, eventually, 3) == [0, 1, 2]
        eventually(lambda: admin.pubsub_channels(CHANNELS.decode() + "*"))
    finally:
        limited.topology.close()
        admin.acl_deluser("locker")


def test_a_first_waiter_that_does_not_answer_is_passed_over(engine: Any) -> None:
    token = hold(engine)
    engine.lock_wait(NAME, None, TTL_MS, 0)  # joins, and is never seen again
    with ThreadPoolExecutor(1) as threads:
        second = threads.submit(lock_of(engine).acquire)
        engine.lock_release(NAME, token)
        began = time.monotonic()
        assert second.result(5)
    assert time.monotonic() - began < TAKE_S + 0.3


def test_a_place_that_is_not_asked_for_is_passed_over_at_once(engine: Any, admin: Any) -> None:
    token = hold(engine)
    for _ in range(3):
        engine.lock_wait(NAME, None, TTL_MS, 0)
    nobody_asked_of_late(admin)
    engine.lock_release(NAME, token)
    assert engine.lock_acquire(NAME, TTL_MS)
    assert waiters(admin) == 0


def test_who_asks_late_is_where_he_was(engine: Any, admin: Any) -> None:
    token = hold(engine)
    tickets = [engine.lock_wait(NAME, None, TTL_MS, 0)[1] for _ in range(2)]
    nobody_asked_of_late(admin)
    for ticket in reversed(tickets):
        assert engine.lock_wait(NAME, ticket, TTL_MS, 0) == (None, ticket)
    engine.lock_release(NAME, token)
    assert engine.lock_wait(NAME, tickets[1], TTL_MS, 0)[0] is None
    assert engine.lock_wait(NAME, tickets[0], TTL_MS, 0)[0]


def test_a_holder_that_is_gone_is_waited_for_until_its_time_is_over(engine: Any) -> None:
    hold(engine, ttl_ms=300)
    began = time.monotonic()
    with lock_of(engine):
        waited_s = time.monotonic() - began
    assert 0.25 < waited_s < 0.3 + 0.2


def test_a_wait_that_is_over_leaves_nothing(engine: Any, admin: Any) -> None:
    hold(engine)
    began = time.monotonic()
    with pytest.raises(LockNotAcquired), lock_of(engine, wait_s=0.1):
        pass
    assert time.monotonic() - began < 0.5
    assert waiters(admin) == 0
    assert not lock_of(engine).acquire(blocking=False)


def test_who_leaves_with_the_lock_in_hand_passes_it_on(engine: Any) -> None:
    token = hold(engine)
    first, second = (engine.lock_wait(NAME, None, TTL_MS, 0)[1] for _ in range(2))
    engine.lock_release(NAME, token)  # to the first
    engine.lock_leave(NAME, first)
    assert engine.lock_wait(NAME, second, TTL_MS, 0)[0]


# -- held, and lost ------------------------------------------------------------------------------


def test_a_living_holder_is_renewed(engine: Any) -> None:
    with lock_of(engine, timeout_s=0.3) as lock:
        time.sleep(0.6)
        assert not lock.lost
        assert engine.lock_acquire(NAME, TTL_MS) is None


def test_one_that_is_not_renewed_is_lost(engine: Any) -> None:
    lock = lock_of(engine, timeout_s=0.05, auto_renew=False)
    with pytest.raises(LockLost, match="longer timeout"), lock:
        time.sleep(0.06)
    assert lock.acquire()
    time.sleep(0.06)
    assert lock.lost
    with pytest.raises(LockLost):
        lock.check()


def test_max_hold_ends_the_renewal(engine: Any, eventually: Eventually) -> None:
    lock = lock_of(engine, timeout_s=0.15, max_hold_s=0.1)
    assert lock.acquire()
    eventually(lambda: lock.lost)
    eventually(lambda: engine.lock_acquire(NAME, TTL_MS))
    with pytest.raises(LockLost):
        lock.release()


def test_a_lock_that_nobody_can_release_any_more_ends(engine: Any, eventually: Eventually) -> None:
    lock_of(engine, timeout_s=0.2).acquire()
    gc.collect()
    began = time.monotonic()
    eventually(lambda: engine.lock_acquire(NAME, TTL_MS))
    assert time.monotonic() - began < 1


def test_a_flush_is_noticed_by_the_renewal(engine: Any, admin: Any, eventually: Eventually) -> None:
    counters = Counters()
    lock = lock_of(engine, timeout_s=0.6, counters=counters)
    assert lock.acquire()
    admin.flushall()
    began = time.monotonic()
    eventually(lambda: lock.lost)
    assert time.monotonic() - began < 0.5  # the next renewal, before the time was over
    assert counters.locks_lost == 1
    with pytest.raises(LockLost):
        lock.release()
    assert counters.locks_lost == 1


def test_somebody_else_after_a_flush_is_told_at_the_release(engine: Any, admin: Any) -> None:
    lock = lock_of(engine)
    assert lock.acquire()
    token = lock.token or 0
    admin.flushall()
    assert hold(engine) > token
    with pytest.raises(LockLost):
        lock.release()


def test_clearing_a_cache_keeps_the_locks(engine: Any, admin: Any) -> None:
    admin.set(":1:key", "value")
    with lock_of(engine):
        engine.clear_matching(prefix=b":")
        assert admin.keys() == [LOCK.decode()]
        assert engine.lock_acquire(NAME, TTL_MS) is None


def test_a_django_cache_has_the_locks_and_does_not_see_them(server: Server) -> None:
    cache = RedisCache(f"unix://{server.path}", {})
    cache.set("key", "value")
    with cache.lock("key", timeout=30, wait=1) as lock:
        assert lock.token
        assert cache.keys() == ["key"]
        cache.clear()
        assert cache.keys() == []
        lock.renew()
        assert not cache.lock("key").acquire(blocking=False)
    assert cache.lock("key").acquire(blocking=False)


# -- the server goes away ------------------------------------------------------------------------


def test_a_restart_in_the_middle_of_a_wait(
    engine: Any, server: Server, admin: Any, eventually: Eventually
) -> None:
    lock = lock_of(engine)
    assert lock.acquire()
    with ThreadPoolExecutor(1) as threads:
        waiter = lock_of(engine)
        got = threads.submit(waiter.acquire)
        eventually(lambda: waiters(admin) == 1)
        server.kill()
        server.start()
        server.wait_ready()
        assert got.result(5)  # the server came back empty
        with pytest.raises(LockLost):
            lock.renew()
        waiter.release()


def test_the_first_question_does_not_wait_for_a_server(engine: Any, server: Server) -> None:
    server.kill()
    try:
        began = time.monotonic()
        with pytest.raises(EngineUnavailable):
            lock_of(engine).acquire()
        assert time.monotonic() - began < 3
    finally:
        server.start()
        server.wait_ready()


def test_what_a_silent_server_did_in_the_end_is_undone(
    engine: Any, server: Server, eventually: Eventually
) -> None:
    with lock_of(engine):
        pass
    server.pause()
    try:
        with pytest.raises(EngineUnavailable):
            lock_of(engine).acquire()
    finally:
        server.resume()
    began = time.monotonic()
    other = open_engine(server.path)

    def acquired() -> bool:
        with contextlib.suppress(EngineUnavailable):  # the circuit may be open for a moment
            return other.lock_acquire(NAME, TTL_MS) is not None
        return False

    eventually(acquired)
    assert time.monotonic() - began < 5
    other.topology.close()


def test_a_release_that_gets_no_answer_is_repeated(
    engine: Any, server: Server, eventually: Eventually
) -> None:
    lock = lock_of(engine)
    assert lock.acquire()
    server.pause()
    try:
        with pytest.raises(EngineUnavailable):
            lock.release()
    finally:
        server.resume()

    def acquired() -> bool:
        with contextlib.suppress(EngineUnavailable):  # the circuit may be open for a moment
            return engine.lock_acquire(NAME, TTL_MS) is not None
        return False

    eventually(acquired)


def test_connections_that_are_cut_all_the_time_cost_no_lock(server: Server, admin: Any) -> None:
    # Three cuts in a row would open the circuit, for longer than this test goes on.
    engine = open_engine(server.path, breaker_failures=0)
    inside, most, done = 0, 0, 0
    over = threading.Event()

    def work() -> None:
        nonlocal inside, most, done
        while not over.is_set():
            lock = lock_of(engine)
            try:
                if not lock.acquire():
                    continue
            except EngineUnavailable:
                continue
            inside += 1
            most = max(most, inside)
            time.sleep(0.0005)
            inside -= 1
            done += 1
            try:
                lock.release()  # LockLost would be a lie
            except EngineUnavailable:
                continue

    def cut() -> int:
        time.sleep(0.01)
        admin.client_kill_filter(_type="normal", skipme=True)
        admin.client_kill_filter(_type="pubsub")
        return done

    with ThreadPoolExecutor(4) as threads:
        working = [threads.submit(work) for _ in range(4)]
        try:
            for _ in range(60):
                cut()
            # How many fit between cuts is up to the machine.
            wait_for(lambda: cut() > 20, "twenty locks taken", 60)
        finally:
            over.set()
        for each in working:
            each.result(30)
    assert most == 1
    began = time.monotonic()
    while not engine.lock_acquire(NAME, TTL_MS):
        assert time.monotonic() - began < 5, "a lock that nobody knows of"
        time.sleep(0.01)
    engine.topology.close()


# -- tasks, greenlets, children --------------------------------------------------------------------


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
            await asyncio.sleep(0.05)
            assert ticks > before + 10
        await asyncio.gather(*tasks)
        ticking.cancel()
        return got

    assert asyncio.run(main()) == list(range(5))


def test_a_loop_that_is_busy_for_longer_than_the_time_keeps_its_lock(engine: Any) -> None:
    async def main() -> None:
        async with lock_of(engine, timeout_s=0.2) as lock:
            time.sleep(0.5)  # nothing of this loop runs
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

    asyncio.run(asyncio.wait_for(main(), 5))


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
    began = time.monotonic()
    eventually(lambda: engine.lock_acquire(b"other", TTL_MS))
    assert time.monotonic() - began < 3


def run_script(server: Server, script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), server.path],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_greenlets_wait_in_a_queue_and_let_the_others_run(server: Server) -> None:
    output = run_script(
        server,
        """
        from gevent import monkey; monkey.patch_all()
        import sys, gevent
        from nearcache.locks import Lock
        from tests.redis.lock_engine import open_engine
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
        assert ticks > 30, ticks
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
        from nearcache.leases import keeper
        from nearcache.locks import Lock
        from tests.redis.lock_engine import open_engine
        engine = open_engine(sys.argv[1])
        with Lock(engine, b"name", timeout_s=0.5) as lock:
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
                with Lock(engine, b"child's own", timeout_s=0.5):
                    pass
                os._exit(0 if told and idle else 1)
            print(os.waitpid(pid, 0)[1], end=" ")
            time.sleep(0.7)
            lock.check()
            assert engine.lock_acquire(b"name", 1000) is None
        print("held")
        """,
    )
    assert output == "0 held"
