"""The lock object: waiting, losing, and errors that do not hide each other."""

from __future__ import annotations

import asyncio
import threading

import pytest

from nearcache.clock import FakeClock, SystemClock
from nearcache.engines.memory import MemoryEngine
from nearcache.errors import LockLost, LockNotAcquired
from nearcache.locks import LONGEST_PAUSE_S, Lock, pauses
from nearcache.metrics import Counters


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engine(clock: FakeClock) -> MemoryEngine:
    return MemoryEngine(clock)


def test_a_lock_is_held_inside_and_free_outside(engine: MemoryEngine, clock: FakeClock) -> None:
    with Lock(engine, b"n", clock=clock) as lock:
        assert lock.token
        assert engine.lock_acquire(b"n", 1000) is None
    assert lock.token is None
    assert engine.lock_acquire(b"n", 1000)


def test_the_body_s_error_frees_the_lock_and_comes_out(
    engine: MemoryEngine, clock: FakeClock
) -> None:
    with pytest.raises(KeyError), Lock(engine, b"n", clock=clock):
        raise KeyError("body")
    assert engine.lock_acquire(b"n", 1000)


def test_waiting_ends_when_the_wait_is_over(engine: MemoryEngine, clock: FakeClock) -> None:
    engine.lock_acquire(b"n", 60_000)
    before = clock.monotonic_s()
    assert not Lock(engine, b"n", wait_s=2, clock=clock).acquire()
    assert clock.monotonic_s() - before == pytest.approx(2, abs=0.001)
    with pytest.raises(LockNotAcquired), Lock(engine, b"n", wait_s=0.5, clock=clock):
        pass


def test_not_blocking_does_not_wait(engine: MemoryEngine, clock: FakeClock) -> None:
    engine.lock_acquire(b"n", 60_000)
    before = clock.monotonic_s()
    assert not Lock(engine, b"n", clock=clock).acquire(blocking=False)
    assert clock.monotonic_s() == before


def test_a_wait_longer_than_the_holder_s_time_succeeds(
    engine: MemoryEngine, clock: FakeClock
) -> None:
    engine.lock_acquire(b"n", 5_000)
    assert Lock(engine, b"n", timeout_s=1, wait_s=60, clock=clock).acquire()


def test_the_wait_per_call_goes_before_that_of_the_lock(
    engine: MemoryEngine, clock: FakeClock
) -> None:
    engine.lock_acquire(b"n", 5_000)
    lock = Lock(engine, b"n", wait_s=60, clock=clock)
    assert not lock.acquire(blocking_timeout=1)
    assert lock.acquire(blocking_timeout=10)


def test_a_lock_that_ran_out_says_so_at_its_release(engine: MemoryEngine, clock: FakeClock) -> None:
    counters = Counters()
    with (
        pytest.raises(LockLost, match="longer timeout"),
        Lock(engine, b"n", timeout_s=1, clock=clock, counters=counters),
    ):
        clock.advance_ms(1001)
    assert counters.locks_lost == 1


def test_a_lost_lock_does_not_hide_the_body_s_error(
    engine: MemoryEngine, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    def body() -> None:
        with Lock(engine, b"n", timeout_s=1, clock=clock):
            clock.advance_ms(1001)
            raise KeyError("body")

    with pytest.raises(KeyError):
        body()
    assert "ran out" in caplog.text


def test_renewing_starts_the_time_anew(engine: MemoryEngine, clock: FakeClock) -> None:
    with Lock(engine, b"n", timeout_s=1, clock=clock) as lock:
        clock.advance_ms(900)
        lock.renew()
        clock.advance_ms(900)
        lock.renew(5)
        clock.advance_ms(4900)


def test_renewing_a_lost_lock_is_an_error(engine: MemoryEngine, clock: FakeClock) -> None:
    lock = Lock(engine, b"n", timeout_s=1, clock=clock)
    lock.acquire()
    clock.advance_ms(1001)
    with pytest.raises(LockLost):
        lock.renew()
    with pytest.raises(LockLost, match="not held"):
        lock.release()


def test_one_object_holds_once(engine: MemoryEngine, clock: FakeClock) -> None:
    with Lock(engine, b"n", clock=clock) as lock, pytest.raises(LockNotAcquired, match="already"):
        lock.acquire()


def test_tasks_wait_without_stopping_the_loop(engine: MemoryEngine) -> None:
    async def main() -> list[str]:
        order: list[str] = []

        async def hold(name: str) -> None:
            async with Lock(engine, b"n", clock=SystemClock()):
                order.append(f"{name} in")
                await asyncio.sleep(0.005)
                order.append(f"{name} out")

        await asyncio.gather(hold("a"), hold("b"), hold("c"))
        return order

    order = asyncio.run(main())
    assert len(order) == 6
    for entered, left in zip(order[::2], order[1::2], strict=True):
        assert entered.split()[0] == left.split()[0]


def test_a_lock_may_be_released_in_another_thread(engine: MemoryEngine, clock: FakeClock) -> None:
    lock = Lock(engine, b"n", clock=clock)
    lock.acquire()
    thread = threading.Thread(target=lock.release)
    thread.start()
    thread.join()
    assert engine.lock_acquire(b"n", 1000)


def test_pauses_grow_to_a_bound(clock: FakeClock) -> None:
    taken = []
    for pause in pauses(clock, 1.0):
        taken.append(pause)
        clock.sleep(pause)
    assert taken[0] == pytest.approx(0.001)
    assert max(taken) == pytest.approx(LONGEST_PAUSE_S)
    assert sum(taken) == pytest.approx(1.0, abs=0.002)
