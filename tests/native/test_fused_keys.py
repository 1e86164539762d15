"""Keys made natively are the keys, and give the warnings, of Django's own code."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.core.cache.backends.base import BaseCache, CacheKeyWarning
from django.utils.safestring import SafeString
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nearcache.backends import SharedMemoryCache
from nearcache.base.keys import encode_key

MakeCache = Callable[..., SharedMemoryCache]
per_example = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

texts = st.text(max_size=20) | st.text(min_size=200, max_size=260)
keys = texts | st.integers() | st.floats() | st.booleans() | st.none() | st.binary(max_size=5)
versions = st.none() | st.integers() | st.booleans() | st.text(max_size=3) | st.floats()


def _always(made: str, key: str, prefix: str, version: int) -> str:
    return made


def quietly(make_key: Callable[[], Any]) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return make_key(), [str(warning.message) for warning in caught]


@given(
    prefix=texts | st.integers(),
    own=st.integers() | st.text(max_size=3),
    key=keys,
    version=versions,
)
@per_example
@example(prefix="", own=1, key="k" * 248, version=None)  # 250 characters: no warning
@example(prefix="", own=1, key="k" * 249, version=None)
@example(prefix="", own=1, key="к" * 248, version=None)  # characters, not bytes
@example(prefix="", own=1, key="😀" * 249, version=None)
@example(prefix="a:b", own=2, key="with space", version=None)
@example(prefix="", own=1, key="\x7f", version=7)
@example(prefix="", own=1, key="\ud800", version=None)
@example(prefix=" ", own=1, key="k", version=None)
@example(prefix="", own=1, key="k", version=True)
@example(prefix="", own=1, key="k", version=-(2**70))
def test_the_final_key_and_its_warnings_are_django_s(
    cache: SharedMemoryCache, prefix: Any, own: Any, key: Any, version: Any
) -> None:
    cache.key_prefix, cache.version = prefix, own
    by_django = quietly(lambda: encode_key(BaseCache.make_and_validate_key(cache, key, version)))
    assert quietly(lambda: cache._raw_key(key, version)) == by_django


def test_a_key_is_what_str_makes_of_it(cache: SharedMemoryCache) -> None:
    class Odd(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "odd"

    assert cache._raw_key(Odd("even")) == b":1:odd"
    assert cache._raw_key(SafeString("safe")) == b":1:safe"
    assert cache._raw_key(True) == b":1:True"


def test_assigning_prefix_version_or_function_takes_effect_at_once(
    cache: SharedMemoryCache,
) -> None:
    cache.set("k", "plain")
    cache.key_prefix = "p"
    assert cache._raw_key("k") == b"p:1:k"
    assert cache.get("k") is None
    cache.version = 2
    assert cache._raw_key("k") == b"p:2:k"
    cache.key_func = lambda key, prefix, version: f"{key}/{prefix}/{version}"
    assert cache._raw_key("k") == b"k/p/2"


def test_settings_reach_the_native_side(make_cache: MakeCache) -> None:
    cache = make_cache(KEY_PREFIX="p", VERSION=3, TIMEOUT=None)
    assert (cache.key_prefix, cache.version, cache.default_timeout) == ("p", 3, None)
    assert cache._raw_key("k") == b"p:3:k"
    cache.set("k", 1)
    assert cache.ttl("k") is None


@pytest.mark.parametrize("method", ["make_key", "make_and_validate_key"])
def test_an_overridden_key_method_is_used(cache: SharedMemoryCache, method: str) -> None:
    def upper(self: BaseCache, key: str, version: int | None = None) -> str:
        return key.upper()

    subclass = type("Upper", (SharedMemoryCache,), {method: upper})
    other = subclass(cache.options.location, {"OPTIONS": {"size": "4MB"}})
    assert other._raw_key("k") == b"K"
    other.set("k", 1)
    assert other.get("K") == 1


def test_a_validate_key_that_refuses_is_heard(cache: SharedMemoryCache) -> None:
    class Strict(SharedMemoryCache):
        def validate_key(self, key: str) -> None:
            raise ValueError("not this one")

    strict = Strict(cache.options.location, {"OPTIONS": {"size": "4MB"}})
    with pytest.raises(ValueError, match="not this one"):
        strict.get("k")


@pytest.mark.parametrize(
    "call",
    [
        lambda cache, key: cache.get(key),
        lambda cache, key: cache.set(key, 1),
        lambda cache, key: cache.add(key, 1),
        lambda cache, key: cache.touch(key),
        lambda cache, key: cache.delete(key),
        lambda cache, key: cache.has_key(key),
        lambda cache, key: cache.get_many([key]),
        lambda cache, key: cache.set_many({key: 1}),
        lambda cache, key: cache.delete_many([key]),
        lambda cache, key: cache.set(key, 1) or cache.incr(key),
    ],
)
def test_every_method_warns_about_an_awkward_key(
    cache: SharedMemoryCache, call: Callable[[SharedMemoryCache, str], Any]
) -> None:
    with pytest.warns(CacheKeyWarning, match="contains characters"):
        call(cache, "two words")


@pytest.mark.filterwarnings("error")
def test_a_warning_turned_error_comes_through(cache: SharedMemoryCache) -> None:
    with pytest.raises(CacheKeyWarning):
        cache.get("two words")


def test_a_custom_function_may_return_an_empty_or_endless_key(cache: SharedMemoryCache) -> None:
    for made in ("", "k" * 70_000):
        cache.key_func = partial(_always, made)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cache.set("k", 1)
            assert cache.get("k", "absent") == "absent"
            assert cache.delete("k") is False
