"""``on_error="miss"``: a cache file that cannot be opened is a cache that holds nothing."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from nearcache.backends import SharedMemoryCache
from nearcache.engines import shm
from nearcache.errors import RegionError, RegionFull
from tests.faults.beside import need_namespaces, run

Eventually = Callable[..., None]


def cache_at(path: Path, **options: Any) -> Any:
    options = {"size": "2MB", "on_error": "miss", **options}
    return SharedMemoryCache(str(path), {"OPTIONS": options})


def back(cache: Any) -> bool:
    cache.set("back", 1)
    return cache.get("back") == 1


def test_everything_misses_and_is_counted_and_said_once(
    private_path: Path, caplog: pytest.LogCaptureFixture, eventually: Eventually
) -> None:
    cache = cache_at(private_path / "not" / "there" / "cache")
    answers = {
        "get": cache.get("k", "default"),
        "get_many": cache.get_many(["k"]),
        "set": cache.set("k", 1),
        "set_many": cache.set_many({"k": 1}),
        "add": cache.add("k", 1),
        "touch": cache.touch("k"),
        "delete": cache.delete("k"),
        "delete_many": cache.delete_many(["k"]),
        "has_key": "k" in cache,
        "get_or_set": cache.get_or_set("k", lambda: "computed"),
        "early": cache.get_or_set("k", "value", early=True),
        "ttl": cache.ttl("k"),
        "expire": cache.expire("k", 5),
        "persist": cache.persist("k"),
        "keys": [cache.keys(), list(cache.iter_keys())],
        "delete_pattern": cache.delete_pattern("*"),
        "clear": cache.clear(),
    }
    assert answers == {
        "get": "default",
        "get_many": {},
        "set": None,
        "set_many": ["k"],
        "add": False,
        "touch": False,
        "delete": False,
        "delete_many": None,
        "has_key": False,
        "get_or_set": "computed",
        "early": "value",
        "ttl": 0,
        "expire": False,
        "persist": False,
        "keys": [[], []],
        "delete_pattern": 0,
        "clear": None,
    }
    assert cache.stats()["forgiven"] >= len(answers)
    (said,) = caplog.messages
    assert "does not answer" in said
    assert "not/there" in said
    (private_path / "not" / "there").mkdir(parents=True, mode=0o700)
    eventually(lambda: back(cache))
    assert "answers again" in caplog.messages[-1]
    assert len(caplog.messages) == 2


def test_awaited_it_is_the_same(private_path: Path) -> None:
    cache = cache_at(private_path / "not" / "there" / "cache")

    async def computed() -> str:
        return "awaited"

    async def use() -> list[Any]:
        return [
            await cache.aget("k", "default"),
            await cache.aset_many({"k": 1}),
            await cache.aadd("k", 1),
            await cache.aget_or_set("k", computed),
            await cache.attl("k"),
            await cache.aexpire("k", 5),
            [key async for key in cache.aiter_keys()],
            await cache.adelete_pattern("*"),
            await cache.aclear(),
            (await cache.astats())["forgiven"] > 0,
        ]

    assert asyncio.run(use()) == ["default", ["k"], False, "awaited", 0, False, [], 0, None, True]


def test_what_must_not_pretend_raises(private_path: Path) -> None:
    cache = cache_at(private_path / "not" / "there" / "cache")
    for call in (
        lambda: cache.incr("k"),
        lambda: cache.decr("k"),
        lambda: cache.incr_version("k"),
        lambda: cache.gets("k"),
        lambda: cache.cas("k", 1, 1),
        lambda: cache.lock("k").acquire(),
        lambda: cache.check(),
    ):
        with pytest.raises(RegionError):
            call()
    location = str(private_path / "not" / "there" / "cache")
    entry = {"LOCATION": location, "OPTIONS": {"size": "2MB", "on_error": "miss"}}
    caches = {"default": {"BACKEND": "nearcache.backends.SharedMemoryCache", **entry}}
    engine = "django.contrib.sessions.backends.cache"
    with (
        override_settings(CACHES=caches, SESSION_ENGINE=engine),
        pytest.raises(RegionError),
    ):
        cache.add("session", 1)


def test_by_default_it_raises_and_is_no_other_class(private_path: Path) -> None:
    cache = cache_at(private_path / "not" / "there" / "cache", on_error="raise")
    assert type(cache) is SharedMemoryCache
    with pytest.raises(RegionError):
        cache.get("k")


def test_a_class_of_the_user_s_own_forgives_too(private_path: Path) -> None:
    class Own(SharedMemoryCache):
        def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
            return super().get(f"own-{key}", default, version)

    where = str(private_path / "not" / "there" / "cache")
    cache = Own(where, {"OPTIONS": {"on_error": "miss"}})
    assert isinstance(cache, Own)
    assert type(cache).__name__ == "Own"
    assert cache.get("k", 3) == 3


def test_it_is_tried_once_a_second_and_by_one(
    private_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    real = shm.open_store
    monkeypatch.setattr(
        shm, "open_store", lambda base, *a, **k: tried.append(base) or real(base, *a, **k)
    )
    caches = [cache_at(private_path / "not" / "there" / "once") for _ in range(50)]
    for cache in caches:
        assert cache.get("k") is None
    assert len(tried) < len(caches) / 2, "all of it in well under a second"


def test_no_room_for_it_is_forgiven(private_path: Path) -> None:
    with pytest.raises(RegionFull):
        cache_at(private_path / "large", size="900GB", on_error="raise").get("k")
    assert cache_at(private_path / "large", size="900GB").get("k", 1) == 1


def test_a_directory_that_goes_while_it_is_open_costs_nothing(
    private_path: Path, eventually: Eventually
) -> None:
    place = private_path / "place"
    cache = cache_at(place / "cache")
    cache.set("k", 1)
    shutil.rmtree(place)
    place.touch()  # nor can it be made again
    eventually(lambda: back(cache) and cache.stats()["reopen_failed"])
    assert back(cache)
    place.unlink()
    place.mkdir(mode=0o700)
    eventually(lambda: back(cache) and shm.data_path(str(place / "cache")).exists())
    eventually(lambda: back(cache))


FORGIVES = """
import time
from nearcache.backends import SharedMemoryCache
def cache():
    where = sys.argv[1]
    return SharedMemoryCache(where, {"OPTIONS": {"size": "2MB", "on_error": "miss"}})
