"""How much a cache of the user's takes before it throws out what is in it.

A cache that is full makes room by its own rule, and what goes is the user's. So the lab asks
before each visit, and a visit that might not fit is not made.

    files, database    MAX_ENTRIES less what is there: beyond it they drop a third
    DiskCache          its size limit, of the fullest shard
    Redis, Valkey      maxmemory less used_memory, of the fullest server; none without a limit
    Memcached          memory that no slab has taken yet: one that has run for long is full
    shared memory      is not asked: every write ages what is there, so it is measured in a
                       store of the run's own (alias.py)
    process memory     is not asked: it is this process's own
    others             do not say; the proof tells so

Others write meanwhile, so half of what is free is left to them.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from nearcache.base.options import human_bytes
from nearcache.errors import LabError
from nearcache.lab.own.guard import bare

LEFT = 2  # of what is free, one part of so many may be used
ITEM_BYTES = 500  # what a store adds to a value, at most
ANSWER_TIMEOUT_S = 5.0


class NoRoom(LabError):
    """What this visit writes might push out entries of the user's. Nothing was written."""


@dataclass(frozen=True)
class Room:
    entries: float = math.inf
    bytes: float = math.inf


def demand_room(cache: Any, entries: int, size: int) -> None:
    """For so many entries of so many bytes in all. Raises NoRoom."""
    room = room_of(bare(cache))
    if room is None:
        return
    if LEFT * entries > room.entries:
        raise NoRoom(
            f"it has room for {room.entries:,.0f} more entries before it drops old ones, and this "
            f"writes {entries}: raise MAX_ENTRIES, or leave this alias out (--alias)"
        )
    needed = size + ITEM_BYTES * entries
    if LEFT * needed > room.bytes:
        raise NoRoom(
            f"it has {human_bytes(round(room.bytes))} free before it drops what is in it, and "
            f"this writes {human_bytes(needed)}: take smaller payloads, or leave this alias out "
            "(--alias)"
        )


def room_of(cache: Any) -> Room | None:
    """What is free in this backend; None if it does not say."""
    for name in (base.__name__ for base in type(cache).__mro__):
        if name in READERS:
            return READERS[name](cache)
    return None


def free_entries(cache: Any) -> float:
    """Entries that may come before it culls, of those that cull by number; others have no end."""
    for name in (base.__name__ for base in type(cache).__mro__):
        if name in COUNTERS:
            return float(cache._max_entries - COUNTERS[name](cache))
    return math.inf


def _rows(cache: Any) -> int:
    from django.db import connections, router

    connection = connections[router.db_for_write(cache.cache_model_class)]
    with connection.cursor() as cursor:
        table = connection.ops.quote_name(cache._table)
        cursor.execute(f"SELECT COUNT(*) FROM {table}")  # noqa: S608 - the alias's own table
        return int(cursor.fetchone()[0])


COUNTERS: dict[str, Callable[[Any], int]] = {
    "LocMemCache": lambda cache: len(cache._cache),
    "FileBasedCache": lambda cache: len(cache._list_cache_files()),
    "DatabaseCache": _rows,
}


def _by_entries(cache: Any) -> Room:
    return Room(entries=max(0.0, free_entries(cache)))


def _unasked(_: Any) -> Room:
    return Room()


def _diskcache(cache: Any) -> Room:
    shards = cache._cache._shards
    if cache._cache.eviction_policy == "none":
        return Room()
    return Room(bytes=max(0, min(shard.size_limit - shard.volume() for shard in shards)))


def _redis(cache: Any) -> Room | None:
    try:
        return Room(bytes=min(map(_free_in_redis, _redis_infos(cache))))
    except Exception:  # noqa: BLE001 - the user may not be allowed to ask; the proof tells so
        return None


def _redis_infos(cache: Any) -> list[dict[str, Any]]:
    """INFO of every server that values go to."""
    client = getattr(cache, "client", None) or cache._cache  # ours and django-redis, or Django's
    if hasattr(client, "get_client"):
        client = client.get_client(write=True)
    found = client.info("memory")
    return [found] if "maxmemory" in found else list(found.values())  # of a cluster: by node


def _free_in_redis(info: dict[str, Any]) -> float:
    most = info["maxmemory"]
    return max(0, most - info["used_memory"]) if most else math.inf


def _memcached(cache: Any) -> Room | None:
    try:
        return Room(bytes=min(map(_free_in_memcached, cache._servers)))
    except OSError:
        return None


def _free_in_memcached(server: str) -> float:
    """The memory that no slab has taken: until then nobody is evicted."""
    with closing(_connected(server)) as connection, connection.makefile("rwb") as file:
        numbers = dict(_stats(file, b"stats\r\n")) | dict(_stats(file, b"stats slabs\r\n"))
    return max(0.0, float(numbers["limit_maxbytes"]) - float(numbers.get("total_malloced", 0)))


def _stats(file: Any, question: bytes) -> Iterator[tuple[str, str]]:
    file.write(question)
    file.flush()
    for line in iter(file.readline, b""):
        words = line.decode().split(maxsplit=2)
        if words[0] != "STAT":
            return
        yield words[1], words[-1]


def _connected(server: str | tuple[str, int]) -> socket.socket:
    """As the memcached backends of Django write them: host:port, or a path."""
    if isinstance(server, str) and "/" in server:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(ANSWER_TIMEOUT_S)
        connection.connect(server.removeprefix("unix:"))
        return connection
    host, _, port = (
        server.rpartition(":") if isinstance(server, str) else (server[0], "", server[1])
    )
    return socket.create_connection((host or "127.0.0.1", int(port)), ANSWER_TIMEOUT_S)


READERS: dict[str, Callable[[Any], Room | None]] = {
    "DjangoCache": _diskcache,
    "FileBasedCache": _by_entries,
    "DatabaseCache": _by_entries,
    "LocMemCache": _unasked,
    "DummyCache": _unasked,
    "SharedMemoryCache": _unasked,
    "RedisCache": _redis,
    "BaseMemcachedCache": _memcached,
}
