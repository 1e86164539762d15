"""The lock object: waiting, renewing, losing, and errors that do not hide each other."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from nearcache.base.clock import FakeClock, SystemClock
from nearcache.base.counters import Counters
from nearcache.coordination.lock_attempts import OUTAGE_S
from nearcache.coordination.lock_renewal import renewer_of
from nearcache.coordination.locks import Lock
from nearcache.engines.memory import MemoryEngine
from nearcache.errors import EngineUnavailable, LockLost, LockNotAcquired


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


def test_waiters_are_served_in_the_order_in_which_they_came(engine: MemoryEngine) -> None:
    async def main() -> list[int]:
        got: list[int] = []

        async def work(number: int) -> None:
            async with Lock(engine, b"n", clock=SystemClock()):
                got.append(number)

        async with Lock(engine, b"n", clock=SystemClock()):
            tasks = []
            for number in range(5):
                tasks.append(asyncio.create_task(work(number)))
                await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        return got

    assert asyncio.run(main()) == list(range(5))


def test_a_wait_that_is_over_gives_its_place_up(engine: MemoryEngine, clock: FakeClock) -> None:
    token = engine.lock_acquire(b"n", 60_000)
    assert not Lock(engine, b"n", wait_s=0.1, clock=clock).acquire()
    engine.lock_release(b"n", token or 0)
    assert engine.lock_acquire(b"n", 1000)


def test_a_cancelled_wait_gives_its_place_up(
    engine: MemoryEngine, eventually: Callable[[Callable[[], object]], None]
) -> None:
    async def main() -> None:
        waiting = asyncio.create_task(Lock(engine, b"n", clock=SystemClock()).aacquire())
        await asyncio.sleep(0.005)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    token = engine.lock_acquire(b"n", 60_000)
    asyncio.run(main())
    engine.lock_release(b"n", token or 0)
    eventually(lambda: engine.lock_acquire(b"n", 1000))


# -- what a holder can see -------------------------------------------------------------------------


def test_a_holder_can_look_whether_it_is_still_one(engine: MemoryEngine, clock: FakeClock) -> None:
    lock = Lock(engine, b"n", timeout_s=1, clock=clock)
    assert not lock.lost
    with pytest.raises(LockLost, match="not held"):
        lock.check()
    lock.acquire()
    lock.check()
    clock.advance_ms(999)
    assert not lock.lost
    clock.advance_ms(1)
    assert lock.lost
    with pytest.raises(LockLost):
        lock.check()


def test_a_loss_is_counted_once(engine: MemoryEngine, clock: FakeClock) -> None:
    counters = Counters()
    lock = Lock(engine, b"n", timeout_s=1, clock=clock, counters=counters)
    lock.acquire()
    clock.advance_ms(1000)
    for act in (lock.check, lock.check, lock.release):
        with pytest.raises(LockLost):
            act()
    assert counters.locks_lost == 1


def test_a_time_that_is_renewed_counts_from_before_the_store_was_asked(clock: FakeClock) -> None:
    class SlowEngine(MemoryEngine):
        def lock_renew(self, name: bytes, token: int, ttl_ms: int) -> bool:
            clock.advance_ms(300)
            return super().lock_renew(name, token, ttl_ms)

    lock = Lock(SlowEngine(clock), b"n", timeout_s=1, clock=clock)
    lock.acquire()
    lock.renew()
    clock.advance_ms(700)
    assert lock.lost


def test_the_names_of_redis_py_do_the_same(engine: MemoryEngine, clock: FakeClock) -> None:
    lock = Lock(engine, b"n", timeout_s=10, clock=clock)
    assert not lock.owned()
    lock.acquire()
    assert lock.owned()
    clock.advance_ms(4000)
    assert lock.extend(5)
    clock.advance_ms(10_999)
    assert lock.owned()
    assert lock.extend(2, replace_ttl=True)
    clock.advance_ms(1999)
    assert lock.reacquire()
    clock.advance_ms(1999)
    assert lock.owned()
    clock.advance_ms(1)
    assert not lock.owned()
    with pytest.raises(LockLost):
        lock.extend(1)


# -- renewal ---------------------------------------------------------------------------------------


def test_a_held_lock_is_renewed_and_a_released_one_is_not(
    clock: FakeClock,
    eventually: Callable[[Callable[[], object]], None],
) -> None:
    renewed = []

    class Engine(MemoryEngine):
        def lock_renew(self, name: bytes, token: int, ttl_ms: int) -> bool:
            renewed.append(token)
            return super().lock_renew(name, token, ttl_ms)

    # The renewer wakes in real time; the time of the lock is one that nobody loses by being slow.
    with Lock(Engine(clock), b"n", timeout_s=0.09, clock=clock) as lock:
        eventually(lambda: len(renewed) >= 3)
        assert set(renewed) == {lock.token}
    count = len(renewed)
    time.sleep(0.1)
    assert len(renewed) <= count + 1  # one may have been on its way


@pytest.mark.parametrize("options", [{"auto_renew": False}, {"max_hold_s": 0.05}])
def test_renewal_ends_where_it_should(options: dict[str, Any]) -> None:
    engine = MemoryEngine()
    with pytest.raises(LockLost), Lock(engine, b"n", timeout_s=0.1, **options):
        time.sleep(0.3)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_lock_object_that_is_gone_is_not_renewed(
    reentrant: bool, eventually: Callable[[Callable[[], object]], None]
) -> None:
    engine = MemoryEngine()
    Lock(engine, b"n", timeout_s=0.05, reentrant=reentrant).acquire()
    gc.collect()
    eventually(lambda: engine.lock_acquire(b"n", 1000))


def test_the_keeper_tells_when_a_lock_is_gone(
    caplog: pytest.LogCaptureFixture, eventually: Callable[[Callable[[], object]], None]
) -> None:
    engine, counters = MemoryEngine(), Counters()
    lock = Lock(engine, b"shared", timeout_s=0.6, counters=counters)
    lock.acquire()
    engine.lock_release(b"shared", lock.token or 0)
    eventually(lambda: "'shared' ran out or was taken over" in caplog.text)
    assert lock.lost
    assert counters.locks_lost == 1
    with pytest.raises(LockLost):
        lock.release()


class AwayEngine(MemoryEngine):
    """A store that does not answer while it is ``away``."""

    away = False
    renewed = unanswered = 0

    def lock_renew(self, name: bytes, token: int, ttl_ms: int) -> bool:
        self._answer()
        self.renewed += 1
        return super().lock_renew(name, token, ttl_ms)

    def lock_release(self, name: bytes, token: int) -> bool:
        self._answer()
        return super().lock_release(name, token)

    def lock_wait(
        self, name: bytes, ticket: int | None, ttl_ms: int, wait_ms: int
    ) -> tuple[int | None, int | None]:
        self._answer()
        return super().lock_wait(name, ticket, ttl_ms, wait_ms)

    def _answer(self) -> None:
        if self.away:
            self.unanswered += 1
            raise EngineUnavailable("away")


def test_a_store_that_is_away_for_a_moment_costs_no_lock(
    clock: FakeClock, eventually: Callable[[Callable[[], object]], None]
) -> None:
    engine = AwayEngine(clock)
    with Lock(engine, b"n", timeout_s=0.4, clock=clock) as lock:
        engine.away = True
        eventually(lambda: engine.unanswered)
        clock.advance_ms(300)
        engine.away = False
        before = engine.renewed
        eventually(lambda: engine.renewed > before + 1)  # the first has been taken in by then
        clock.advance_ms(300)
        lock.check()


def test_a_store_that_is_away_for_longer_than_the_time_costs_it(
    eventually: Callable[[Callable[[], object]], None],
) -> None:
    engine = AwayEngine()
    lock = Lock(engine, b"n", timeout_s=0.2)
    lock.acquire()
    engine.away = True
    eventually(lambda: lock.lost)
    with pytest.raises(LockLost):
        lock.release()


def test_a_release_without_an_answer_is_an_error_and_repeated(
    eventually: Callable[[Callable[[], object]], None],
) -> None:
    engine = AwayEngine()
    lock = Lock(engine, b"n", timeout_s=60)
    lock.acquire()
    engine.away = True
    with pytest.raises(EngineUnavailable):
        lock.release()
    engine.away = False
    eventually(lambda: engine.lock_acquire(b"n", 1000))


def test_an_unanswered_release_does_not_hide_the_body_s_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = AwayEngine()

    def body() -> None:
        with Lock(engine, b"n", timeout_s=60):
            engine.away = True
            raise KeyError("body")

    with pytest.raises(KeyError), caplog.at_level(logging.WARNING):
        body()
    assert "away" in caplog.text


def test_a_wait_outlives_a_store_that_is_away_but_not_for_ever() -> None:
    class Clock(FakeClock):
        """The store goes away when somebody first waits."""

        def sleep(self, seconds: float) -> None:
            engine.away = self.goes_away
            super().sleep(seconds)

        goes_away = True

    clock = Clock()
    engine = AwayEngine(clock)
    engine.lock_acquire(b"n", 3_600_000)
    before = clock.monotonic_s()
    with pytest.raises(EngineUnavailable):
        Lock(engine, b"n", clock=clock).acquire()
    assert OUTAGE_S < clock.monotonic_s() - before < OUTAGE_S + 2
    engine.away = clock.goes_away = False
    assert not Lock(engine, b"n", wait_s=1, clock=clock).acquire()


def test_the_keeper_ends_when_there_is_nothing_to_keep(
    engine: MemoryEngine, eventually: Callable[[Callable[[], object]], None]
) -> None:
    with Lock(engine, b"n", timeout_s=30):
        assert renewer_of(engine, b"n") is renewer_of(engine, b"n")
    renewer = renewer_of(engine, b"n")
    eventually(lambda: not renewer._kept)


# -- coming in again -------------------------------------------------------------------------------


def test_the_same_thread_may_come_in_again_if_it_says_so(
    engine: MemoryEngine, clock: FakeClock
) -> None:
    outer = Lock(engine, b"n", reentrant=True, clock=clock)
    inner = Lock(engine, b"n", reentrant=True, clock=clock)
    with outer:
        with outer, inner, inner:
            assert inner.token == outer.token
        assert inner.token is None
        assert engine.lock_acquire(b"n", 1000) is None
    assert outer.token is None
    assert engine.lock_acquire(b"n", 1000)


def test_whoever_is_inside_last_releases(engine: MemoryEngine, clock: FakeClock) -> None:
    outer = Lock(engine, b"n", reentrant=True, clock=clock)
    inner = Lock(engine, b"n", reentrant=True, clock=clock)
    outer.acquire()
    inner.acquire()
    outer.release()
    assert engine.lock_acquire(b"n", 1000) is None
    inner.release()
    assert engine.lock_acquire(b"n", 1000)


def test_another_thread_or_task_may_not(engine: MemoryEngine) -> None:
    lock = Lock(engine, b"n", reentrant=True)
    lock.acquire()
    seen: list[object] = []

    def elsewhere() -> None:
        seen.append(Lock(engine, b"n", reentrant=True).acquire(blocking=False))
        try:
            lock.acquire(blocking=False)
        except LockNotAcquired as error:
            seen.append(type(error))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [False, LockNotAcquired]

    async def main() -> None:
        async with Lock(engine, b"t", reentrant=True):
            async with Lock(engine, b"t", reentrant=True):
                pass
            other = Lock(engine, b"t", reentrant=True)
            assert not await asyncio.create_task(other.aacquire(blocking=False))

    asyncio.run(main())


def test_other_names_and_engines_are_other_locks(engine: MemoryEngine, clock: FakeClock) -> None:
    with Lock(engine, b"n", reentrant=True, clock=clock) as first:
        with Lock(engine, b"m", reentrant=True, clock=clock) as second:
            assert second.token != first.token
        with Lock(MemoryEngine(clock), b"n", reentrant=True, clock=clock):
            pass


def test_nobody_comes_in_again_to_a_lock_that_is_lost(
    engine: MemoryEngine, clock: FakeClock
) -> None:
    lock = Lock(engine, b"n", timeout_s=1, reentrant=True, clock=clock)
    lock.acquire()
    clock.advance_ms(1000)
    with pytest.raises(LockLost):
        lock.acquire()
    with pytest.raises(LockLost):
        lock.release()
    assert lock.acquire()


@pytest.mark.parametrize(
    ("timeout", "error"),
    [
        ("5", TypeError),
        (timedelta(seconds=5), TypeError),
        (True, TypeError),
        (0, ValueError),
        (-1, ValueError),
        (float("nan"), ValueError),
    ],
)
def test_a_time_is_a_number_of_seconds_above_0(
    engine: MemoryEngine, timeout: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"timeout is .*; write a number of seconds"):
        Lock(engine, b"n", timeout_s=timeout)
    with Lock(engine, b"n") as lock, pytest.raises(error, match="write a number of seconds"):
        lock.renew(timeout)


def test_a_thread_with_the_number_of_one_that_has_ended_is_another(engine: MemoryEngine) -> None:
    left_behind: list[tuple[int, Lock]] = []

    def first() -> None:
        lock = Lock(engine, b"n", reentrant=True, clock=SystemClock())
        assert lock.acquire()
        left_behind.append((threading.get_ident(), lock))

    came_in: list[bool] = []

    def later() -> None:
        if threading.get_ident() == left_behind[0][0]:
            again = Lock(engine, b"n", reentrant=True, clock=SystemClock())
            came_in.append(again.acquire(blocking=False))

    def in_a_thread(work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    in_a_thread(first)
    # Another thread may have that number for a while: a renewer of an earlier test.
    until_s = time.monotonic() + 20
    while not came_in and time.monotonic() < until_s:
        in_a_thread(later)
    assert came_in == [False]


def test_a_task_is_not_an_ended_one_with_its_number(engine: MemoryEngine) -> None:
    async def main() -> None:
        lock = Lock(engine, b"n", reentrant=True, clock=SystemClock())
        await asyncio.create_task(lock.aacquire())
        for _ in range(100):
            other = Lock(engine, b"n", reentrant=True, clock=SystemClock())
            assert not await asyncio.create_task(other.aacquire(blocking=False))

    asyncio.run(main())
