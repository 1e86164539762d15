"""The whole entry of CACHES is checked: what Django ignores, or trips over, is one clear error."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from nearcache.backends import RedisCache, SharedMemoryCache
from tests.projects.made import make_project

BOTH = pytest.mark.parametrize("backend", [SharedMemoryCache, RedisCache])


@BOTH
@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"serializer": "json"}, 'belongs into OPTIONS: "OPTIONS": {"serializer": ...}'),
        ({"MAX_ENTRIES": 10}, "belongs into OPTIONS"),
        ({"TIMOUT": 10}, "did you mean 'TIMEOUT'"),
        ({"KEYPREFIX": "a"}, "did you mean 'KEY_PREFIX'"),
        ({"Location": "a"}, "belongs into OPTIONS"),
        ({"OPTIONS": ["size"]}, "is a list; write a dict"),
        ({"TIMEOUT": "5 min"}, "write a number of seconds"),
        ({"TIMEOUT": float("inf")}, "write a number of seconds"),
        ({"VERSION": None}, "write a whole number"),
        ({"KEY_PREFIX": 5}, "write text"),
        ({"KEY_FUNCTION": "nowhere.function"}, "does not import"),
        ({"KEY_FUNCTION": 5}, "write text"),
        ({"max_entries": "many"}, "whole number"),
        ({5: 5}, "names are text"),
    ],
)
def test_what_is_wrong_beside_options_is_said(
    backend: type[Any], entry: dict[Any, Any], says: str
) -> None:
    with pytest.raises(ImproperlyConfigured, match=re.escape(says)):
        backend("", entry)


def test_an_option_beside_options_is_told_its_place() -> None:
    with pytest.raises(ImproperlyConfigured, match=r'belongs into OPTIONS: "OPTIONS": \{"size"'):
        SharedMemoryCache("", {"size": "8MB"})


@BOTH
def test_what_django_and_django_redis_have_there_is_taken(backend: type[Any]) -> None:
    entry = {
        "TIMEOUT": "300",
        "VERSION": 2,
        "KEY_PREFIX": "p",
        "KEY_FUNCTION": "django.core.cache.backends.base.default_key_func",
        "REVERSE_KEY_FUNCTION": "django_redis.util.default_reverse_key",
        "OPTIONS": {},
        "max_entries": 10,
        "cull_frequency": 3,
        "timeout": 5,
    }
    assert backend("", entry).default_timeout == 5


def test_a_location_may_be_a_path(private_path: Path) -> None:
    cache = SharedMemoryCache(private_path / "cache", {"OPTIONS": {"size": "2MB"}})
    cache.set("k", 1)
    assert cache.get("k") == 1
    assert cache.path == str(private_path / "cache")


@pytest.mark.parametrize("location", [["a"], 5, {"a": 1}, PurePosixPath("relative"), b"a"])
def test_a_location_that_is_none_is_one_error(location: Any) -> None:
    with pytest.raises(ImproperlyConfigured, match="LOCATION"):
        SharedMemoryCache(location, {})


@pytest.mark.parametrize("location", [5, PurePosixPath("/run/redis.sock"), [5], {"a": 1}])
def test_a_server_s_location_is_a_url(location: Any) -> None:
    with pytest.raises(ImproperlyConfigured, match="write a URL"):
        RedisCache(location, {})


def test_manage_py_check_says_it_without_a_traceback(projects: Path) -> None:
    entry = {"BACKEND": "nearcache.backends.SharedMemoryCache", "LOCATION": ["a"]}
    project = make_project(projects / "site", "mysite", {"default": entry})
    done = project.run("manage.py", "check", fails=True)
    assert "option 'LOCATION' is a list; write a name, or an absolute path" in done.stderr
    assert "Traceback" not in done.stderr, done.stderr
