"""Setting, getting, adding, deleting: what holds without any deadline."""

from __future__ import annotations

import pytest

from nearcache.engines.contract import Engine
from tests.contract.conftest import local_only, scanned


def test_an_absent_key_is_none_not_an_error(engine: Engine) -> None:
    assert engine.get(b"k") is None
    assert engine.gets(b"k") is None
    assert not engine.contains(b"k")


def test_what_was_set_is_read_back(engine: Engine) -> None:
    assert engine.set(b"k", b"v", None)
    assert engine.get(b"k") == b"v"
    assert engine.contains(b"k")


@pytest.mark.parametrize(
    "value", [b"", b"\x00", b"0", b"-1", b"\x80\xff" * 999, bytes(50_000)], ids=len
)
def test_any_bytes_are_a_value(engine: Engine, value: bytes) -> None:
    engine.set(b"k", value, None)
    assert engine.get(b"k") == value


@pytest.mark.parametrize("key", [b"k", b"\x00", b"\xff\xfe", b"k" * 1000], ids=len)
def test_any_bytes_are_a_key(engine: Engine, key: bytes) -> None:
    engine.set(key, b"v", None)
    assert engine.get(key) == b"v"
    assert [found for found, *_ in scanned(engine, 10)] == [key]


def test_set_replaces(engine: Engine) -> None:
    engine.set(b"k", b"old", None)
    engine.set(b"k", b"new", None)
    assert engine.get(b"k") == b"new"
    assert len(engine) == 1


def test_get_many_answers_in_the_order_of_the_keys(engine: Engine) -> None:
    engine.set_many([(b"a", b"1"), (b"b", b"2")], None)
    assert engine.get_many([b"b", b"missing", b"a", b"b"]) == [b"2", None, b"1", b"2"]
    assert engine.get_many([]) == []


@local_only
def test_set_many_says_which_were_refused(engine: Engine) -> None:
    too_large = bytes(200_000)
    assert engine.set_many([(b"a", b"1"), (b"big", too_large), (b"c", b"3")], None) == [1]
    assert engine.get_many([b"a", b"big", b"c"]) == [b"1", None, b"3"]


@local_only
def test_a_refused_value_leaves_no_old_one_behind(engine: Engine) -> None:
    engine.set(b"k", b"old", None)
    assert not engine.set(b"k", bytes(200_000), None)
    assert engine.get(b"k") is None


def test_add_stores_only_where_nothing_is(engine: Engine) -> None:
    assert engine.add(b"k", b"first", None)
    assert not engine.add(b"k", b"second", None)
    assert engine.get(b"k") == b"first"


def test_cas_stores_if_nobody_wrote_since(engine: Engine) -> None:
    engine.set(b"k", b"old", None)
    found = engine.gets(b"k")
    assert found is not None
    assert engine.cas(b"k", b"new", found[1], None)
    assert engine.get(b"k") == b"new"
    assert not engine.cas(b"k", b"late", found[1], None)
    assert engine.get(b"k") == b"new"


def test_cas_on_an_absent_key_stores_nothing(engine: Engine) -> None:
    assert not engine.cas(b"k", b"v", 1, None)
    assert engine.get(b"k") is None


@local_only
def test_a_version_changes_even_if_the_value_does_not(engine: Engine) -> None:
    engine.set(b"k", b"same", None)
    before = engine.gets(b"k")
    engine.set(b"k", b"same", None)
    assert before is not None
    assert not engine.cas(b"k", b"late", before[1], None)


@local_only
def test_a_key_deleted_and_set_again_has_another_version(engine: Engine) -> None:
    engine.set(b"k", b"v", None)
    before = engine.gets(b"k")
    engine.delete(b"k")
    engine.set(b"k", b"v", None)
    assert before is not None
    assert not engine.cas(b"k", b"late", before[1], None)


def test_get_and_set_returns_what_was_there(engine: Engine) -> None:
    assert engine.get_and_set(b"k", b"first", None) is None
    assert engine.get_and_set(b"k", b"second", None) == b"first"
    assert engine.get(b"k") == b"second"


def test_delete_says_whether_the_key_was_there(engine: Engine) -> None:
    engine.set(b"k", b"v", None)
    assert engine.delete(b"k")
    assert not engine.delete(b"k")
    assert engine.get(b"k") is None


def test_delete_many_counts_those_that_were_there(engine: Engine) -> None:
    engine.set_many([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")], None)
    assert engine.delete_many([b"a", b"missing", b"b"]) == 2
    assert engine.get_many([b"a", b"b", b"c"]) == [None, None, b"3"]


def test_clear_leaves_nothing_and_the_engine_usable(engine: Engine) -> None:
    engine.set_many([(b"%d" % i, b"v") for i in range(100)], None)
    engine.clear()
    assert len(engine) == 0
    assert engine.get(b"1") is None
    assert engine.set(b"1", b"again", None)
    assert engine.get(b"1") == b"again"


@local_only
def test_cull_evicts_as_many_as_asked(engine: Engine) -> None:
    engine.set_many([(b"%d" % i, b"v") for i in range(100)], None)
    assert engine.cull(30) == 30
    assert len(engine) == 70
    assert engine.cull(0) == 0
    assert engine.cull(1000) == 70
    assert len(engine) == 0


def test_the_engine_finds_itself_sound(engine: Engine) -> None:
    engine.set_many([(b"%d" % i, bytes(i)) for i in range(500)], None)
    engine.delete_many([b"%d" % i for i in range(0, 500, 3)])
    assert engine.check() == []
    assert engine.stats()["items"] == len(engine)
