"""The native codec: exact types come back, everything else is left to pickle, bytes may lie."""

from __future__ import annotations

import collections
import contextlib
import datetime
import decimal
import enum
import gc
import math
import pickle
import signal
import tracemalloc
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nearcache import _core

UTC = datetime.UTC


def leaves_with(*, allow_nan: bool) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=allow_nan),
        st.text(st.characters(exclude_categories=["Cs"])),
        st.binary(),
        st.dates(),
        st.datetimes(),
        st.datetimes(timezones=st.just(UTC)),
        st.times(),
        st.timedeltas(),
        st.decimals(allow_nan=allow_nan),
        st.uuids(),
    )


leaves = leaves_with(allow_nan=True)
keys = st.recursive(
    leaves_with(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4).map(tuple) | st.frozensets(inner, max_size=4),
    max_leaves=4,
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(keys, inner)
        | st.sets(keys)
        | st.frozensets(keys)
        | st.lists(st.floats(), min_size=4)
        | st.lists(st.integers(-(2**63), 2**63 - 1), min_size=4).map(tuple)
    ),
    max_leaves=30,
)


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same exact types all through; NaN is the same as NaN, -0.0 not as 0.0."""
    if type(one) is not type(other):
        return False
    if type(one) in (list, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if type(one) is dict:
        return same(list(one), list(other)) and same(list(one.values()), list(other.values()))
    if type(one) is float:
        return repr(one) == repr(other)
    if type(one) is decimal.Decimal:
        return bool(one.as_tuple() == other.as_tuple())
    if type(one) in (datetime.datetime, datetime.time):
        return one == other and one.fold == other.fold and one.tzinfo is other.tzinfo
    if type(one) in (set, frozenset):
        return one == other and {(type(item), item) for item in one} == {
            (type(item), item) for item in other
        }
    return bool(one == other)


def as_tree(value: Any) -> Any:
    """An equal value without sharing: Hypothesis likes to use one object in two places."""
    if type(value) is dict:
        return {as_tree(key): as_tree(item) for key, item in value.items()}
    if type(value) in (list, tuple, set, frozenset):
        return type(value)([as_tree(item) for item in value])
    return pickle.loads(pickle.dumps(value, 5))


@given(values)
@settings(max_examples=200, deadline=None)
@example([])
@example({})
@example(())
@example(set())
@example(frozenset())
@example([0.0, -0.0, math.inf, -math.inf, math.nan])
@example([127, 128, -1, -128, -129, 32767, 32768])
@example([0, 255, -(2**31), 2**63 - 1, -(2**63)])
@example([2**63, -(2**63) - 1, 2**64, 10**4400])
@example({"k" * 63: "v" * 63, "k" * 64: "v" * 64, "ключ": "значение", "": "\x00"})
@example(datetime.datetime(2024, 10, 27, 2, 30, fold=1))  # noqa: DTZ001
@example(datetime.time(2, 30, fold=1, tzinfo=UTC))
@example([True, False, 1, 0, 1.0, 0.0])
def test_a_value_comes_back_with_its_exact_types(value: Any) -> None:
    payload = _core.encode(as_tree(value))
    assert payload is not None
    assert same(_core.decode(payload), value)


@given(values)
@settings(max_examples=100, deadline=None)
def test_a_value_with_sharing_comes_back_or_is_declined(value: Any) -> None:
    payload = _core.encode([value, value])
    assert payload is None or same(_core.decode(payload), [value, value])


class Colour(enum.IntEnum):
    RED = 1


class Text(str):
    __slots__ = ()


class Point(NamedTuple):
    x: int
    y: int


ODD = [
    Colour.RED,
    Text("x"),
    Point(1, 2),
    bytearray(b"x"),
    collections.OrderedDict(a=1),
    collections.defaultdict(list),
    "\ud800",
    object,
    len,
    1j,
    range(3),
    datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
    uuid.UUID(int=1, is_safe=uuid.SafeUUID.safe),
]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_another_type_anywhere_inside_is_declined(odd: Any) -> None:
    assert _core.encode(odd) is None
    assert _core.encode([1, {"k": (odd,)}]) is None
    assert _core.encode([1.0, 2.0, 3.0, 4.0, odd]) is None
    assert _core.encode([1, 2, 3, 4, odd]) is None


def test_a_subclass_as_a_key_is_declined() -> None:
    assert _core.encode({Text("k"): 1}) is None
    assert _core.encode({Colour.RED}) is None


def test_a_bool_among_ints_stays_a_bool() -> None:
    payload = _core.encode([1, 2, 3, True])
    assert payload is not None
    assert same(_core.decode(payload), [1, 2, 3, True])


class Number:
    """Compared like a number, and one by its own code: ``UUID`` takes it for its int."""

    asked = 0

    def __ge__(self, _: object) -> bool:
        return True

    def __lt__(self, _: object) -> bool:
        return True

    def __index__(self) -> int:
        self.asked += 1
        return 5


def test_a_uuid_of_what_is_no_int_is_declined_without_its_code() -> None:
    number: Any = Number()
    # Its code could change the list while that is written.
    assert _core.encode([uuid.UUID(int=number), 1]) is None
    assert number.asked == 0


def while_a_uuid_is_made(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """``UUID`` is a Python class: threads and signals' handlers have their turn in it."""
    make = uuid.UUID.__init__

    def made(self: uuid.UUID, *args: Any, **kwargs: Any) -> None:
        work()
        make(self, *args, **kwargs)

    monkeypatch.setattr(uuid.UUID, "__init__", made)


