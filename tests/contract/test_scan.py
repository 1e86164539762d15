"""Listing and deleting by prefix and pattern."""

from __future__ import annotations

import itertools
import random

import pytest

from nearcache.base.keys import glob_escape
from nearcache.engines.contract import Engine
from nearcache.engines.memory import glob_regex
from tests.contract.conftest import local_only, scanned


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_a_scan_sees_every_key(engine: Engine, limit: int) -> None:
    keys = {b"key-%d" % i for i in range(50)}
    engine.set_many([(key, b"v") for key in keys], None)
    assert {key for key, *_ in scanned(engine, limit)} == keys


def test_an_empty_engine_scans_to_nothing(engine: Engine) -> None:
    assert scanned(engine, 10) == []


@local_only
def test_a_scan_tells_sizes_deadlines_and_versions(engine: Engine) -> None:
    engine.set(b"k", b"value", 4_000_000_000_000)
    found = engine.gets(b"k")
    assert found is not None
    assert scanned(engine, 10) == [(b"k", 5, 4_000_000_000_000, found[1])]


def test_keys_that_stay_are_seen_although_others_come_and_go(engine: Engine) -> None:
    staying = {b"stay-%d" % i for i in range(40)}
    engine.set_many([(key, b"v") for key in staying], None)
    seen, cursor = set(), 0
    for turn in range(10_000):
        cursor, items = engine.scan(cursor, 3)
        seen |= {key for key, *_ in items}
        if cursor == 0:
            break
        engine.set(b"new-%d" % turn, b"v", None)
        engine.delete(b"new-%d" % (turn - 1))
    assert staying <= seen


def test_a_prefix_is_literal(engine: Engine) -> None:
    engine.set_many([(b"a*:1", b"v"), (b"ab:1", b"v"), (b"a*:2", b"v")], None)
    assert {key for key, *_ in scanned(engine, 10, prefix=b"a*:")} == {b"a*:1", b"a*:2"}


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        (b"*", {b"abc", b"abd", b"a*c", b"b[1]"}),
        (b"ab?", {b"abc", b"abd"}),
        (b"ab[c-d]", {b"abc", b"abd"}),
        (b"ab[^c]", {b"abd"}),
        (rb"a\*c", {b"a*c"}),
        (b"*c", {b"abc", b"a*c"}),
        (glob_escape(b"b[1]"), {b"b[1]"}),
        (b"bc", set()),
    ],
)
def test_patterns_match_whole_keys_as_in_redis(
    engine: Engine, glob: bytes, expected: set[bytes]
) -> None:
    engine.set_many([(key, b"v") for key in (b"abc", b"abd", b"a*c", b"b[1]")], None)
    assert {key for key, *_ in scanned(engine, 10, glob=glob)} == expected
    assert engine.clear_matching(glob=glob) == len(expected)
    assert scanned(engine, 10, glob=glob) == []


@local_only
@pytest.mark.parametrize("seed", range(5))
def test_any_pattern_means_the_same_to_every_engine(engine: Engine, seed: int) -> None:
    """Redis reads some sets otherwise: in ``[a-]`` the bracket ends a range there."""
    letters = random.Random(seed)
    keys = {bytes(each) for n in (1, 2, 3) for each in itertools.product(b"ab-]^\\[", repeat=n)}
    engine.set_many([(key, b"v") for key in keys], None)
    for _ in range(200):
        glob = bytes(letters.choices(b"ab-]^\\[*?", k=letters.randint(1, 6)))
        found = {key for key, *_ in scanned(engine, 1000, glob=glob)}
        assert found == set(filter(glob_regex(glob).fullmatch, keys)), glob


def test_prefix_and_pattern_must_both_match(engine: Engine) -> None:
    engine.set_many([(b"p:1", b"v"), (b"p:2", b"v"), (b"q:1", b"v")], None)
    assert {key for key, *_ in scanned(engine, 10, prefix=b"p:", glob=b"*1")} == {b"p:1"}
    assert engine.clear_matching(prefix=b"p:") == 2
    assert {key for key, *_ in scanned(engine, 10)} == {b"q:1"}
