"""Kept objects are never stale, never shared with a caller who could change them."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.http import HttpResponse

from nearcache.backends import SharedMemoryCache

MakeCache = Callable[..., SharedMemoryCache]
forked = multiprocessing.get_context("fork")

RECORD = {"from": "359123456789", "hour": "12:30", "weight": 5, "pair": (1, 2.5), "none": None}


def read_often(cache: SharedMemoryCache, key: str = "k") -> Any:
    """The value after so many reads that it is kept, if it may be."""
    for _ in range(4):
        cache.get(key)
    return cache.get(key)


def in_another_process(work: Callable[[], object]) -> None:
    child = forked.Process(target=work)
    child.start()
    child.join(30)
    assert child.exitcode == 0


@pytest.mark.parametrize(
    ("value", "change"),
    [
        (dict(RECORD), lambda got: got.update(weight=6)),
        (dict(RECORD), lambda got: got.clear()),
        ([1, "a", (2, 3)], lambda got: got.append(4)),
        ([0.5] * 1_000, lambda got: got.pop()),
        ({1, "a", (2, 3)}, lambda got: got.add(4)),
        ({"rows": [1, 2]}, lambda got: got["rows"].append(3)),
        ([[1], [2]], lambda got: got[0].append(3)),
        (([1],), lambda got: got[0].append(2)),
        ({"k": {"k": 1}}, lambda got: got["k"].clear()),
    ],
)
def test_changing_what_get_returned_changes_nothing_else(
    cache: SharedMemoryCache, value: Any, change: Callable[[Any], object]
) -> None:
    cache.set("k", value)
    for _ in range(6):
        got = cache.get("k")
        assert got == value
        change(got)
        assert got != value
    many = cache.get_many(["k"])["k"]
    change(many)
    assert cache.get("k") == value


@pytest.mark.parametrize("value", ["text", b"bytes", 2.5, 10**30, (1, ("a", None)), frozenset({1})])
def test_an_immutable_value_is_the_same_object_each_time(
    cache: SharedMemoryCache, value: Any
) -> None:
    cache.set("k", value)
    assert read_often(cache) is cache.get("k")
    assert cache.get("k") == value


def test_the_order_of_a_dict_is_kept(cache: SharedMemoryCache) -> None:
    cache.set("k", {"b": 1, "a": 2})
    assert list(read_often(cache)) == ["b", "a"]


@pytest.mark.parametrize("value", [dict(RECORD), "text", 7, [1, 2], 2.5])
def test_a_write_of_this_process_is_seen_at_once(cache: SharedMemoryCache, value: Any) -> None:
    cache.set("k", value)
    assert read_often(cache) == value
    cache.set("k", "new")
    assert cache.get("k") == "new"
    cache.delete("k")
    assert cache.get("k") is None
    cache.add("k", value)
    assert read_often(cache) == value
    cache.clear()
    assert cache.get("k") is None


def test_an_object_of_another_thread_s_backend_sees_the_same(make_cache: MakeCache) -> None:
    one, other = make_cache(), make_cache()
    one.set("k", RECORD)
    assert read_often(other) == RECORD
    one.delete("k")
    assert other.get("k") is None


def test_a_write_of_another_process_is_seen_at_once(cache: SharedMemoryCache) -> None:
    for value, work in [
        (dict(RECORD), lambda: cache.set("k", "new")),
        ("text", lambda: cache.set("k", "new")),
    ]:
        cache.set("k", value)
        assert read_often(cache) == value
        in_another_process(work)
        assert cache.get("k") == "new"


def test_a_delete_of_another_process_is_seen_at_once(cache: SharedMemoryCache) -> None:
    cache.set("k", RECORD)
    assert read_often(cache) == RECORD
    in_another_process(lambda: cache.delete("k"))
    assert cache.get("k") is None


def test_a_clear_of_another_process_is_seen_at_once(cache: SharedMemoryCache) -> None:
    cache.set("k", RECORD)
    assert read_often(cache) == RECORD
    in_another_process(cache.clear)
    assert cache.get("k") is None


def test_a_touch_of_another_process_is_seen_at_once(cache: SharedMemoryCache) -> None:
    cache.set("k", RECORD, None)
    assert read_often(cache) == RECORD
    in_another_process(lambda: cache.touch("k", -1))
    assert cache.get("k") is None


def test_a_deadline_ends_a_kept_object(
    cache: SharedMemoryCache, eventually: Callable[[Callable[[], object]], None]
) -> None:
    cache.set("k", RECORD, 0.05)
    assert read_often(cache) == RECORD
    eventually(lambda: cache.get("k") is None)


def test_an_earlier_deadline_from_another_process_ends_a_kept_object(
    cache: SharedMemoryCache, eventually: Callable[[Callable[[], object]], None]
) -> None:
    cache.set("k", RECORD, None)
    assert read_often(cache) == RECORD
    in_another_process(lambda: cache.touch("k", 0.05))
    eventually(lambda: cache.get("k") is None)


def test_a_later_deadline_from_another_process_keeps_a_kept_object(
    cache: SharedMemoryCache, eventually: Callable[[Callable[[], object]], None]
) -> None:
    cache.set("k", RECORD, 1)
    cache.set("clock", 1, 1.1)
    assert read_often(cache) == RECORD
    in_another_process(lambda: cache.touch("k", 300))
    eventually(lambda: cache.get("clock") is None)
    assert cache.get("k") == RECORD


def test_an_increment_is_seen_at_once(cache: SharedMemoryCache) -> None:
    cache.set("k", 1)
    assert read_often(cache) == 1
    in_another_process(lambda: cache.incr("k"))
    assert cache.get("k") == 2


def test_a_forked_child_revalidates_what_its_parent_kept(cache: SharedMemoryCache) -> None:
    cache.set("k", frozenset({1}))
    kept = weakref.ref(read_often(cache))
    assert kept() is not None

    def child() -> None:
        same = cache.get("k") is kept()
        cache.set("k", frozenset({2}))
        os._exit(0 if same and cache.get("k") == frozenset({2}) else 1)

    in_another_process(child)
    assert cache.get("k") == frozenset({2})


def test_a_weak_reference_s_callback_may_use_the_cache(cache: SharedMemoryCache) -> None:
    cache.set("k", frozenset({1}))
    seen: list[Any] = []
    watched = weakref.ref(read_often(cache), lambda _: seen.append(cache.get("k")))
    cache.set("k", frozenset({2}))
    assert read_often(cache) == frozenset({2})
    assert watched() is None
    assert seen == [frozenset({2})]


def test_threads_never_see_another_key_s_or_a_changed_value(cache: SharedMemoryCache) -> None:
    makers: list[Callable[[int, int], Any]] = [
        lambda key, turn: {"key": key, "turn": turn},
        lambda key, turn: [key, turn, 1.5],
        lambda key, turn: (key, frozenset({turn})),
        lambda key, turn: {"key": key, "rows": [{"turn": turn}]},
    ]
    wrong: list[Any] = []

    def work(seed: int) -> None:
        for turn in range(2_000):
            key = (seed + turn * 7) % 5
            if turn % 5 == 0:
                cache.set(str(key), makers[turn % 4](key, turn))
            value = cache.get(str(key))
            found = value.pop("key", None) if isinstance(value, dict) else value[0]
            if found != key:
                wrong.append((key, value))
            if isinstance(value, list):
                value.clear()

    with ThreadPoolExecutor(4) as pool:
        switch_s, thresholds = sys.getswitchinterval(), gc.get_threshold()
        sys.setswitchinterval(1e-5)
        gc.set_threshold(1)  # finalizers and switches wherever something is allocated
        try:
            for key in range(5):
                cache.set(str(key), makers[0](key, 0))
            list(pool.map(work, range(4)))
        finally:
            sys.setswitchinterval(switch_s)
            gc.set_threshold(*thresholds)
    assert not wrong


def test_many_keys_stay_right_under_a_small_table(cache: SharedMemoryCache) -> None:
    for key in range(10_000):
        cache.set(str(key), (key,))
    kept = [key for _ in range(3) for key in range(10_000)]
    assert all(cache.get(str(key), (key,)) == (key,) for key in kept)


def test_a_value_that_does_not_unpickle_is_a_counted_miss(
    cache: SharedMemoryCache, caplog: pytest.LogCaptureFixture
) -> None:
    cache.engine.set(cache._raw_key("k"), b"\x83not a pickle", None)
    assert cache.get("k", "absent") == "absent"
    assert cache.get_many(["k"]) == {}
    assert cache.counters.undecodable == 2
    assert len([record for record in caplog.records if "cannot be read" in record.message]) == 1


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "value", [True, {"a": 1}, HttpResponse("page")], ids=["bool", "dict", "page"]
)
def test_pickles_without_a_header_are_counted_misses(
    cache: SharedMemoryCache, value: object, protocol: int
) -> None:
    cache.engine.set(cache._raw_key("k"), pickle.dumps(value, protocol), None)
    before = cache.counters.undecodable
    for _ in range(4):  # often enough to be kept as an object, were it one
        assert cache.get("k", "absent") == "absent"
    assert cache.get_many(["k"]) == {}
    assert cache.counters.undecodable == before + 5


@pytest.mark.parametrize(
    "raw", [b"\x82\xfa", b"\x82", b"\x81\xff", b"\xa3zlib?", b"\x8fx", b"raw", b"007"]
)
def test_bytes_that_are_no_value_are_a_counted_miss(cache: SharedMemoryCache, raw: bytes) -> None:
    cache.engine.set(cache._raw_key("k"), raw, None)
    before = cache.counters.undecodable
    assert cache.get("k", "absent") == "absent"
    assert cache.counters.undecodable == before + 1
