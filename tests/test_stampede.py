"""get_or_set on one clock that the tests move: fresh, early, stale, late, missing."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nearcache.clock import FakeClock
from nearcache.codec.envelope import Envelope, opened
from nearcache.engines.memory import MemoryEngine
from nearcache.errors import OptionError
from tests.backends.classes import MemoryCache

S = 1000


class TimedCache(MemoryCache):
    """A cache whose engine, codec and protection read one fake clock."""

    clock: Any
    chance: Any
    store: MemoryEngine

    def open_engine(self) -> Any:
        return self.store


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def make(clock: FakeClock) -> Callable[..., Any]:
    engine = MemoryEngine(clock, max_item_bytes=100_000)
    members = {"clock": clock, "store": engine, "chance": staticmethod(lambda: 0.5)}
    kind = type("Timed", (TimedCache,), members)

    def made(**options: Any) -> Any:
        return kind("stampede", {"OPTIONS": options})

    return made


@pytest.fixture
def cache(make: Callable[..., Any]) -> Any:
    return make()


class Function:
    """Counts its calls; returns their number, as text. A call takes `takes_ms` of fake time."""

    def __init__(self, clock: FakeClock, takes_ms: int = 0) -> None:
        self.calls = 0
        self.fails = False
        self.takes_ms = takes_ms
        self._clock = clock

    def __call__(self) -> str:
        self.calls += 1
        self._clock.advance_ms(self.takes_ms)
        if self.fails:
            raise KeyError("database")
        return f"value {self.calls}"


@pytest.fixture
def function(clock: FakeClock) -> Function:
    return Function(clock)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Refreshes behind a request run before it returns; append False to refuse them."""
    room = [True]

    def here(work: Callable[[], None]) -> bool:
        if room[-1]:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        return room[-1]

    monkeypatch.setattr("nearcache.stampede.in_thread", here)
    return room


# -- without extras ------------------------------------------------------------------------------


def test_without_extras_values_are_stored_as_set_stores_them(cache: Any) -> None:
    cache.get_or_set("k", lambda: {"a": 1}, 10)
    assert cache.engine.get(b":1:k") == cache.codec.encode({"a": 1})
    assert cache.engine.expires_at(b":1:k") == cache.clock.now_ms() + 10 * S


def test_what_somebody_added_meanwhile_is_the_value(cache: Any) -> None:
    def compute() -> str:
        cache.set("k", "theirs")
        return "mine"

    assert cache.get_or_set("k", compute) == "theirs"


def test_a_value_that_nobody_can_read_is_replaced(cache: Any, function: Function) -> None:
    cache.engine.set(b":1:k", b"\x8fgarbage", None)
    assert cache.get_or_set("k", function) == "value 1"
    assert cache.get("k") == "value 1"
    assert cache.stats()["undecodable"] == 1


def test_a_timeout_of_nothing_stores_nothing(cache: Any, function: Function) -> None:
    assert cache.get_or_set("k", function, 0) == "value 1"
    assert cache.get_or_set("k", function, -1, early=True, stale=9) == "value 2"
    assert cache.get("k") is None


def test_a_value_that_is_too_large_is_still_returned(cache: Any) -> None:
    assert cache.get_or_set("k", lambda: "x" * 200_000) == "x" * 200_000
    assert cache.get("k") is None


def test_callers_do_not_share_an_object(cache: Any) -> None:
    mine: list[int] = []
    assert cache.get_or_set("k", lambda: mine) is not mine


def test_versions_and_prefixes_do_not_wait_for_each_other(cache: Any) -> None:
    def compute() -> str:
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(cache.get_or_set, "k", lambda: "two", version=2)
            assert other.result(10) == "two"
        return "one"

    assert cache.get_or_set("k", compute) == "one"
    assert cache.counters.local_leads == 2


# -- soft deadlines ------------------------------------------------------------------------------


def test_a_stale_value_is_a_miss_to_who_does_not_ask(
    cache: Any, clock: FakeClock, function: Function
) -> None:
    cache.get_or_set("k", function, 10, stale=60)
    cache.set("other", 1)
    clock.advance_ms(10 * S - 1)
    assert cache.get("k") == "value 1"
    assert cache.get_many(["k", "other"]) == {"k": "value 1", "other": 1}
    clock.advance_ms(1)
    assert cache.get("k", "miss") == "miss"
    assert cache.get_many(["k", "other"]) == {"other": 1}
    assert cache.gets("k") is None
    assert cache.stats()["undecodable"] == 0


