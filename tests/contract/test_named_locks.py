"""Named locks: one holder, fencing tokens that grow, time that runs out, a queue."""

from __future__ import annotations

from nearcache.base.clock import FakeClock
from nearcache.engines.contract import Engine


def test_one_holder_at_a_time(engine: Engine) -> None:
    token = engine.lock_acquire(b"name", 60_000)
    assert token is not None
    assert engine.lock_acquire(b"name", 60_000) is None
    assert engine.lock_release(b"name", token)
    assert engine.lock_acquire(b"name", 60_000) is not None


def test_names_do_not_disturb_each_other_or_keys(engine: Engine) -> None:
    engine.set(b"a", b"value", None)
    assert engine.lock_acquire(b"a", 60_000)
    assert engine.lock_acquire(b"b", 60_000)
    assert engine.get(b"a") == b"value"
    engine.clear()
    assert engine.lock_acquire(b"a", 60_000) is None


def test_tokens_grow(engine: Engine) -> None:
    tokens = []
    for _ in range(5):
        token = engine.lock_acquire(b"name", 60_000)
        assert token is not None
        assert engine.lock_release(b"name", token)
        tokens.append(token)
    assert tokens == sorted(set(tokens))
    assert tokens[0] > 0


def test_a_lock_is_free_when_its_time_ran_out(engine: Engine, clock: FakeClock) -> None:
    first = engine.lock_acquire(b"name", 40)
    assert first is not None
    clock.advance_ms(40)
    second = engine.lock_acquire(b"name", 60_000)
    assert second is not None
    assert second > first
    assert not engine.lock_release(b"name", first)
    assert not engine.lock_renew(b"name", first, 60_000)
    assert engine.lock_release(b"name", second)


def test_renewing_keeps_a_lock(engine: Engine, clock: FakeClock) -> None:
    renewed = False
    for _ in range(50):  # a machine may stop for the 40 ms
        token = engine.lock_acquire(b"name", 40)
        assert token is not None
        if renewed := engine.lock_renew(b"name", token, 60_000):
            break
        clock.advance_ms(40)
    assert renewed
    clock.advance_ms(40)
    assert engine.lock_acquire(b"name", 60_000) is None


def test_somebody_elses_token_opens_nothing(engine: Engine) -> None:
    token = engine.lock_acquire(b"name", 60_000)
    assert token is not None
    assert not engine.lock_release(b"name", token + 1)
    assert engine.lock_acquire(b"name", 60_000) is None


def test_many_locks_at_once(engine: Engine) -> None:
    tokens = {b"%d" % i: engine.lock_acquire(b"%d" % i, 60_000) for i in range(100)}
    assert all(tokens.values())
    assert all(engine.lock_release(name, token or 0) for name, token in tokens.items())


def test_waiting_for_a_free_lock_takes_it_at_once(engine: Engine) -> None:
    token, ticket = engine.lock_wait(b"name", None, 60_000, 0)
    assert token
    assert ticket is None
    assert engine.lock_acquire(b"name", 60_000) is None
    assert engine.lock_release(b"name", token)


def test_the_lock_goes_to_who_came_first(engine: Engine) -> None:
    token = engine.lock_acquire(b"name", 60_000)
    assert token
    tickets = [engine.lock_wait(b"name", None, 60_000, 0)[1] for _ in range(3)]
    assert len(set(tickets)) == 3
    for first in range(3):
        engine.lock_release(b"name", token)
        assert engine.lock_acquire(b"name", 60_000) is None
        for later in reversed(tickets[first + 1 :]):
            assert engine.lock_wait(b"name", later, 60_000, 0) == (None, later)
        token, ticket = engine.lock_wait(b"name", tickets[first], 60_000, 0)
        assert token
        assert ticket is None


def test_who_leaves_the_queue_holds_nobody_up(engine: Engine) -> None:
    token = engine.lock_acquire(b"name", 60_000)
    tickets = [engine.lock_wait(b"name", None, 60_000, 0)[1] for _ in range(2)]
    assert tickets[0]
    engine.lock_leave(b"name", tickets[0])
    engine.lock_release(b"name", token or 0)
    assert engine.lock_wait(b"name", tickets[1], 60_000, 0)[0]


def test_leaving_twice_and_a_queue_that_is_not_there_is_no_error(engine: Engine) -> None:
    engine.lock_leave(b"name", 12345)
    engine.lock_acquire(b"name", 60_000)
    ticket = engine.lock_wait(b"name", None, 60_000, 0)[1]
    assert ticket
    engine.lock_leave(b"name", ticket)
    engine.lock_leave(b"name", ticket)


def test_a_wait_is_not_longer_than_asked_for(engine: Engine, clock: FakeClock) -> None:
    engine.lock_acquire(b"name", 60_000)
    before = clock.monotonic_s()
    token, ticket = engine.lock_wait(b"name", None, 60_000, 50)
    assert token is None
    assert ticket
    assert clock.monotonic_s() - before < 30


def test_a_wait_ends_when_the_holder_s_time_is_over(engine: Engine, clock: FakeClock) -> None:
    engine.lock_acquire(b"name", 50)
    before = clock.monotonic_s()
    ticket: int | None = None
    token = None
    while token is None:
        token, ticket = engine.lock_wait(b"name", ticket, 60_000, 1000)
        assert clock.monotonic_s() - before < 30


def test_tokens_grow_through_the_queue(engine: Engine) -> None:
    first = engine.lock_acquire(b"name", 60_000) or 0
    ticket = engine.lock_wait(b"name", None, 60_000, 0)[1]
    engine.lock_release(b"name", first)
    second, _ = engine.lock_wait(b"name", ticket, 60_000, 0)
    assert second
    assert second > first
    assert not engine.lock_release(b"name", second + 1)
    assert engine.lock_release(b"name", second)
    third = engine.lock_acquire(b"name", 60_000)
    assert third
    assert third > second
