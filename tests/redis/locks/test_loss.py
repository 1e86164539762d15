"""Locks that are lost, and servers that go away meanwhile: whoever held one is told."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nearcache.backends import RedisCache
from nearcache.base.counters import Counters
from nearcache.coordination.lock_renewal import renewer_of
from nearcache.coordination.locks import Lock
from nearcache.engines.redis.locks.wake_ups import Bell
from nearcache.errors import EngineUnavailable, LockLost
from tests.redis.locks.one_name import (
    LOCK,
    NAME,
    TTL_MS,
    Eventually,
    hold,
    lock_of,
    open_engine,
    until_renewed,
    waiters,
)
from tests.redis.servers import Server, wait_for

# -- held, and lost ------------------------------------------------------------------------------


def test_a_living_holder_is_renewed(engine: Any) -> None:
    with lock_of(engine, timeout_s=3) as lock:
        until_renewed(lock)
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
    eventually(lambda: engine.lock_acquire(NAME, TTL_MS))


def test_a_flush_is_noticed_by_the_renewal(engine: Any, admin: Any, eventually: Eventually) -> None:
    counters = Counters()
    lock = lock_of(engine, timeout_s=60, counters=counters)
    assert lock.acquire()
    admin.flushall()
    lease = lock._lease
    assert lease
    lease.renew_at_s = 0.0  # as if a third of its time had passed
    renewer_of(engine, NAME).add(lease)
    eventually(lambda: counters.locks_lost)
    assert lock.lost
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
        assert (admin.dbsize(), admin.exists(LOCK)) == (1, 1)
        assert engine.lock_acquire(NAME, TTL_MS) is None


@pytest.mark.filterwarnings("ignore::django.core.cache.CacheKeyWarning")
def test_a_client_that_decodes_lists_locks_if_it_is_told_how(server: Server) -> None:
    """As docs/redis.md says. No ending that is text could be told from a visitor's."""
    cache = RedisCache(f"unix://{server.path}", {})
    forged = "key\x00nearcache:lock"
    cache.set(forged, "of a visitor")
    with (
        cache.lock("key", timeout=30),
        server.client(decode_responses=True, encoding_errors="backslashreplace") as client,
    ):
        names = sorted(client.scan_iter())
        assert names == [f":1:{forged}", ":1:key\\xffnearcache:lock"]
        assert [name for name in names if "\\xffnearcache:" not in name] == [f":1:{forged}"]
    with server.client(decode_responses=True) as client, pytest.raises(UnicodeDecodeError):
        list(client.scan_iter())


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


def answers(engine: Any) -> bool:
    """False while its server is too slow for a limit that is short on purpose."""
    with contextlib.suppress(EngineUnavailable):
        return engine.contains(b"any") is not None
    return False


def acquires(lock: Lock) -> bool:
    with contextlib.suppress(EngineUnavailable):
        return lock.acquire(blocking=False)
    return False


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
        assert got.result(60)  # the server came back empty
        with pytest.raises(LockLost):
            lock.renew()
        waiter.release()


def test_a_place_is_not_lost_when_the_server_goes_in_the_middle_of_a_wait(
    engine: Any, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed_and_heard(bell: Bell, seconds: float) -> bool:
        server.kill()
        return True

    assert lock_of(engine).acquire()
    ticket = engine.lock_ticket()
    monkeypatch.setattr(Bell, "heard", killed_and_heard)
    try:
        assert engine.lock_wait(NAME, ticket, TTL_MS, 1000) == (None, ticket)
    finally:
        server.start()
        server.wait_ready()


def test_the_first_question_does_not_wait_for_a_server(engine: Any, server: Server) -> None:
    server.kill()
    try:
        # Else as often as there is room in its wait of ten seconds.
        before = engine.topology.stats()["failures"]
        with pytest.raises(EngineUnavailable):
            lock_of(engine).acquire()
        assert engine.topology.stats()["failures"] <= before + 2
    finally:
        server.start()
        server.wait_ready()


def test_what_a_silent_server_did_in_the_end_is_undone(
    server: Server, eventually: Eventually
) -> None:
    engine = open_engine(server.path, read_timeout_s=0.5)
    eventually(lambda: answers(engine))
    server.pause()
    try:
        with pytest.raises(EngineUnavailable):
            lock_of(engine).acquire()
    finally:
        server.resume()
    other = open_engine(server.path)

    def acquired() -> bool:
        with contextlib.suppress(EngineUnavailable):  # the circuit may be open for a moment
            return other.lock_acquire(NAME, TTL_MS) is not None
        return False

    eventually(acquired, TTL_MS / 1000 / 2)
    other.topology.close()
    engine.topology.close()


def test_a_release_that_gets_no_answer_is_repeated(server: Server, eventually: Eventually) -> None:
    engine = open_engine(server.path, read_timeout_s=0.5)
    eventually(lambda: answers(engine))
    lock = lock_of(engine, timeout_s=120)
    eventually(lambda: acquires(lock))
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
            each.result(60)
    assert most == 1
    # Sooner than its time would be over.
    wait_for(lambda: engine.lock_acquire(NAME, TTL_MS), "no lock that nobody knows of", 20)
    engine.topology.close()
