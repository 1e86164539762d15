"""Values have the shape they claim, repeat from a seed, and betray every mix-up."""

from __future__ import annotations

import json
import pickle
import zlib

import pytest

from nearcache.lab.workloads import PAYLOADS, Payload

KEY, OTHER_KEY, VERSION = "nearcache-lab:0123456789ab:0:1:0001", "another", 7


@pytest.fixture(params=sorted(PAYLOADS))
def payload(request: pytest.FixtureRequest) -> Payload:
    return PAYLOADS[request.param](seed=1)


def test_a_value_that_was_pickled_passes_its_check(payload: Payload) -> None:
    value = pickle.loads(pickle.dumps(payload.make(KEY, VERSION)))
    assert payload.check(value, KEY, VERSION) is None


def test_the_same_seed_makes_the_same_value(payload: Payload) -> None:
    again = type(payload)(seed=1)
    assert again.make(KEY, VERSION) == payload.make(KEY, VERSION)
    assert type(payload)(seed=2).make(KEY, VERSION) != payload.make(KEY, VERSION)


def test_an_older_version_is_called_stale(payload: Payload) -> None:
    problem = payload.check(payload.make(KEY, VERSION - 1), KEY, VERSION)
    assert problem is not None
    assert problem.startswith("stale")


def test_the_value_of_another_key_is_called_foreign(payload: Payload) -> None:
    problem = payload.check(payload.make(OTHER_KEY, VERSION), KEY, VERSION)
    assert problem is not None
    assert problem.startswith("foreign")


def test_a_changed_value_is_called_damaged(payload: Payload) -> None:
    value = payload.make(KEY, VERSION)
    damaged: object
    if isinstance(value, dict):
        damaged = {**value, "hour": "12:31"}
    elif isinstance(value, str):
        damaged = value[:-1] + "?"
    else:
        damaged = [*value[:-1], value[-2]]
    problem = payload.check(damaged, KEY, VERSION)
    assert problem is not None
    assert problem.startswith("damaged")


def test_a_value_of_another_type_is_named(payload: Payload) -> None:
    problem = payload.check(b"raw", KEY, VERSION)
    assert problem is not None
    assert "wrong type: bytes" in problem


def test_a_tuple_is_not_a_list() -> None:
    floats = PAYLOADS["F"](seed=1)
    assert floats.check(tuple(floats.make(KEY, VERSION)), KEY, VERSION) is not None


@pytest.mark.parametrize(
    ("letter", "least", "most"),
    [
        ("S", 100, 150),
        ("F", 9000, 9100),
        ("H", 10_000, 10_300),
        ("Q", 95_000, 105_000),
        ("T", 10_000, 10_300),
    ],
)
def test_sizes_are_what_the_titles_say(letter: str, least: int, most: int) -> None:
    size = len(pickle.dumps(PAYLOADS[letter](seed=1).make(KEY, VERSION), 5))
    assert least <= size <= most


@pytest.mark.parametrize(("letter", "least", "most"), [("D", 19e3, 21e3), ("L", 0.95e6, 1.05e6)])
def test_documents_are_json_of_the_size_in_their_titles(
    letter: str, least: float, most: float
) -> None:
    value = PAYLOADS[letter](seed=1).make(KEY, VERSION)
    text = json.dumps(value, separators=(",", ":"))
    assert json.loads(text) == value
    assert least <= len(text) <= most


def test_a_thumbnail_does_not_compress() -> None:
    raw = pickle.dumps(PAYLOADS["T"](seed=1).make(KEY, VERSION))
    assert len(zlib.compress(raw)) > 0.99 * len(raw)
