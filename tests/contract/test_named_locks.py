"""Named locks: one holder, fencing tokens that grow, time that runs out."""

from __future__ import annotations

from nearcache.clock import FakeClock
from nearcache.engine import Engine


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
    token = engine.lock_acquire(b"name", 40)
    assert token is not None
    assert engine.lock_renew(b"name", token, 60_000)
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
