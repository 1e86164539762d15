"""The rights that docs/redis.md names are enough, and what is missing is said."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nearcache.backends import RedisCache
from nearcache.errors import NotPermitted
from tests.needs import missing
from tests.redis.servers import NEWER, Server, running

TEXT = (Path(__file__).parents[2] / "docs" / "redis.md").read_text()
BASE = ("on", ">pw", "resetchannels", "~mysite:*", "+ping")


@pytest.fixture(scope="module", params=["system", "newer"])
def server(request: pytest.FixtureRequest, redis_directory: Path) -> Iterator[Server]:
    if request.param == "newer" and not NEWER.exists():
        missing("there is no newer server; `make newer-redis`")
    fields = {} if request.param == "system" else {"binary": (str(NEWER),)}
    with running(redis_directory, **fields) as made:  # type: ignore[arg-type]
        yield made


@pytest.fixture
def cache_with(server: Server) -> Iterator[Callable[..., RedisCache]]:
    made: list[RedisCache] = []

    def make(*rules: str) -> RedisCache:
        server.ask("FLUSHALL")
        server.ask("ACL", "SETUSER", "mysite", "reset", *rules)
        options = {"username": "mysite", "password": "pw"}
        made.append(
            RedisCache(f"unix://{server.path}", {"KEY_PREFIX": "mysite", "OPTIONS": options})
        )
        made[-1].engine._may_script = True  # it belongs to the process
        return made[-1]

    yield make
    for each in made:
        each._topology.close()


def rights_of(*first: str) -> list[str]:
    """The rights in the row of the table that begins so."""
    rows = [line for line in TEXT.splitlines() if line.startswith(f"| `{first[0]}`")]
    row = next(line for line in rows if "`+" in line)
    return re.findall(r"\+[a-z|]+", row.split(" | ")[1].split(", or without")[0])


def all_of_it(cache: Any) -> None:
    values(cache)
    computed(cache)
    numbers(cache)
    cache.set("versioned", 1)
    assert cache.incr_version("versioned") == 2
    walks(cache)
    locks(cache)
    assert cache.stats()
    cache.flush_all()


def values(cache: Any) -> None:
    assert cache.set("k", "v", 10)
    assert cache.add("other", 1)
    assert cache.get_many(["k", "other"]) == {"k": "v", "other": 1}
    assert cache.set_many({"a": 1, "b": 2}) == []
    assert cache.touch("k", 20)
    assert cache.touch("k", None)
    assert cache.has_key("k")
    assert cache.ttl("k") is None
    assert cache.delete("k")
    cache.delete_many(["a", "b"])


def computed(cache: Any) -> None:
    assert cache.get_or_set("computed", lambda: 7, 100) == 7


def numbers(cache: Any) -> None:
    cache.set("n", 1, 1000)
    assert cache.incr("n", 5) == 6
    assert cache.decr("n") == 5
    with pytest.raises(ValueError, match="not found"):
        cache.incr("none")
    assert cache.get("none") is None


def walks(cache: Any) -> None:
    cache.clear()


def locks(cache: Any) -> None:
    with cache.lock("job", timeout=30) as lock:
        lock.renew()
        lock.check()


def test_the_whole_rule_is_enough(cache_with: Any) -> None:
    rule = re.search(r"ACL SETUSER mysite on >password (.*)", TEXT)
    assert rule
    all_of_it(cache_with("on", ">pw", "resetchannels", *rule[1].split()))


@pytest.mark.parametrize(
    ("first", "act"),
    [("get", values), ("get_or_set", computed), ("keys", walks), ("lock", locks)],
    ids=["values", "computed", "walks", "locks"],
)
def test_each_row_is_enough(cache_with: Any, first: str, act: Any) -> None:
    act(cache_with(*BASE, *rights_of(first)))


def test_counters_with_scripts(cache_with: Any) -> None:
    numbers(cache_with(*BASE, "+set", *rights_of("incr")))


def test_counters_without_scripts(server: Server, cache_with: Any) -> None:
    row = next(line for line in TEXT.splitlines() if line.startswith("| `incr`, `decr` |"))
    plain = re.findall(r"\+[a-z]+", row.split("or without scripts")[1])
    cache = cache_with(*BASE, "+set", "+get", *plain)
    numbers(cache)
    assert 0 < server.ask("PTTL", "mysite:1:n") <= 1_000_000
    assert server.ask("EXISTS", "mysite:1:none") == 0
    server.ask("LPUSH", "mysite:1:list", "theirs")
    with pytest.raises(Exception, match="WRONGTYPE"):
        cache.incr("list")
    assert server.ask("LRANGE", "mysite:1:list", "0", "-1") == ["theirs"]


def test_what_is_missing_names_command_and_key(cache_with: Any) -> None:
    cache = cache_with(*BASE, "+get", "+set")
    with pytest.raises(NotPermitted, match=r"UNLINK mysite:1:k.*ACL SETUSER"):
        cache.delete("k")
    with pytest.raises(NotPermitted, match=r"EVALSHA mysite:1:job.*ACL SETUSER"):
        cache.lock("job", timeout=5).acquire()
    cache.key_prefix = "theirs"
    with pytest.raises(NotPermitted, match="SET theirs:1:k"):
        cache.set("k", 1)


def test_nothing_lies_outside_the_prefix(server: Server, cache_with: Any) -> None:
    cache = cache_with(*BASE, "+@all")
    locks(cache)
    held = cache.lock("held", timeout=30)
    held.acquire()
    computed(cache)
    with server.client() as admin:
        keys = admin.keys("*")
    assert any(b"lock" in key for key in keys)
    assert all(key.startswith(b"mysite:") for key in keys)
    cache.clear()
    held.check()
    held.release()