def test_what_a_signal_raises_while_a_value_is_decoded_comes_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payload = _core.encode([uuid.uuid4()])
    while_a_uuid_is_made(monkeypatch, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        _core.decode(payload)


@pytest.mark.parametrize("kind", [list, tuple])
def test_nobody_finds_a_half_made_container(
    monkeypatch: pytest.MonkeyPatch, kind: type[Any]
) -> None:
    value = kind([uuid.uuid4(), *range(320)])
    payload = _core.encode(value)
    known = {id(each) for each in gc.get_objects()}

    def look() -> None:
        # Not into it: to read the null there would end the process.
        found.extend(each for each in gc.get_objects() if type(each) is kind and len(each) == 321)

    found: list[Any] = []
    while_a_uuid_is_made(monkeypatch, look)
    decoded = _core.decode(payload)
    monkeypatch.undo()
    assert not [each for each in map(id, found) if each not in known]
    assert decoded == value
    assert gc.is_tracked(decoded)


def test_a_frozenset_that_the_collector_knows_is_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    value = frozenset(uuid.uuid4() for _ in range(3))
    payload = _core.encode(value)
    held: list[Any] = []
    while_a_uuid_is_made(monkeypatch, lambda: held.append(gc.get_objects()))
    decoded = _core.decode(payload)
    monkeypatch.undo()
    assert decoded == value


def test_a_shared_mutable_container_is_declined() -> None:
    some: list[Any] = [[], {}, set(), [[1]]]
    for shared in some:
        assert _core.encode([shared, shared]) is None
        assert _core.encode({"a": shared, "b": (1, [shared])}) is None
        assert _core.encode([shared]) is not None


def test_a_tuple_that_shares_a_list_is_declined() -> None:
    inner = ([1],)
    assert _core.encode([inner, inner]) is None


def test_a_cycle_is_declined() -> None:
    straight: list[Any] = []
    straight.append(straight)
    assert _core.encode(straight) is None
    through_tuple: list[Any] = []
    through_tuple.append((through_tuple,))
    assert _core.encode(through_tuple) is None
    assert _core.encode(through_tuple[0]) is None
    round_about: dict[str, Any] = {}
    round_about["k"] = {"k": [round_about]}
    assert _core.encode(round_about) is None


def test_sharing_that_would_blow_up_the_bytes_is_declined() -> None:
    doubled: Any = (1, 2)
    for _ in range(100):
        doubled = (doubled, doubled)
    assert _core.encode(doubled) is None
    long = "x" * 10_000
    assert _core.encode([long, long]) is None
    assert _core.encode([b"x" * 10_000, "y" * 10_000]) is not None


def test_small_immutables_may_be_shared() -> None:
    pair, word = (1, "a"), "word"
    payload = _core.encode([pair, pair, word, word])
    assert payload is not None
    assert _core.decode(payload) == [pair, pair, word, word]


def test_deep_nesting_is_declined() -> None:
    deep: Any = 1
    for _ in range(1_000):
        deep = [deep]
    assert _core.encode(deep) is None


def test_a_long_list_of_short_lists_is_no_problem() -> None:
    rows = [[row, {"row": row}] for row in range(1_000)]
    payload = _core.encode(rows)
    assert payload is not None
    assert _core.decode(payload) == rows
    assert _core.encode([*rows, rows[500]]) is None


def test_a_thousand_floats_take_eight_bytes_each() -> None:
    payload = _core.encode([float(n) for n in range(1_000)])
    assert payload is not None
    assert len(payload) < 8_010


@given(st.binary(max_size=200))
@settings(max_examples=1_000, deadline=None)
def test_random_bytes_decode_or_raise_value_error(payload: bytes) -> None:
    with contextlib.suppress(ValueError):
        _core.decode(payload)


@given(values, st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_bytes_decode_or_raise_value_error(value: Any, data: st.DataObject) -> None:
    payload = bytearray(_core.encode(value) or b"\xe0")
    at = data.draw(st.integers(0, len(payload) - 1))
    payload[at] ^= 1 << data.draw(st.integers(0, 7))
    cut = data.draw(st.integers(0, len(payload)))
    for damaged in (bytes(payload), bytes(payload[:cut])):
        with contextlib.suppress(ValueError):
            _core.decode(damaged)


@pytest.mark.parametrize(
    "lie",
    [
        b"",
        b"\xe0\xe0",  # two values
        b"\xeb" + b"\xff" * 8 + b"\x7f",  # a list of nearly 2**63
        b"\xeb\xff\xff\xff\xff\x0f" * 50,  # lists of four thousand million, nested
        b"\xf0\xff\xff\xff\xff\xff\xff\xff\xff\x7f",  # as many floats
        b"\xf2\x80\x80\x80\x80\x01\x03",  # ints of three bytes
        b"\xd9" * 10_000,  # lists in lists without end
        b"\xd1" * 10_000,
        b"\xc1\xd8\x01",  # a list as a key
        b"\xee\x01\xc0",  # a dict in a set
        b"\x83\xff\xff\xff",  # ASCII that is none
        b"\xe9\x02\xc3\x28",  # UTF-8 that is none
        b"\xf4\x00\x00\x01\x01\x00\x00\x00\x00\x00\x00\x00",  # year 0
        b"\xf7" + b"\xff\xff\xff\x7f" * 3,  # too many days
        b"\xf8\x03abc",  # no Decimal
        b"\xfa",
    ],
    ids=lambda lie: lie[:12].hex() or "empty",
)
def test_a_lie_raises_value_error(lie: bytes) -> None:
    with pytest.raises(ValueError, match="no exact value"):
        _core.decode(lie)


def test_a_lie_about_length_allocates_little() -> None:
    lie = b"\xeb\x80\x80\x04" * 60 + b"\x00" * 100  # sixty nested lists of 65,536 each
    tracemalloc.start()
    with pytest.raises(ValueError, match="no exact value"):
        _core.decode(lie)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 100_000
