"""Who renews goes on renewing: whatever a thread's start, or another server, does."""

from __future__ import annotations

import _thread
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from nearcache.base import threads
from nearcache.base.threads import Sole
from nearcache.coordination.background_refresh import in_thread
from nearcache.coordination.lock_renewal import renewer_of
from nearcache.coordination.locks import Lock
from nearcache.engines.memory import MemoryEngine
from nearcache.engines.redis.engine import open_redis
from nearcache.engines.redis.target.target import Address, Target
from tests.interrupted import Interrupt
from tests.redis.servers import Server, running

Eventually = Callable[..., None]


def renewed(lock: Lock, eventually: Eventually) -> None:
    lease = lock._lease
    assert lease
    ends_at_s = lease._ends_at_s
    eventually(lambda: lease._ends_at_s > ends_at_s)


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The system gives none."""

    def none(*args: Any) -> None:
        raise RuntimeError("can't start new thread")

    return lambda patched: patched.setattr(_thread, "start_new_thread", none)


def test_a_start_that_failed_is_tried_again(
    no_threads: Any,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = MemoryEngine()
    first = Lock(engine, b"first", timeout_s=60)
    with monkeypatch.context() as patched:
        no_threads(patched)
        assert first.acquire()
        assert "no thread to renew locks" in caplog.text
    assert first._lease
    first._lease.renew_at_s = 0.0  # as if a third of its time had passed
    with Lock(engine, b"second", timeout_s=3) as second:
        renewed(second, eventually)
        eventually(lambda: first._lease and first._lease.renew_at_s)
    first.release()


def test_refreshes_find_room_again_after_failed_starts(
    no_threads: Any, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    with monkeypatch.context() as patched:
        no_threads(patched)
        assert not any(in_thread(lambda: None) for _ in range(20))
    done: list[int] = []
    assert in_thread(lambda: done.append(1))
    eventually(lambda: done)


def test_wherever_a_start_is_interrupted_somebody_works() -> None:
    for number in count(1):
        where = _interrupted_start(number)
        if not where:
            break
    assert number > 3


def _interrupted_start(number: int) -> str:
    worked = threading.Event()

    def work(me: object) -> None:
        if sole.is_done_by(me):
            worked.set()
            sole.leave()

    sole = Sole(work, "test")
    interrupt = Interrupt(number, KeyboardInterrupt(), {threads.__file__})
    with contextlib.suppress(KeyboardInterrupt), interrupt.under_way():
        sole.begin()
    sole.begin()  # who needs the work next
    assert worked.wait(10), interrupt.where
    return interrupt.where


def engine_at(server: Server) -> Any:
    patient = {"read_timeout_s": 60.0, "connect_timeout_s": 60.0}
    return open_redis(Target(addresses=(Address(path=server.path),), **patient))


def test_a_frozen_server_delays_no_other_s_locks(
    redis_server: Server, tmp_path: Path, eventually: Eventually
) -> None:
    (other_directory := tmp_path / "r").mkdir()
    with running(other_directory) as frozen:
        theirs, ours = engine_at(frozen), engine_at(redis_server)
        held = [Lock(theirs, b"n%d" % number, timeout_s=600) for number in range(20)]
        for lock in held:
            assert lock.acquire()
        os.kill(frozen.process.pid, signal.SIGSTOP)
        try:
            for lock in held:
                lease = lock._lease
                assert lease
                lease.renew_at_s = 0.0  # as if a third of its time had passed
                renewer_of(theirs, lock.name).see_to(lease)
            with Lock(ours, b"n", timeout_s=6) as lock:
                renewed(lock, eventually)
                lock.check()
        finally:
            os.kill(frozen.process.pid, signal.SIGCONT)
        for lock in held:
            lock.release()
        theirs.topology.close()
        ours.topology.close()


def test_a_bug_in_one_lock_costs_no_other(
    caplog: pytest.LogCaptureFixture, eventually: Eventually
) -> None:
    class Broken(MemoryEngine):
        def lock_renew(self, name: bytes, token: int, ttl_ms: int) -> bool:
            if name == b"broken":
                raise ZeroDivisionError
            return super().lock_renew(name, token, ttl_ms)

    engine = Broken()
    with (
        caplog.at_level(logging.ERROR),
        Lock(engine, b"broken", timeout_s=600) as broken,
        Lock(engine, b"well", timeout_s=3) as well,
    ):
        assert broken._lease
        broken._lease.renew_at_s = 0.0
        renewer_of(engine, b"broken").see_to(broken._lease)
        eventually(lambda: "could not be renewed" in caplog.text)
        broken._lease.renew_at_s = float("inf")
        renewed(well, eventually)
