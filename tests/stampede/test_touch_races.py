"""``touch`` while another process stores: what came later keeps the deadline it was stored with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nearcache.backends import RedisCache, SharedMemoryCache
from tests.redis.servers import Server


class Between:
    """An engine where somebody stores right behind a look at the value."""

    def __init__(self, engine: Any, store: Callable[[], object]) -> None:
        self._engine, self._store = engine, store

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._engine, name)
        if name not in {"head", "touch_head"}:
            return method

        def looked(*args: Any) -> Any:
            found = method(*args)
            self._store()
            return found

        return looked


def kept(cache: Any) -> bool:
    """Whether the value has the deadline of an hour, and not the touch's."""
    return bool(cache.pttl("k") > 3_000_000)


def test_a_value_stored_over_an_envelope_keeps_its_deadline_over_shared_memory(
    private_path: Path,
) -> None:
    settings = {"OPTIONS": {"size": "2MB"}}
    other = SharedMemoryCache(str(private_path / "c"), settings)

    class Overtaken(SharedMemoryCache):
        def _touched_envelope(self, *args: Any) -> bool:
            other.set("k", "new", 3600)
            return super()._touched_envelope(*args)

    cache = Overtaken(str(private_path / "c"), settings)
    cache.get_or_set("k", lambda: "old", 10, stale=60)
    assert cache.touch("k", 5)
    assert other.get("k") == "new"
    assert kept(other)


def test_a_value_stored_over_a_stale_one_keeps_its_deadline(make: Any, clock: Any) -> None:
    cache, other = make(), make()
    cache.get_or_set("k", lambda: "old", 10, stale=60)
    clock.sleep(11)
    type(cache).store = Between(other.engine, lambda: other.store._engine.set(*new))
    new = (other._raw_key("k", None), other.codec.encode("new"), clock.now_ms() + 3_600_000)
    assert not cache.touch("k", 5), "it was stale"
    assert kept(other)


def test_a_value_stored_over_one_in_an_envelope_keeps_its_deadline(
    redis_server: Server,
) -> None:
    url = f"unix://{redis_server.path}?db=0"
    cache, other = RedisCache(url, {}), RedisCache(url, {})
    cache.get_or_set("k", lambda: "old", 10, stale=60)
    cache.engine = Between(cache.engine, lambda: other.set("k", "new", 3600))
    assert cache.touch("k", 5)
    assert kept(other)


def test_redis_reads_the_head_behind_the_move(redis_server: Server) -> None:
    """An envelope that came before the move is seen: its own deadline is moved as well."""
    cache = RedisCache(f"unix://{redis_server.path}?db=0", {})
    cache.set("k", "v", 10)
    with redis_server.client() as client, client.monitor() as monitor:
        assert cache.touch("k", 5)
        seen: list[str] = []
        while len(seen) < 4:
            seen.append(monitor.next_command()["command"].split()[0])
    assert seen[-2:] == ["PEXPIRE", "GETRANGE"]