def until_back(cache):
    give_up_at = time.monotonic() + 60
    while cache.get("k") != 1:
        assert time.monotonic() < give_up_at
        cache.set("k", 1)
"""


@pytest.mark.parametrize(
    ("worsen", "mend"),
    [
        ('open("/mnt/filler", "wb").write(bytes(3 << 20))', 'os.unlink("/mnt/filler")'),
        (
            'assert os.system("mount -o remount,ro /mnt") == 0',
            'assert os.system("mount -o remount,rw /mnt") == 0',
        ),
    ],
    ids=["full", "read-only"],
)
def test_a_file_system_that_takes_nothing(worsen: str, mend: str) -> None:
    need_namespaces()
    code = f"""{FORGIVES}
{worsen}
one = cache()
assert one.set("k", 1) is None and one.get("k", "miss") == "miss"
assert one.stats()["forgiven"] >= 2
{mend}
until_back(one)
print("back")
"""
    mount = "mount -t tmpfs -o size=4m,mode=700 none /mnt"
    assert run(code, Path("/mnt/cache"), mount=mount) == "back"


def test_no_address_space_is_forgiven(private_path: Path) -> None:
    code = (
        FORGIVES
        + """
one = cache()
hard = resource.getrlimit(resource.RLIMIT_AS)[1]
one.codec, one.counters, one.path  # whatever they import
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20), hard))
assert one.get("k", "miss") == "miss"
resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
until_back(one)
print("back")
"""
    )
    assert run(code, private_path / "cache") == "back"
