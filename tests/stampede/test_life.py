"""get_or_set on a clock that the tests move: what it stores, for how long, by which options."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nearcache.base.clock import FakeClock
from nearcache.codec.envelope import Envelope, opened
from nearcache.errors import OptionError
from tests.stampede.function import Function, S

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
            assert other.result(60) == "two"
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
