"""When a server is asked, and when it is not."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from nearcache.base.clock import FakeClock
from nearcache.engines.redis.connection.breaker import Breaker, breaker_of
from nearcache.engines.redis.target.target import Address, Target
from nearcache.errors import AuthenticationFailed, CircuitOpen, ConnectionFailed

REFUSED = ConnectionFailed("no connection to here:1: nothing listens there")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def breaker_at(clock: FakeClock, jitter: float = 0.5, **options: float) -> Breaker:
    """Without jitter unless asked for: 0.5 makes a pause as long as it says."""
    return Breaker("here:1", clock=clock.monotonic_s, jitter=lambda: jitter, **options)  # type: ignore[arg-type]


def is_open(breaker: Breaker) -> bool:
    try:
        breaker.check()
    except CircuitOpen:
        return True
    return False


def fail(breaker: Breaker, times: int = 3) -> None:
    for _ in range(times):
        breaker.failed(REFUSED)


def test_it_opens_after_so_many_failures_in_a_row(clock: FakeClock) -> None:
    breaker = breaker_at(clock)
    fail(breaker, 2)
    assert not is_open(breaker)
    fail(breaker, 1)
    assert is_open(breaker)
    assert breaker.state == "open"


def test_a_success_between_failures_starts_the_count_anew(clock: FakeClock) -> None:
    breaker = breaker_at(clock)
    fail(breaker, 2)
    breaker.succeeded()
    fail(breaker, 2)
    assert breaker.state == "closed"


def test_it_is_quiet_only_while_nothing_has_failed(clock: FakeClock) -> None:
    breaker = breaker_at(clock)
    assert breaker.quiet
    fail(breaker, 1)
    assert not breaker.quiet
    breaker.succeeded()
    assert breaker.quiet


def test_zero_failures_never_open_it(clock: FakeClock) -> None:
    breaker = breaker_at(clock, failures=0)
    fail(breaker, 100)
    breaker.failed(AuthenticationFailed("wrong password"))
    assert not is_open(breaker)


def test_the_message_names_the_server_and_the_last_failure(clock: FakeClock) -> None:
    breaker = breaker_at(clock)
    fail(breaker)
    with pytest.raises(CircuitOpen, match=r"here:1 failed 3 times.*nothing listens there"):
        breaker.check()


def test_one_caller_probes_when_the_pause_is_over(clock: FakeClock) -> None:
    breaker = breaker_at(clock)
    fail(breaker)
    clock.advance_ms(999)
    assert is_open(breaker)
    clock.advance_ms(2)
    assert not is_open(breaker)
    assert breaker.state == "half-open"
    assert is_open(breaker)


def test_of_many_threads_one_probes(clock: FakeClock) -> None:
    breaker = breaker_at(clock)
    fail(breaker)
    clock.advance_ms(1001)
    line_up, passed = threading.Barrier(8), []

    def probe() -> None:
        line_up.wait()
        if not is_open(breaker):
            passed.append(1)

    threads = [threading.Thread(target=probe) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(passed) == 1


def test_a_probe_that_succeeds_closes_it(clock: FakeClock) -> None:
    breaker = breaker_at(clock)
    fail(breaker)
    clock.advance_ms(1001)
    breaker.check()
    breaker.succeeded()
    assert breaker.state == "closed"
    assert not is_open(breaker)


def test_a_probe_that_fails_doubles_the_pause_once(clock: FakeClock) -> None:
    breaker = breaker_at(clock)
    fail(breaker)
    for seconds in (1, 2, 2, 2, 2):
        clock.advance_ms(seconds * 1000 - 1)
        assert is_open(breaker)
        clock.advance_ms(2)
        assert not is_open(breaker)
        fail(breaker, 1)


def test_after_a_success_the_pauses_are_short_again(clock: FakeClock) -> None:
    breaker = breaker_at(clock)
    fail(breaker)
    clock.advance_ms(1001)
    breaker.check()
    fail(breaker, 1)
    clock.advance_ms(2001)
    breaker.check()
    breaker.succeeded()
    fail(breaker)
    clock.advance_ms(1001)
    assert not is_open(breaker)


def test_pauses_are_jittered_by_a_quarter(clock: FakeClock) -> None:
    for jitter, milliseconds in ((0.0, 750), (1.0, 1250)):
        breaker = breaker_at(clock, jitter)
        fail(breaker)
        clock.advance_ms(milliseconds - 1)
        assert is_open(breaker)
        clock.advance_ms(2)
        assert not is_open(breaker)


def test_a_server_that_is_back_is_asked_within_two_and_a_half_pauses(clock: FakeClock) -> None:
    breaker = breaker_at(clock, jitter=1.0)
    fail(breaker)
    for _ in range(30):  # a long outage
        clock.advance_ms(2501)
        assert not is_open(breaker)
        fail(breaker, 1)


def test_failures_of_requests_under_way_do_not_prolong_the_pause(clock: FakeClock) -> None:
    breaker = breaker_at(clock)
    fail(breaker, 50)
    clock.advance_ms(1001)
    assert not is_open(breaker)


def test_a_probe_that_never_reports_is_replaced(clock: FakeClock) -> None:
    breaker = breaker_at(clock, probe_s=2.0)
    fail(breaker)
    clock.advance_ms(1001)
    breaker.check()
    clock.advance_ms(1990)
    assert is_open(breaker)
    clock.advance_ms(20)
    assert not is_open(breaker)


def test_wrong_settings_open_it_at_once_and_stay_what_they_are(clock: FakeClock) -> None:
    breaker = breaker_at(clock)
    breaker.failed(AuthenticationFailed("wrong password"))
    for _ in range(2):
        with pytest.raises(AuthenticationFailed, match="wrong password"):
            breaker.check()
    clock.advance_ms(1001)
    breaker.check()


def test_openings_refusals_and_failures_are_counted(clock: FakeClock) -> None:
    breaker = breaker_at(clock)
    fail(breaker)
    is_open(breaker)
    assert breaker.stats() == {
        "breaker_open": 1,
        "breaker_opened": 1,
        "breaker_refused": 1,
        "failures": 3,
    }


def test_one_line_is_logged_per_change(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nearcache.redis")
    breaker = breaker_at(clock)
    fail(breaker, 10)
    for seconds in (2, 3):
        clock.advance_ms(seconds * 1000)
        breaker.check()
        fail(breaker, 1)
    clock.advance_ms(10_000)
    breaker.check()
    breaker.succeeded()
    breaker.succeeded()
    assert not caplog.records, "whoever leads a line says it afterwards"
    breaker.say()
    breaker.say()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_an_open_circuit_costs_microseconds() -> None:
    breaker = Breaker("here:1", pause_s=60)
    fail(breaker)
    best_s = 1.0
    for _ in range(200):
        started = time.perf_counter()
        is_open(breaker)
        best_s = min(best_s, time.perf_counter() - started)
    assert best_s < 20e-6


def test_a_process_has_one_breaker_per_server_and_settings() -> None:
    target, address = Target(), Address(host="192.0.2.1")
    assert breaker_of(target, address) is breaker_of(Target(), Address(host="192.0.2.1"))
    assert breaker_of(target, address) is not breaker_of(target, Address(host="192.0.2.2"))
    assert breaker_of(target, address) is not breaker_of(Target(password="x"), address)