def test_the_store_keeps_a_value_to_the_end_of_its_grace(
    cache: Any, clock: FakeClock, function: Function
) -> None:
    cache.get_or_set("k", function, 10, stale=60, stale_on_error=90)
    assert cache.engine.expires_at(b":1:k") == clock.now_ms() + 100 * S


def test_a_plain_get_or_set_replaces_a_stale_value(
    cache: Any, clock: FakeClock, function: Function
) -> None:
    cache.get_or_set("k", function, 10, stale=60)
    clock.advance_ms(11 * S)
    assert cache.get_or_set("k", function, 10) == "value 2"
    assert cache.get("k") == "value 2"
    assert opened(cache.engine.get(b":1:k")) is None


def test_none_and_false_are_values(cache: Any) -> None:
    for value in (None, False, "", 0.0, []):
        cache.clear()
        assert cache.get_or_set("k", lambda value=value: value, 10, stale=60) == value
        assert cache.get_or_set("k", lambda: "other", 10, stale=60) == value


def test_an_int_is_a_counter_and_goes_into_no_envelope(cache: Any) -> None:
    assert cache.get_or_set("n", lambda: 5, 10, early=True, stale=60) == 5
    assert cache.engine.get(b":1:n") == b"5"
    assert cache.incr("n") == 6
    assert cache.get_or_set("n", lambda: 5, 10, early=True, stale=60) == 6


def test_a_value_that_never_ends_needs_no_envelope(cache: Any, function: Function) -> None:
    cache.get_or_set("k", function, None, early=True, stale=60)
    assert opened(cache.engine.get(b":1:k")) is None
    assert cache.ttl("k") is None


@pytest.mark.parametrize(
    ("move", "left_s"),
    [
        (lambda cache: cache.touch("k", 100), 100),
        (lambda cache: cache.expire("k", 100), 100),
        (lambda cache: cache.pexpire("k", 100_000), 100),
        (lambda cache: asyncio.run(cache.atouch("k", 100)), 100),
        (lambda cache: cache.persist("k"), None),
    ],
    ids=["touch", "expire", "pexpire", "atouch", "persist"],
)
def test_touch_moves_the_soft_deadline_and_keeps_the_grace(
    cache: Any,
    clock: FakeClock,
    function: Function,
    move: Callable[[Any], bool],
    left_s: int | None,
) -> None:
    cache.get_or_set("k", function, 10, stale=60)
    clock.advance_ms(5 * S)
    assert move(cache)
    envelope = opened(cache.engine.get(b":1:k"))
    assert envelope
    assert envelope.grace_ms == 60 * S
    clock.advance_ms(99 * S)
    assert cache.get("k") == "value 1"
    if left_s is None:
        assert cache.engine.expires_at(b":1:k") is None
    else:
        assert cache.engine.expires_at(b":1:k") == clock.now_ms() + 61 * S
        clock.advance_ms(1 * S)
        assert cache.get("k") is None


def test_touch_does_not_bring_a_stale_value_back(
    cache: Any, clock: FakeClock, function: Function
) -> None:
    cache.get_or_set("k", function, 10, stale=60)
    clock.advance_ms(11 * S)
    assert not cache.touch("k", 100)
    assert cache.get("k") is None
    assert cache.engine.expires_at(b":1:k") == clock.now_ms() + 59 * S


def test_touch_with_a_timeout_of_nothing_removes(cache: Any, function: Function) -> None:
    cache.get_or_set("k", function, 10, stale=60)
    assert cache.touch("k", 0)
    assert cache.engine.get(b":1:k") is None


def test_incr_version_takes_the_envelope_along(
    cache: Any, clock: FakeClock, function: Function
) -> None:
    cache.get_or_set("k", function, 10, stale=60)
    cache.incr_version("k")
    assert cache.get("k", version=2) == "value 1"
    clock.advance_ms(11 * S)
    assert cache.get("k", version=2) is None


