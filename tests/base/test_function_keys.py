"""The names of calls: equal calls have one, unequal ones two, whatever the process."""

from __future__ import annotations

import datetime as dt
import enum
import struct
import subprocess
import sys
from collections import namedtuple
from dataclasses import dataclass
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from django.utils.safestring import mark_safe
from hypothesis import given
from hypothesis import strategies as st

from nearcache.base.function_keys import call_key, canonical


class Colour(enum.Enum):
    RED = 1


class Shade(enum.IntEnum):
    RED = 1


Point = namedtuple("Point", "x y")  # noqa: PYI024


@dataclass
class Query:
    text: str
    limit: int = 10


class Row:
    """What a Django model instance looks like from outside."""

    def __init__(self, pk: Any, label: str = "shop.Item") -> None:
        self.pk = pk
        type(self)._meta = SimpleNamespace(label=label, label_lower=label.lower())  # type: ignore[attr-defined]


def total(item: Any = None, *more: Any, size: int = 1, **extra: Any) -> None: ...


def other(item: Any = None, *more: Any, size: int = 1, **extra: Any) -> None: ...


def key(*args: Any, **kwargs: Any) -> str:
    return call_key(total, args, kwargs)


DIFFERENT = [
    1,
    1.0,
    True,
    "1",
    b"1",
    None,
    "",
    b"",
    (),
    [],
    {},
    set(),
    frozenset(),
    (1,),
    [1],
    {1},
    frozenset({1}),
    {1: 1},
    ("ab", "c"),
    ("a", "bc"),
    (("a",), "b"),
    ("a", ("b",)),
    {"a": {"b": 1}},
    {"a": {"b": True}},
    0.0,
    -0.0,
    10**5000,
    Colour.RED,
    Shade.RED,
    Point(1, 2),
    (1, 2),
    Query("x"),
    Query("x", 11),
    Decimal("1.0"),
    Decimal("1.00"),
    dt.date(2026, 1, 2),
    dt.datetime(2026, 1, 2),  # noqa: DTZ001
    dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
    dt.timedelta(1),
    UUID(int=1),
    int,
    str,
    total,
    Row(1),
    Row("1"),
    mark_safe("1"),
    "\ud800",
]


def test_different_values_are_different_calls() -> None:
    keys = [key(value) for value in DIFFERENT]
    assert len(set(keys)) == len(DIFFERENT)


def test_functions_and_parameters_tell_calls_apart() -> None:
    assert call_key(total, (1,)) != call_key(other, (1,))
    assert len({key(1, 2), key([1, 2]), key(1, size=2), key(1, b=2), key(1, c=2)}) == 5
    assert call_key(total, (1,), more="2") != call_key(total, (1,))


def test_how_an_argument_is_passed_makes_no_difference() -> None:
    assert key() == key(None) == key(item=None) == key(size=1)
    assert key(1, a=1, b=2) == key(b=2, item=1, a=1)


def test_order_of_dicts_and_sets_makes_no_difference() -> None:
    assert key({"a": 1, "b": 2}) == key({"b": 2, "a": 1})
    assert key({"a", "b", "c"}) == key({"c", "b", "a"})


def test_a_key_is_the_same_in_every_process() -> None:
    code = (
        "from tests.base.test_function_keys import key; import sys;"
        "print(key({'a', 'b', 'c', 'd'}, {'x': {1: {2.5, None}}}, size=3))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert seen == {key({"d", "c", "b", "a"}, {"x": {1: {None, 2.5}}}, size=3)}


def test_a_key_names_its_function_and_is_one_that_memcached_takes() -> None:
    assert key("x y").startswith("tests.base.test_function_keys.total:")

    def deep() -> None: ...

    deep.__qualname__ = "x" * 1000
    assert len(call_key(deep)) < 200
    deep.__qualname__ = "x" * 1001
    assert call_key(deep) != call_key(total)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (object(), "builtins.object has no identity"),
        ([{"a": object()}], "builtins.object has no identity"),
        (iter([]), "list_iterator"),
        (lambda: None, "no name of its own"),
        (Row(None), "unsaved shop.Item"),
        (SimpleNamespace(a=1), "SimpleNamespace"),
    ],
)
def test_what_has_no_identity_is_refused_with_a_way_out(value: Any, says: str) -> None:
    with pytest.raises(TypeError, match=r"total\(\): argument 'item' cannot be part") as caught:
        key(value)
    assert says in str(caught.value)
    assert "give key=" in str(caught.value)
    assert call_key(total, (value,), ignore=("item",)) == call_key(total, (1,), ignore=("item",))


def test_a_loop_of_objects_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(TypeError, match="recursion"):
        key(loop)


def test_lambdas_have_no_name_and_wrong_arguments_are_a_type_error() -> None:
    with pytest.raises(TypeError, match="no name of its own; give key="):
        call_key(lambda: None)
    with pytest.raises(TypeError, match="missing a required argument: 'a'"):
        call_key(needs_a)


def needs_a(a: int) -> None: ...


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(VALUES, VALUES)
def test_bytes_are_equal_exactly_when_values_and_types_are(a: Any, b: Any) -> None:
    assert (canonical(a) == canonical(b)) == (exactly(a) == exactly(b))


def exactly(value: Any) -> Any:
    """A form in which == means: equal in value and in every type."""
    if isinstance(value, dict):
        return ("dict", sorted((repr(exactly(k)), exactly_text(v)) for k, v in value.items()))
    if isinstance(value, list | tuple):
        return (type(value).__name__, [exactly(each) for each in value])
    return (type(value).__name__, pack(value) if isinstance(value, float) else value)


def pack(value: float) -> bytes:
    return struct.pack(">d", value)


def exactly_text(value: Any) -> str:
    return repr(exactly(value))
