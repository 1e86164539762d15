"""Values to try codecs with, and what "the same" means: equal, of the same exact types."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

ZONES = [
    dt.UTC,
    dt.timezone(dt.timedelta(hours=-3, minutes=-30)),
    dt.timezone(dt.timedelta(seconds=3661, microseconds=7)),
    ZoneInfo("Europe/Berlin"),
]
TEXT = st.text(max_size=30)
INTS = st.integers() | st.integers(-(2**70), 2**70)


def scalars(*, nan: bool) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.none(),
        st.booleans(),
        INTS,
        st.floats(allow_nan=nan),
        TEXT,
        st.binary(max_size=30),
        st.dates(),
        st.datetimes(timezones=st.none() | st.sampled_from(ZONES)),
        st.times(timezones=st.none() | st.sampled_from(ZONES)),
        st.timedeltas(),
        st.decimals(allow_nan=nan),
        st.uuids(),
    )


HASHABLE = st.recursive(
    scalars(nan=False),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
EXACT = st.recursive(
    scalars(nan=True),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=5).map(tuple)
        | st.dictionaries(HASHABLE, inner, max_size=5)
        | st.sets(HASHABLE, max_size=5)
        | st.frozensets(HASHABLE, max_size=5)
    ),
    max_leaves=15,
)
JSON = st.recursive(
    st.none() | st.booleans() | INTS | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=15,
)


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same exact types all through; NaN is NaN, and -0.0 is not 0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same(list(one), list(other)) and same(list(one.values()), list(other.values()))
    if isinstance(one, set | frozenset):
        return one == other and {(type(item), item) for item in one} == {
            (type(item), item) for item in other
        }
    if isinstance(one, float):
        return repr(one) == repr(other)
    if isinstance(one, Decimal):
        return one.as_tuple() == other.as_tuple()
    if isinstance(one, dt.datetime | dt.time):
        return repr(one) == repr(other) and one.fold == other.fold
    return bool(one == other)
