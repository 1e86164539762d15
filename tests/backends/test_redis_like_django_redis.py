"""What people know from django-redis, for the methods that we share.

In our own words, after the README of django-redis 7 and what its tests expect. Where we differ
it is said here: those tests are called ``..._unlike_there``.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import GeneratorType
from typing import Any

import pytest
from django.core.cache.backends.base import DEFAULT_TIMEOUT

from nearcache.backends import RedisCache
from tests.backends.conftest import PATIENT
from tests.redis.servers import Server


@pytest.fixture
def cache(redis_server: Server) -> Iterator[Any]:
    url = f"unix://{redis_server.path}?db=1"
    cache = RedisCache(
        url, {"OPTIONS": PATIENT | {"CLIENT_CLASS": "django_redis.client.DefaultClient"}}
    )
    yield cache
    cache.engine.topology.close()


def about(seconds: int) -> Any:
    """What is left of so many seconds on a slow machine; of 100 and more, not of fewer."""
    return pytest.approx(seconds - 15, abs=15)


def about_ms(milliseconds: int) -> Any:
    return pytest.approx(milliseconds - 15_000, abs=15_000)


# -- set, add, get -----------------------------------------------------------------------------


def test_set_nx_stores_only_what_is_new(cache: Any) -> None:
    assert cache.set("k", 1, nx=True) is True
    assert cache.set("k", 2, nx=True) is False
    assert cache.get("k") == 1
    cache.delete("k")
    assert cache.set("k", 2, nx=True) is True


def test_set_nx_has_a_timeout(cache: Any) -> None:
    assert cache.set("k", 1, timeout=100, nx=True) is True
    assert cache.ttl("k") == about(100)
    assert cache.set("k", 2, timeout=1000, nx=True) is False
    assert cache.ttl("k") <= 100


@pytest.mark.parametrize("timeout", [0, -1, -100])
def test_set_nx_that_is_over_at_once_takes_nothing_away(cache: Any, timeout: int) -> None:
    cache.set("k", 1)
    assert cache.set("k", 2, timeout=timeout, nx=True) is False
    assert cache.get("k") == 1
    assert cache.set("new", 2, timeout=timeout, nx=True) is True
    assert cache.get("new") is None


def test_set_xx_stores_only_what_is_there(cache: Any) -> None:
    assert cache.set("k", 1, xx=True) is False
    assert cache.get("k") is None
    cache.set("k", 1)
    assert cache.set("k", 2, timeout=150, xx=True) is True
    assert cache.get("k") == 2
    assert cache.ttl("k") == about(150)
    assert cache.set("k", 3, timeout=None, xx=True) is True
    assert cache.ttl("k") is None
    with pytest.raises(ValueError, match="nx and xx"):
        cache.set("k", 4, nx=True, xx=True)


@pytest.mark.parametrize("timeout", [0, -1, -2])
def test_a_timeout_that_is_over_deletes(cache: Any, timeout: int) -> None:
    cache.set("k", 1, timeout=None)
    assert cache.set("k", 2, timeout=timeout) is True  # something was deleted
    assert cache.get("k") is None
    assert cache.set("k", 2, timeout=timeout) is False


def test_timeouts_may_be_positional_and_fractions(
    cache: Any, eventually: Callable[..., None]
) -> None:
    cache.set("k", 222, -1)
    assert cache.get("k") is None

    def is_there_for_a_fraction() -> bool:
        cache.set("k", 222, 0.9)
        return 0 < cache.pttl("k") <= 900 and cache.get("k") == 222

    eventually(is_there_for_a_fraction)  # a machine may stop for that second


@pytest.mark.parametrize(
    "value",
    [
        "heló",
        2.0,
        1.23456789,
        True,
        False,
        None,
        {"id": 1, "name": "Foo", "at": datetime(2012, 1, 1, tzinfo=UTC)},
        [1, {"k": (2, 3)}],
        b"bytes\x00",
        "1",
        "007",
    ],
)
def test_values_come_back_as_they_were(cache: Any, value: Any) -> None:
    cache.set("k", value)
    assert cache.get("k") == value
    assert type(cache.get("k")) is type(value)


def test_add_says_whether_it_did(cache: Any) -> None:
    assert cache.add("k", "first") is True
    assert cache.add("k", "second") is False
    assert cache.get("k") == "first"


def test_get_or_set(cache: Any) -> None:
    assert cache.get_or_set("k", "computed", timeout=100) == "computed"
    assert cache.get_or_set("k", lambda: "other") == "computed"
    assert cache.ttl("k") > 90


def test_many_at_once(cache: Any) -> None:
    cache.set_many({"a": 1, "ключ": "знач", "c": None}, timeout=100)
    assert cache.get_many(["a", "ключ", "c", "d"]) == {"a": 1, "ключ": "знач", "c": None}
    assert cache.ttl("ключ") == about(100)
    assert cache.get_many([]) == {}


def test_set_many_returns_no_keys_unlike_there(cache: Any) -> None:
    assert cache.set_many({"a": 1}) == []  # Django's: the keys that failed; there None


def test_delete_says_whether_something_was_there(cache: Any) -> None:
    cache.set_many({"a": 1, "b": 2, "c": 3})
    assert cache.delete("a") is True
    assert cache.delete("a") is False
    assert cache.delete_many(key for key in ("b", "c", "none")) is None
    assert cache.get_many(["a", "b", "c"]) == {}
    assert cache.delete_many([]) is None


def test_clear_takes_all_versions(cache: Any) -> None:
    cache.set("k", 1)
    cache.set("k", 1, version=2)
    cache.clear()
    assert cache.get("k") is cache.get("k", version=2) is None


def test_clear_leaves_other_prefixes_unlike_there(cache: Any, redis_server: Server) -> None:
    other = RedisCache(
        f"unix://{redis_server.path}?db=1", {"KEY_PREFIX": "other", "OPTIONS": PATIENT}
    )
    with redis_server.client(db=1) as client:
        client.set("somebody-elses", 1)
        other.set("k", 1)
        cache.clear()
        assert other.get("k") == 1
        assert client.get("somebody-elses") == b"1"
        cache.flush_all()
        assert other.get("k") is None
        assert client.dbsize() == 0


# -- numbers -----------------------------------------------------------------------------------


def test_incr_and_decr(cache: Any) -> None:
    cache.set("n", 1)
    assert [cache.incr("n"), cache.incr("n", 10), cache.incr("n", -2)] == [2, 12, 10]
    assert [cache.decr("n"), cache.decr("n", 5)] == [9, 4]
    for method in (cache.incr, cache.decr):
        with pytest.raises(ValueError, match="not found"):
            method("missing")


def test_incr_may_be_told_to_begin(cache: Any) -> None:
    assert cache.incr("n", 5, ignore_key_check=True) == 5
    assert cache.incr("n", ignore_key_check=True) == 6
    assert cache.ttl("n") is None
    assert cache.decr("n", 2, ignore_key_check=True) == 4
    assert cache.get("n") == 4


def test_incr_goes_on_beyond_64_bits_and_keeps_the_timeout(cache: Any) -> None:
    cache.set("n", 2**63 - 1, 100)
    assert cache.incr("n") == 2**63
    assert cache.incr("n", 2**64) == 2**63 + 2**64
    assert cache.get("n") == 2**63 + 2**64
    assert cache.ttl("n") == about(100)


def test_incr_of_a_float(cache: Any) -> None:
    cache.set("n", 1.5)
    assert cache.incr("n", 2) == 3.5


# -- versions ----------------------------------------------------------------------------------


def test_versions_are_apart(cache: Any) -> None:
    cache.set("k", "two", version=2)
    assert cache.get("k") is None
    assert cache.get("k", version=2) == "two"
    assert cache.has_key("k", version=2)
    cache.incr_version("k", version=2)
    assert cache.get("k", version=3) == "two"
    assert cache.decr_version("k", 2, version=3) == 1
    assert cache.get("k") == "two"
    with pytest.raises(ValueError, match="not found"):
        cache.incr_version("missing")


def test_incr_version_keeps_the_timeout_or_its_absence(
    cache: Any, eventually: Callable[..., None]
) -> None:
    cache.set("k", 1, timeout=None)
    cache.incr_version("k")
    assert cache.ttl("k", version=2) is None

    def is_kept_for_its_last_second() -> bool:  # which there was lost
        cache.set("k", 1, timeout=0.9)
        cache.delete("k", version=2)
        with contextlib.suppress(ValueError):  # the machine stopped for that second
            cache.incr_version("k")
        return 0 < cache.pttl("k", version=2) <= 900

    eventually(is_kept_for_its_last_second)


# -- ttl and its kin ---------------------------------------------------------------------------


def test_ttl(cache: Any) -> None:
    cache.set("k", 1, 100)
    assert cache.ttl("k") == about(100)
    assert cache.pttl("k") == about_ms(100_000)
    cache.set("k", 1, None)
    assert cache.ttl("k") is cache.pttl("k") is None
    assert cache.ttl("missing") == cache.pttl("missing") == 0


def test_persist_expire_and_the_like(cache: Any) -> None:
    cache.set("k", 1, timeout=200)
    assert cache.persist("k") is True
    assert cache.ttl("k") is None
    assert cache.expire("k", 100) is True
    assert cache.ttl("k") == about(100)
    assert cache.expire("k", timedelta(seconds=170)) is True
    assert cache.ttl("k") == about(170)
    assert cache.pexpire("k", 100_500) is True
    assert cache.pttl("k") == about_ms(100_500)
    assert cache.expire_at("k", datetime.now(UTC) + timedelta(hours=1)) is True
    assert cache.ttl("k") == about(3600)
    when = int((datetime.now(UTC) + timedelta(hours=2)).timestamp() * 1000)
    assert cache.pexpire_at("k", when) is True
    assert cache.pttl("k") == about_ms(7_200_000)
    assert cache.expire_at("k", datetime.now(UTC) - timedelta(hours=1)) is True
    assert cache.get("k") is None
    for gone in (cache.persist("k"), cache.expire("k", 5), cache.pexpire("k", 5)):
        assert gone is False
    assert cache.expire_at("k", 10**10) is cache.pexpire_at("k", 10**13) is False


def test_expire_without_saying_how_long_is_the_default(cache: Any) -> None:
    cache.set("k", 1, timeout=None)
    assert cache.expire("k", DEFAULT_TIMEOUT) is True
    assert cache.ttl("k") == about(300)


def test_touch(cache: Any) -> None:
    cache.set("k", 1, timeout=100)
    assert cache.touch("k", 150) is True
    assert cache.ttl("k") == about(150)
    assert cache.touch("k", None) is True
    assert cache.ttl("k") is None
    assert cache.touch("k", None) is True  # there PERSIST's answer, which is about the timeout
    assert cache.touch("k") is True
    assert cache.ttl("k") == about(300)
    assert cache.touch("k", 0) is True
    assert cache.get("k") is None
    assert cache.touch("k", None) is cache.touch("k", 5) is False
    cache.set("k", 1)
    assert cache.touch("k", -5) is True
    assert cache.get("k") is None


# -- keys --------------------------------------------------------------------------------------


def test_keys_and_iter_keys(cache: Any) -> None:
    cache.set_many({"foo1": 1, "foo2": 1, "foo3": 1, "bar": 1})
    assert sorted(cache.keys("foo*")) == ["foo1", "foo2", "foo3"]
    assert isinstance(cache.keys("foo*"), list)
    found = cache.iter_keys("foo*", itersize=2)
    assert isinstance(found, GeneratorType)
    assert next(found).startswith("foo")
    assert {*cache.iter_keys("foo*", itersize=2)} == {"foo1", "foo2", "foo3"}
    assert cache.keys("*", version=2) == []


def test_delete_pattern(cache: Any) -> None:
    cache.set_many({f"foo-{i}": i for i in range(300)} | {"bar": 1})
    assert cache.delete_pattern("*foo-1*", itersize=7) == 111
    assert cache.delete_pattern("*foo-*", itersize=7) == 189
    assert cache.delete_pattern("*foo-*") == 0
    assert cache.keys() == ["bar"]


def test_a_prefix_with_a_colon_is_cut_off_whole_unlike_there(redis_server: Server) -> None:
    cache = RedisCache(f"unix://{redis_server.path}", {"KEY_PREFIX": "a:b", "OPTIONS": PATIENT})
    cache.set("x", 1)
    assert cache.keys() == ["x"]  # there "1:x"
    cache.engine.topology.close()


# -- the rest ----------------------------------------------------------------------------------


def test_locks(cache: Any) -> None:
    lock = cache.lock("foobar", timeout=100, sleep=0.01, blocking_timeout=0.01, thread_local=False)
    assert lock.acquire(blocking=True) is True
    assert cache.lock("foobar").acquire(blocking=False) is False
    lock.release()
    with cache.lock("foobar", version=2, timeout=50):
        assert cache.lock("foobar").acquire(blocking=False) is True


def test_a_lock_may_be_released_in_another_thread(cache: Any) -> None:
    lock = cache.lock("foobar", timeout=100)
    lock.acquire()
    thread = threading.Thread(target=lock.release)
    thread.start()
    thread.join()
    assert cache.lock("foobar").acquire(blocking=False) is True


def test_the_client_is_redis_py_s_for_everything_else(cache: Any) -> None:
    key = cache.make_key("hash")
    assert cache.client.hset(key, "field", "value") == 1
    assert cache.client.hgetall(key) == {b"field": b"value"}
    assert cache.delete("hash") is True


def test_close_closes_nothing(cache: Any) -> None:
    cache.set("k", 1)
    cache.close()
    assert cache.get("k") == 1
