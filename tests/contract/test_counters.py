"""incr: 64 signed bits, atomic, and never on what is no counter."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from nearcache.engines.contract import Engine
from nearcache.errors import DataError


def test_incr_adds_and_returns_the_sum(engine: Engine) -> None:
    engine.set(b"n", b"40", None)
    assert engine.incr(b"n", 2) == 42
    assert engine.incr(b"n", -50) == -8
    assert engine.get(b"n") == b"-8"


def test_incr_does_not_make_a_key(engine: Engine) -> None:
    assert engine.incr(b"n", 1) is None
    assert engine.get(b"n") is None


def test_a_counter_may_get_longer(engine: Engine) -> None:
    engine.set(b"n", b"9", None)
    assert engine.incr(b"n", 1) == 10
    assert engine.incr(b"n", 10**17) == 10**17 + 10
    assert engine.get(b"n") == b"%d" % (10**17 + 10)


def test_the_whole_range_of_64_bits_fits(engine: Engine) -> None:
    engine.set(b"n", b"%d" % (2**63 - 2), None)
    assert engine.incr(b"n", 1) == 2**63 - 1
    engine.set(b"n", b"%d" % (1 - 2**63), None)
    assert engine.incr(b"n", -1) == -(2**63)


def test_a_sum_that_does_not_fit_is_an_error_and_changes_nothing(engine: Engine) -> None:
    engine.set(b"n", b"%d" % (2**63 - 1), None)
    with pytest.raises(DataError):
        engine.incr(b"n", 1)
    assert engine.get(b"n") == b"%d" % (2**63 - 1)


@pytest.mark.parametrize(
    "value", [b"", b"-", b"+5", b"007", b" 1", b"1_000", b"1.5", b"\x82N", b"9" * 30]
)
def test_only_plain_digits_are_a_counter(engine: Engine, value: bytes) -> None:
    engine.set(b"n", value, None)
    with pytest.raises(DataError):
        engine.incr(b"n", 1)
    assert engine.get(b"n") == value


def test_no_increment_is_lost_among_threads(engine: Engine) -> None:
    engine.set(b"n", b"0", None)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: [engine.incr(b"n", 1) for _ in range(250)], range(8)))
    assert engine.get(b"n") == b"2000"


def test_incr_changes_the_version(engine: Engine) -> None:
    engine.set(b"n", b"1", None)
    before = engine.gets(b"n")
    engine.incr(b"n", 1)
    assert before is not None
    assert not engine.cas(b"n", b"0", before[1], None)
