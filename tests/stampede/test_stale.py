"""An old value served while a new one is computed, or when computing fails."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from nearcache.base.clock import FakeClock
from tests.stampede.function import Function, S

# -- stale while revalidate ------------------------------------------------------------------


def test_a_stale_value_is_served_and_computed_anew_behind(
    cache: Any, clock: FakeClock, function: Function, at_once: list[bool]
) -> None:
    cache.get_or_set("k", function, 10, stale=60)
    clock.advance_ms(11 * S)
    assert cache.get_or_set("k", function, 10, stale=60) == "value 1"
    assert cache.get_or_set("k", function, 10, stale=60) == "value 2"
    assert function.calls == 2
    assert cache.stats()["stale_served"] == 1


def test_everybody_gets_the_stale_value_while_one_computes(
    cache: Any, clock: FakeClock, eventually: Callable[..., None]
) -> None:
    entered, leave = threading.Event(), threading.Event()
    calls = []

    def compute() -> str:
        calls.append(threading.current_thread().name)
        if len(calls) > 1:
            entered.set()
            assert leave.wait(60)
        return f"value {len(calls)}"

    cache.get_or_set("k", compute, 10, stale=60)
    clock.advance_ms(11 * S)
    assert cache.get_or_set("k", compute, 10, stale=60) == "value 1"
    assert entered.wait(60)
    assert {cache.get_or_set("k", compute, 10, stale=60) for _ in range(40)} == {"value 1"}
    leave.set()
    eventually(lambda: cache.get("k") == "value 2")
    assert len(calls) == 2
    assert calls[1] == "nearcache-refresh"


def test_a_task_computes_anew_behind_a_task(cache: Any, clock: FakeClock) -> None:
    calls = []

    async def main() -> None:
        leave = asyncio.Event()

        async def compute() -> str:
            calls.append(1)
            if len(calls) > 1:
                await leave.wait()
            return f"value {len(calls)}"

        await cache.aget_or_set("k", compute, 10, stale=60)
        clock.advance_ms(11 * S)
        for _ in range(10):
            assert await cache.aget_or_set("k", compute, 10, stale=60) == "value 1"
            await asyncio.sleep(0)
        leave.set()
        while await cache.aget("k") is None:
            await asyncio.sleep(0)
        assert await cache.aget("k") == "value 2"

    asyncio.run(main())
    assert len(calls) == 2


def test_behind_the_stale_window_callers_wait_for_the_new_value(
    cache: Any, clock: FakeClock, function: Function
) -> None:
    cache.get_or_set("k", function, 10, stale=60, stale_on_error=600)
    clock.advance_ms(71 * S)
    assert cache.get_or_set("k", function, 10, stale=60, stale_on_error=600) == "value 2"
    assert cache.get("k") == "value 2"


def test_without_room_behind_requests_the_next_reader_tries(
    cache: Any, clock: FakeClock, function: Function, at_once: list[bool]
) -> None:
    cache.get_or_set("k", function, 10, stale=60)
    clock.advance_ms(11 * S)
    at_once.append(False)
    assert cache.get_or_set("k", function, 10, stale=60) == "value 1"
    assert cache.stats()["refresh_skipped"] == 1
    at_once.append(True)
    assert cache.get_or_set("k", function, 10, stale=60) == "value 1"
    assert cache.get("k") == "value 2"


def test_a_process_that_finds_another_at_it_asks_again_a_little_later(
    cache: Any, clock: FakeClock, function: Function, at_once: list[bool]
) -> None:
    cache.get_or_set("k", function, 10, stale=60)
    clock.advance_ms(11 * S)
    assert cache.engine.claim(b":1:k", 7, 60_000)
    assert cache.get_or_set("k", function, 10, stale=60) == "value 1"
    cache.engine.unclaim(b":1:k", 7)
    assert cache.get_or_set("k", function, 10, stale=60) == "value 1"
    assert function.calls == 1
    clock.advance_ms(101)
    assert cache.get_or_set("k", function, 10, stale=60) == "value 1"
    assert function.calls == 2


def test_a_refresh_reads_again_before_it_computes(
    cache: Any, clock: FakeClock, function: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.get_or_set("k", function, 10, stale=60)
    clock.advance_ms(11 * S)

    def after_another_process(work: Callable[[], None]) -> bool:
        cache.set("k", "theirs")
        work()
        return True

    monkeypatch.setattr("nearcache.django_cache.get_or_set.in_thread", after_another_process)
    assert cache.get_or_set("k", function, 10, stale=60) == "value 1"
    assert function.calls == 1
    assert cache.get("k") == "theirs"


def test_nothing_is_started_behind_requests_while_a_failure_pauses_it(
    cache: Any, clock: FakeClock, function: Function, at_once: list[bool]
) -> None:
    cache.get_or_set("k", function, 10, stale=60)
    clock.advance_ms(11 * S)
    function.fails = True
    cache.get_or_set("k", function, 10, stale=60)
    at_once.append(False)
    for _ in range(5):
        assert cache.get_or_set("k", function, 10, stale=60) == "value 1"
    assert cache.stats()["refresh_skipped"] == 0


def test_a_failing_refresh_is_said_once_and_paused(
    cache: Any,
    clock: FakeClock,
    function: Function,
    at_once: list[bool],
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache.get_or_set("k", function, 10, stale=600)
    clock.advance_ms(11 * S)
    function.fails = True
    for _ in range(3):
        for _ in range(10):
            assert cache.get_or_set("k", function, 10, stale=600) == "value 1"
        clock.advance_ms(5 * S)  # error_pause
    assert function.calls == 1 + 3
    assert cache.stats()["refresh_errors"] == 3
    function.fails = False
    cache.get_or_set("k", function, 10, stale=600)
    assert cache.get("k") == "value 5"
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert "cannot be computed anew" in caplog.messages[0]
    assert "computed again" in caplog.messages[1]


# -- stale on error ------------------------------------------------------------------------------


def test_the_old_value_is_served_if_computing_fails(
    cache: Any, clock: FakeClock, function: Function
) -> None:
    cache.get_or_set("k", function, 10, stale_on_error=60)
    clock.advance_ms(11 * S)
    function.fails = True
    for _ in range(10):
        assert cache.get_or_set("k", function, 10, stale_on_error=60) == "value 1"
    assert function.calls == 2, "not retried by everybody at once"
    assert cache.stats()["stale_on_error"] == 10
    clock.advance_ms(5 * S)
    function.fails = False
    assert cache.get_or_set("k", function, 10, stale_on_error=60) == "value 3"


def test_behind_the_grace_the_error_comes_out(
    cache: Any, clock: FakeClock, function: Function
) -> None:
    cache.get_or_set("k", function, 10, stale_on_error=60)
    function.fails = True
    clock.advance_ms(69 * S)
    assert cache.get_or_set("k", function, 10, stale_on_error=60) == "value 1"
    clock.advance_ms(1 * S)
    with pytest.raises(KeyError, match="database"):
        cache.get_or_set("k", function, 10, stale_on_error=60)


def test_an_error_with_nothing_to_fall_back_on_comes_out(cache: Any, function: Function) -> None:
    function.fails = True
    with pytest.raises(KeyError, match="database"):
        cache.get_or_set("k", function, 10, early=True, stale=60, stale_on_error=60)
    assert cache.get("k", "miss") == "miss"


def test_who_did_not_ask_for_it_gets_the_error_and_not_the_old_value(
    cache: Any, clock: FakeClock, function: Function
) -> None:
    cache.get_or_set("k", function, 10, stale_on_error=60)
    clock.advance_ms(11 * S)
    function.fails = True
    with pytest.raises(KeyError):
        cache.get_or_set("k", function, 10)


def test_a_deleted_value_does_not_come_back_by_an_error(
    cache: Any, clock: FakeClock, function: Function
) -> None:
    cache.get_or_set("k", function, 10, stale_on_error=60)
    clock.advance_ms(11 * S)
    function.fails = True
    cache.get_or_set("k", function, 10, stale_on_error=60)
    cache.delete("k")
    with pytest.raises(KeyError):
        cache.get_or_set("k", function, 10, stale_on_error=60)
