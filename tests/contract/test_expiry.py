"""Deadlines. A fake clock where the engine takes one, else short waits on the real one."""

from __future__ import annotations

from collections.abc import Callable

from nearcache.base.clock import FakeClock
from nearcache.engines.contract import ABSENT, Engine
from tests.contract.conftest import scanned

IsDeadline = Callable[[int | None, int], bool]

SOON_MS = 40
ATTEMPTS = 50  # to be there before a deadline that is soon: a machine may stop for as long
LONG_AGO_MS = 1000  # engines may read a clock that lags by some milliseconds


def test_a_value_is_readable_before_its_deadline(engine: Engine, clock: FakeClock) -> None:
    engine.set(b"k", b"v", clock.now_ms() + 60_000)
    assert engine.get(b"k") == b"v"


def test_a_value_is_gone_at_its_deadline(engine: Engine, clock: FakeClock) -> None:
    engine.set(b"k", b"v", clock.now_ms() + SOON_MS)
    engine.set(b"stays", b"v", None)
    clock.advance_ms(SOON_MS)
    assert engine.get(b"k") is None
    assert engine.gets(b"k") is None
    assert engine.get_many([b"k", b"stays"]) == [None, b"v"]
    assert not engine.contains(b"k")
    assert engine.expires_at(b"k") == ABSENT
    assert [key for key, *_ in scanned(engine, 10)] == [b"stays"]


def test_what_has_expired_cannot_be_touched_incremented_or_deleted(
    engine: Engine, clock: FakeClock
) -> None:
    engine.set(b"k", b"1", clock.now_ms() + SOON_MS)
    clock.advance_ms(SOON_MS)
    assert not engine.touch(b"k", None)
    assert engine.touch_head(b"k", None, 1) is None
    assert engine.incr(b"k", 1) is None
    assert not engine.delete(b"k")
    assert engine.get(b"k") is None


def test_add_sees_an_expired_key_as_free(engine: Engine, clock: FakeClock) -> None:
    engine.set(b"k", b"old", clock.now_ms() + SOON_MS)
    clock.advance_ms(SOON_MS)
    assert engine.add(b"k", b"new", None)
    assert engine.get(b"k") == b"new"


def test_a_past_deadline_removes_what_was_there(engine: Engine, clock: FakeClock) -> None:
    engine.set(b"k", b"old", None)
    engine.set(b"k", b"new", clock.now_ms() - LONG_AGO_MS)
    assert engine.get(b"k") is None


def test_add_with_a_past_deadline_says_yes_and_stores_nothing(
    engine: Engine, clock: FakeClock
) -> None:
    assert engine.add(b"k", b"v", clock.now_ms() - LONG_AGO_MS)
    assert engine.get(b"k") is None
    engine.set(b"k", b"there", None)
    assert not engine.add(b"k", b"v", clock.now_ms() - LONG_AGO_MS)
    assert engine.get(b"k") == b"there"


def test_touch_moves_the_deadline_both_ways(engine: Engine, clock: FakeClock) -> None:
    for _ in range(ATTEMPTS):
        engine.set(b"k", b"v", clock.now_ms() + SOON_MS)
        if engine.touch(b"k", None):
            break
    clock.advance_ms(SOON_MS)
    assert engine.get(b"k") == b"v"
    assert engine.expires_at(b"k") is None
    assert engine.touch(b"k", clock.now_ms() - LONG_AGO_MS)
    assert engine.get(b"k") is None


def test_touch_can_tell_how_the_value_begins(
    engine: Engine, clock: FakeClock, is_deadline: IsDeadline
) -> None:
    deadline = clock.now_ms() + 60_000
    values = [b"", b"raw", b"-1234567890123", b"12" * 40, b"\x87" + bytes(range(250)) * 200]
    for value in values:
        for size in (1, 8, 30, 100_000):
            engine.set(b"k", value, None)
            assert engine.touch_head(b"k", deadline, size) == value[:size]
            assert is_deadline(engine.expires_at(b"k"), deadline)
            assert engine.get(b"k") == value
    assert engine.touch_head(b"k", None, 3) == b"\x87\x00\x01"
    assert engine.expires_at(b"k") is None
    assert engine.touch_head(b"k", clock.now_ms() - LONG_AGO_MS, 3) == b"\x87\x00\x01"
    assert engine.get(b"k") is None
    assert engine.touch_head(b"k", None, 3) is None


def test_the_deadline_is_kept_to_the_millisecond(
    engine: Engine, clock: FakeClock, is_deadline: IsDeadline
) -> None:
    deadline = clock.now_ms() + 123_457
    engine.set(b"k", b"v", deadline)
    assert is_deadline(engine.expires_at(b"k"), deadline)


def test_incr_keeps_the_deadline(engine: Engine, clock: FakeClock, is_deadline: IsDeadline) -> None:
    deadline = clock.now_ms() + 60_000
    engine.set(b"k", b"1", deadline)
    engine.incr(b"k", 10**15)
    assert is_deadline(engine.expires_at(b"k"), deadline)


def test_set_replaces_the_deadline_with_its_own(engine: Engine, clock: FakeClock) -> None:
    engine.set(b"k", b"v", clock.now_ms() + 60_000)
    engine.set(b"k", b"v", None)
    assert engine.expires_at(b"k") is None
