"""What comes back is told from what only looks like it, and code that runs is noticed."""

from __future__ import annotations

import json
import math
import pickle
from decimal import Decimal
from typing import Any

import pytest

from nearcache.lab.workloads.fidelity import (
    EXACT,
    Planted,
    difference,
    facts_of,
    fate_of,
    fates_in,
    runs_planted_code,
    try_types,
    types_in,
)


class Dumb:
    """A cache with this way of writing."""

    def __init__(self, dumps: Any, loads: Any) -> None:
        self.dumps, self.loads = dumps, loads
        self.kept: dict[str, Any] = {}

    def set(self, key: str, value: Any, timeout: float) -> None:
        self.kept[key] = self.dumps(value)

    def get(self, key: str, default: Any = None) -> Any:
        return self.loads(self.kept[key]) if key in self.kept else default

    def delete(self, key: str) -> None:
        self.kept.pop(key, None)


PICKLES = Dumb(pickle.dumps, pickle.loads)
JSON = Dumb(json.dumps, json.loads)


def test_pickle_keeps_every_type() -> None:
    assert set(try_types(PICKLES, "t").values()) == {EXACT}


def test_json_changes_and_refuses_types_and_each_is_said() -> None:
    fates = try_types(JSON, "t")
    assert fates["tuple"] == "becomes list"
    assert fates["int keys"] == "becomes other keys: str, was int"
    assert fates["nested"] == "refused: TypeError"
    assert fates["Decimal"] == "refused: TypeError"
    assert fates["IntEnum"] == "becomes int"
    assert fates["float"] == fates["NaN"] == fates["list"] == EXACT


def test_a_type_that_vanishes_is_no_exact_one() -> None:
    drops = Dumb(lambda value: value, lambda raw: raw)
    drops.set = lambda *_: None  # type: ignore[method-assign]
    assert fate_of(drops, "k", 1) == "becomes a miss"
    assert fate_of(drops, "k", None) == "becomes a miss", "None is a value, and not a miss"


@pytest.mark.parametrize(
    ("wanted", "found", "word"),
    [
        (1, True, "bool"),
        ([1, (2,)], [1, [2]], "list, was tuple"),
        ({"a": {"b": 1.0}}, {"a": {"b": 1}}, "int, was float"),
        (0.0, -0.0, "another value"),
        (Decimal("1.10"), Decimal("1.1"), "another value"),
        ([1, 2], [1], "another length"),
        ({1: 2}, {"1": 2}, "other keys"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "another value"),
    ],
)
def test_values_that_are_equal_may_differ(wanted: Any, found: Any, word: str) -> None:
    assert word in str(difference(wanted, found))


def test_what_is_the_same_has_no_difference() -> None:
    value = {"a": [math.nan, -0.0, Decimal("1.10")], (1, 2): {3, 4}}
    assert difference(value, pickle.loads(pickle.dumps(value))) is None


def test_types_inside_are_named_with_keys_that_are_not_text() -> None:
    assert types_in({"a": [1, None], 2: ()}) == {
        "dict", "list", "int", "NoneType", "tuple", "int keys",
    }  # fmt: skip


def test_fates_survive_being_written_for_people() -> None:
    fates = try_types(JSON, "t")
    assert fates_in(facts_of(fates)) == fates
    assert fates_in({}) == {}


def test_code_that_a_planted_pickle_runs_is_noticed() -> None:
    def plant(cache: Dumb) -> bool:
        return runs_planted_code(cache, cache.kept.__setitem__, "k")

    assert plant(PICKLES) is True
    assert plant(JSON) is False
    assert plant(PICKLES) is True, "what ran before does not count"
    assert pickle.loads(pickle.dumps(Planted())) == "code ran"
