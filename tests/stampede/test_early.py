"""A fresh value computed anew before it ends, by one caller, as XFetch has it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

from nearcache.base.clock import FakeClock
from nearcache.codec.envelope import Envelope, opened
from tests.stampede.function import Function, S


def test_a_value_is_computed_anew_early_as_xfetch_has_it(
    cache: Any, clock: FakeClock, function: Function
) -> None:
    function.takes_ms = 2 * S
    cache.get_or_set("k", function, 100, early=True)
    ahead_ms = -2 * S * math.log(0.5)  # `chance` is 0.5
    clock.advance_ms(100 * S - ahead_ms - 10)
    assert cache.get_or_set("k", function, 100, early=True) == "value 1"
    clock.advance_ms(20)
    assert cache.get_or_set("k", function, 100, early=True) == "value 2"
    assert cache.get("k") == "value 2", "the new value is stored over the one that was fresh"
    envelope = opened(cache.engine.get(b":1:k"))
    assert envelope
    assert envelope.soft_ms == clock.now_ms() + 100 * S
    assert envelope.delta_ms == 2 * S, "measured"
    assert cache.stats()["early_recomputes"] == 1


@pytest.mark.parametrize(("beta", "calls"), [(0.5, 1), (1, 1), (3, 2), (False, 1), (True, 1)])
def test_a_larger_factor_is_earlier(
    cache: Any, clock: FakeClock, function: Function, beta: float, calls: int
) -> None:
    function.takes_ms = 2 * S
    cache.get_or_set("k", function, 100, early=beta, stale=1)
    clock.advance_ms(97 * S)
    cache.get_or_set("k", function, 100, early=beta, stale=1)
    assert function.calls == calls


def test_the_longer_it_took_the_earlier_it_is_computed_anew(cache: Any, clock: FakeClock) -> None:
    now_ms = clock.now_ms()
    envelopes = [Envelope(now_ms + 1000, 0, delta_ms, b"") for delta_ms in (10, 1000, 100_000)]
    early = [cache._is_early(envelope, 1.0, now_ms) for envelope in envelopes]
    assert early == [False, False, True]


def test_forty_callers_compute_early_once_and_the_others_go_on(
    cache: Any, clock: FakeClock
) -> None:
    cache.chance = lambda: 0.999999
    entered, leave = threading.Event(), threading.Event()
    calls = []

    def compute() -> str:
        calls.append(1)
        if len(calls) == 1:
            clock.advance_ms(1 * S)
        else:
            entered.set()
            assert leave.wait(60)
        return f"value {len(calls)}"

    cache.get_or_set("k", compute, 100, early=True)
    clock.advance_ms(95 * S)
    leader = threading.Thread(
        target=cache.get_or_set, args=("k", compute, 100), kwargs={"early": 1}
    )
    leader.start()
    assert entered.wait(60)
    others = {cache.get_or_set("k", compute, 100, early=True) for _ in range(39)}
    leave.set()
    leader.join()
    assert others == {"value 1"}, "they neither wait nor compute"
    assert len(calls) == 2
    assert cache.get("k") == "value 2"


def test_a_value_that_ends_during_an_early_recompute_is_stored_all_the_same(
    cache: Any, clock: FakeClock, function: Function
) -> None:
    function.takes_ms = 5 * S
    cache.get_or_set("k", function, 100, early=10)
    clock.advance_ms(99 * S)
    assert cache.get_or_set("k", function, 100, early=10) == "value 2"
    assert cache.get("k") == "value 2"


def test_who_sets_the_key_during_an_early_recompute_wins(cache: Any, clock: FakeClock) -> None:
    cache.chance = lambda: 0.999999
    for change, expected in (
        (lambda: cache.set("k", "set"), "set"),
        (lambda: cache.delete("k"), None),
    ):
        cache.clear()
        cache.get_or_set("k", Function(clock, 1000), 100, early=True)
        clock.advance_ms(95 * S)

        def compute(change: Callable[[], Any] = change) -> str:
            change()
            return "computed from what was before"

        cache.get_or_set("k", compute, 100, early=True)
        assert cache.get("k") == expected


def test_a_failing_early_recompute_costs_nobody_the_value(
    cache: Any, clock: FakeClock, function: Function, caplog: pytest.LogCaptureFixture
) -> None:
    cache.chance = lambda: 0.999999
    function.takes_ms = 1 * S
    cache.get_or_set("k", function, 100, early=True)
    clock.advance_ms(95 * S)
    function.fails = True
    for _ in range(5):
        assert cache.get_or_set("k", function, 100, early=True) == "value 1"
    assert function.calls == 2, "and is not tried by everybody at once"
    assert cache.stats()["refresh_errors"] == 1
    assert len(caplog.records) == 1
