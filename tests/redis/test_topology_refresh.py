"""The map is asked for by one at a time, not too often, and nobody is left waiting."""

from __future__ import annotations

import asyncio
import threading

import pytest

from nearcache.base.clock import FakeClock, SystemClock
from nearcache.base.sans_io import Flow, Pause, arun, run
from nearcache.engines.redis.topology.topology_refresh import Refresh
from nearcache.errors import ConnectionFailed


class Map:
    """Counts how often it is asked for; asking takes a while, and may fail."""

    def __init__(self) -> None:
        self.asked = 0
        self.takes_s = 0.0
        self.error: Exception | None = None

    def ask(self) -> Flow[None]:
        self.asked += 1
        if self.takes_s:
            yield Pause(self.takes_s)
        if self.error is not None:
            raise self.error


def test_it_is_asked_for_once_per_pause() -> None:
    clock, it = FakeClock(), Map()
    refresh = Refresh(it.ask, clock, every_s=0.1, limit_s=1)
    run(refresh.first(), None, clock)
    run(refresh.first(), None, clock)
    assert (it.asked, refresh.number) == (1, 1)
    assert run(refresh.after(0), None, clock)  # it is newer than that already
    assert not run(refresh.after(1), None, clock)
    clock.advance_ms(150)
    assert run(refresh.after(1), None, clock)
    assert (it.asked, refresh.number) == (2, 2)


def test_an_error_is_told_to_all_who_have_no_map_yet() -> None:
    clock, it = FakeClock(), Map()
    it.error = ConnectionFailed("nobody there")
    refresh = Refresh(it.ask, clock, every_s=0.1, limit_s=1)
    for _ in range(3):
        with pytest.raises(ConnectionFailed, match="nobody there"):
            run(refresh.first(), None, clock)
    assert it.asked == 1
    it.error = None
    clock.advance_ms(150)
    run(refresh.first(), None, clock)
    assert refresh.number == 1


def test_threads_that_come_meanwhile_wait_for_its_result() -> None:
    clock, it = SystemClock(), Map()
    it.takes_s = 0.05
    refresh = Refresh(it.ask, clock, every_s=10, limit_s=10)
    newer: list[bool] = []
    threads = [
        threading.Thread(target=lambda: newer.append(run(refresh.after(0), None, clock)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (it.asked, newer) == (1, [True] * 8)


def test_a_cancelled_task_leaves_the_turn_to_others() -> None:
    clock, it = SystemClock(), Map()
    it.takes_s = 60
    refresh = Refresh(it.ask, clock, every_s=0, limit_s=60)

    async def main() -> None:
        first = asyncio.create_task(arun(refresh.after(0), None, clock))
        while not it.asked:
            await asyncio.sleep(0)
        second = asyncio.create_task(arun(refresh.after(0), None, clock))
        await asyncio.sleep(0)
        it.takes_s = 0
        first.cancel()
        assert await second

    asyncio.run(main())
    assert (it.asked, refresh.number) == (2, 1)


def test_after_a_cancelled_task_the_next_one_asks_at_once() -> None:
    clock, it = FakeClock(), Map()
    it.takes_s = 60
    refresh = Refresh(it.ask, clock, every_s=0.1, limit_s=60)
    cancelled = refresh.first()
    assert next(cancelled) == Pause(60)
    cancelled.close()
    it.takes_s = 0
    run(refresh.first(), None, clock)
    assert (it.asked, refresh.number) == (2, 1)


def test_who_asks_for_too_long_is_forgotten() -> None:
    clock, it = FakeClock(), Map()
    it.takes_s = 5
    refresh = Refresh(it.ask, clock, every_s=0, limit_s=1)
    stuck = refresh.after(0)
    assert isinstance(next(stuck), Pause)  # and it never comes back
    it.takes_s = 0
    began_s = clock.monotonic_s()
    assert run(refresh.after(0), None, clock)
    assert 1 <= clock.monotonic_s() - began_s < 1.1
    stuck.close()
