"""The beginning of a value, for who wants no more of it."""

from __future__ import annotations

import pytest

from nearcache import _core
from nearcache.backends import SharedMemoryCache


@pytest.fixture
def store(cache: SharedMemoryCache) -> _core.Store:
    return cache.engine


@pytest.mark.parametrize(
    "value",
    [b"", b"raw bytes", b"0", b"-9223372036854775808", b"12" * 40, b"\x81text", b"\x87" * 70_000],
    ids=lambda value: repr(value[:20]),
)
@pytest.mark.parametrize("size", [0, 1, 2, 8, 9, 30, 2**63])
def test_a_head_is_how_the_value_begins(store: _core.Store, value: bytes, size: int) -> None:
    store.set(b"k", value, None)
    assert store.head(b"k", size) == value[:size]


def test_there_is_no_head_of_what_is_not_there(store: _core.Store) -> None:
    assert store.head(b"k", 1) is None
    assert store.head(b"", 1) is None
    store.set(b"k", b"v", 1)
    assert store.head(b"k", 1) is None
    with pytest.raises(OverflowError):
        store.head(b"k", -1)


def test_a_touch_is_no_use_of_the_value(cache: SharedMemoryCache) -> None:
    cache.set("k", "v")
    hits = cache.stats()["hits"]
    assert cache.touch("k", 100)
    assert cache.expire("k", 50)
    assert cache.stats()["hits"] == hits
    assert cache.get("k") == "v"
    assert cache.stats()["hits"] == hits + 1
