"""README names methods beyond Django's: each is there, on both backends, with its ``a`` twin."""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.cache.backends.base import BaseCache

from nearcache.backends import RedisCache, SharedMemoryCache
from nearcache.errors import LockNotAcquired

README = Path(__file__).parents[1] / "README.md"
PROMISED = re.findall(
    r"`(\w+)`", README.read_text().partition("Beyond it:")[2].partition("each also with")[0]
)


@pytest.mark.parametrize("backend", [SharedMemoryCache, RedisCache])
def test_every_promised_name_is_there_and_has_a_twin(backend: type[Any]) -> None:
    assert {"ttl", "lock", "check", "delete_pattern"} <= set(PROMISED)
    of_django = [name for name in vars(BaseCache) if f"a{name}" in vars(BaseCache)]
    for name in [*PROMISED, *of_django, "get_or_set"]:
        assert callable(getattr(backend, name)), name
        assert callable(getattr(backend, f"a{name}")), f"a{name}"


@pytest.mark.parametrize("backend", [SharedMemoryCache, RedisCache])
def test_twins_take_the_same_arguments(backend: type[Any]) -> None:
    for name in set(PROMISED) - {"lock"}:
        own, twin = (inspect.signature(getattr(backend, each)) for each in (name, f"a{name}"))
        assert own.parameters.keys() == twin.parameters.keys(), name


@pytest.mark.parametrize("backend", [SharedMemoryCache, RedisCache])
@pytest.mark.parametrize("name", [*PROMISED, "get_or_set"])
def test_help_shows_what_callers_get_and_a_first_line(backend: type[Any], name: str) -> None:
    for method in (getattr(backend, name), getattr(backend, f"a{name}")):
        returns = inspect.signature(method).return_annotation
        assert returns is not inspect.Signature.empty
        assert "Flow" not in str(returns)
        assert (inspect.getdoc(method) or "").partition("\n")[0].strip(), method


@pytest.fixture
def cache(private_path: Path) -> SharedMemoryCache:
    return SharedMemoryCache(str(private_path / "c"), {"OPTIONS": {"size": "2MB"}})


def test_a_lock_is_not_told_anything_that_others_read_otherwise(cache: Any) -> None:
    for arguments in [("job", None, 3), ("job", 5), ("job", 1, 2, 3)]:
        for method in (cache.lock, cache.alock):
            with pytest.raises(TypeError, match=r"write timeout=, wait=.*version="):
                method(*arguments)
    assert cache.lock("job", version=None, timeout=3, blocking_timeout=1).acquire()


def test_an_awaited_lock_is_the_same_lock(cache: Any) -> None:
    async def main() -> None:
        async with cache.alock("job", timeout=30) as lock:
            assert lock.token
            assert not lock.lost
            lock.check()
            await lock.renew()
            assert not cache.lock("job", wait=0).acquire()
            with pytest.raises(LockNotAcquired):
                async with cache.alock("job", wait=0):
                    raise AssertionError
            assert not await cache.alock("job").acquire(blocking=False)
        other = cache.alock("job")
        assert await other.acquire(blocking=False)
        await other.release()
        assert cache.lock("job", wait=0).acquire()

    asyncio.run(main())