# -- early recomputation -------------------------------------------------------------------------


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
            assert leave.wait(10)
        return f"value {len(calls)}"

    cache.get_or_set("k", compute, 100, early=True)
    clock.advance_ms(95 * S)
    leader = threading.Thread(
        target=cache.get_or_set, args=("k", compute, 100), kwargs={"early": 1}
    )
    leader.start()
    assert entered.wait(10)
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
            assert leave.wait(10)
        return f"value {len(calls)}"

    cache.get_or_set("k", compute, 10, stale=60)
    clock.advance_ms(11 * S)
    assert cache.get_or_set("k", compute, 10, stale=60) == "value 1"
    assert entered.wait(10)
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
    token = cache.engine.lock_acquire(b"\0flight\0:1:k", 60_000)
    assert cache.get_or_set("k", function, 10, stale=60) == "value 1"
    cache.engine.lock_release(b"\0flight\0:1:k", token)
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

    monkeypatch.setattr("nearcache.stampede.in_thread", after_another_process)
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


# -- jitter, options -----------------------------------------------------------------------------


@pytest.mark.parametrize(("chance", "left_s"), [(0.0, 90), (0.5, 100), (0.75, 105)])
def test_jitter_spreads_timeouts(make: Callable[..., Any], chance: float, left_s: int) -> None:
    for options, extras in (({"jitter": 0.1}, {}), ({}, {"jitter": 0.1})):
        cache = make(**options)
        cache.chance = lambda: chance
        cache.clear()
        cache.get_or_set("k", lambda: "v", 100, **extras)
        assert cache.ttl("k") == left_s


def test_options_are_the_defaults_of_calls(
    make: Callable[..., Any], clock: FakeClock, function: Function
) -> None:
    cache = make(stale_on_error=60, error_pause=2)
    cache.get_or_set("k", function, 10)
    clock.advance_ms(11 * S)
    function.fails = True
    assert cache.get_or_set("k", function, 10) == "value 1"
    clock.advance_ms(2 * S)
    assert cache.get_or_set("k", function, 10) == "value 1"
    assert function.calls == 3
    clock.advance_ms(2 * S)
    with pytest.raises(KeyError):
        cache.get_or_set("k", function, 10, stale_on_error=0)


@pytest.mark.parametrize(
    ("extras", "message"),
    [
        ({"early": -1}, "early is -1; write True, False, or a factor"),
        ({"early": "yes"}, "early is 'yes'"),
        ({"stale": -1}, "stale is -1; write a number of seconds"),
        ({"jitter": 1}, "jitter is 1; write a number from 0 to below 1"),
        ({"wait": True}, "wait is True"),
    ],
)
def test_extras_that_make_no_sense_are_refused(
    cache: Any, function: Function, extras: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match="write ") as caught:
        cache.get_or_set("k", function, **extras)
    assert message in str(caught.value)
    assert function.calls == 0


def test_bad_options_fail_at_start_up(make: Callable[..., Any]) -> None:
    for options in ({"jitter": 2}, {"stale": "1h"}, {"early": "maybe"}):
        with pytest.raises(OptionError, match="write"):
            make(**options)


def test_a_damaged_envelope_is_a_miss(cache: Any, function: Function) -> None:
    for raw in (b"\x87", b"\x87" + b"\0" * 20, b"\x87" + b"\xff" * 28 + b"\x83nonsense"):
        cache.engine.set(b":1:k", raw, None)
        assert cache.get("k", "miss") == "miss"
        assert cache.get_or_set("k", function, 10, stale=60).startswith("value")
        assert cache.get("k").startswith("value")


def test_an_envelope_holds_what_was_put_in() -> None:
    envelope = Envelope(2**50, 3, 2**40, b"\x81inner", 7)
    again = opened(envelope.sealed())
    assert again == Envelope(2**50, 3, 2**32 - 1, b"\x81inner", 7)
    assert opened(b"\x81text") is None
    assert envelope.moved(None).expires_at_ms is None


def test_what_the_codec_refuses_is_refused_in_an_envelope(make: Callable[..., Any]) -> None:
    make().get_or_set("k", lambda: {1: object}, 10, stale=60)
    assert make().get("k") == {1: object}
    assert make(allow_pickle=False).get("k", "miss") == "miss"


def test_counters_are_there_from_the_start(cache: Any) -> None:
    assert {name for name, count in cache.counters.as_dict().items() if count} == set()
