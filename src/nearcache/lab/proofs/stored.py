"""How many bytes one stored item costs, asked from whoever keeps it.

The store's own measure where there is one, because it includes what the store adds:
headers, slab rounding, index. Otherwise the pickled size, and the label says so.
"""

from __future__ import annotations

import pickle
import sqlite3
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any

from nearcache.lab.base.model import Candidate
from nearcache.lab.own.guard import bare
from nearcache.lab.servers import ask


class Meter:
    """Make it before the keys are stored; ``per_item`` afterwards."""

    def __init__(self, candidate: Candidate, cache: Any, directory: Path) -> None:
        self._cache = bare(cache)
        self._candidate = candidate
        self._total = _total_reader(candidate, self._cache, directory)
        self._before = self._total[0]() if self._total else 0

    def per_item(self, keys: Sequence[str], *values: Any) -> tuple[float, str]:
        """(bytes, how they were measured). ``values``: of those stored."""
        if self._total:
            read, how = self._total
            return max(0, read() - self._before) / len(keys), how
        if self._candidate.server == "redis":
            return _redis_memory(self._cache, self._candidate, keys), "MEMORY USAGE"
        if self._candidate.settings_module and _is_redis_url(self._candidate.settings):
            with suppress(Exception):  # a user's server may not let us ask, or not from here
                return _redis_memory(self._cache, self._candidate, keys), "MEMORY USAGE"
        if hasattr(self._cache, "_cache") and isinstance(self._cache._cache, dict):
            return _process_memory(self._cache, keys), "size in process memory"
        sizes = [len(pickle.dumps(value, pickle.HIGHEST_PROTOCOL)) for value in values]
        return fmean(sizes), "pickled size"


Total = tuple[Callable[[], int], str]


def _total_reader(candidate: Candidate, cache: Any, directory: Path) -> Total | None:
    """A function that reads how much the whole store holds, where there is such a thing."""
    if candidate.server in ("memcached-unix", "memcached-tcp"):
        address = _memcached_address(candidate.settings["LOCATION"])
        return lambda: _memcached_bytes(address), "stats bytes"
    if candidate.settings_module:
        return None  # a user's own server: others write to it, a difference means nothing
    if candidate.family == "files":
        return lambda: _directory_bytes(directory), "its files and rows"
    stats: Callable[[], Any] | None = getattr(cache, "stats", None)
    if candidate.family == "shared memory" and stats is not None:
        with suppress(Exception):
            if _stats_bytes(stats()) is not None:
                return lambda: _stats_bytes(stats()) or 0, "cache.stats()"
    return None


def _stats_bytes(stats: Any) -> int | None:
    numbers = stats if isinstance(stats, dict) else vars(stats)
    for name in ("live_bytes", "used_bytes", "item_bytes", "bytes"):
        if isinstance(numbers.get(name), int):
            return int(numbers[name])
    return None


def _directory_bytes(directory: Path) -> int:
    """Files, and of databases the rows: pages are shared and stay when rows go."""
    total = 0
    for path in directory.rglob("*"):
        with suppress(OSError, sqlite3.Error):
            if path.suffix in (".db", ".sqlite3"):
                total += _row_bytes(path)
            elif path.is_file() and not path.name.endswith(("-wal", "-shm", "-journal")):
                total += path.stat().st_size
    return total


def _row_bytes(path: Path) -> int:
    """All columns of all rows, without what pages and indexes add."""
    total = 0
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
            lengths = " + ".join(f'ifnull(length(CAST("{name}" AS BLOB)), 0)' for name in columns)
            # Names come from the database's own catalogue, and are quoted.
            query = f'SELECT ifnull(sum({lengths}), 0) FROM "{table}"'  # noqa: S608
            total += int(database.execute(query).fetchone()[0])
    return total


def _memcached_address(location: str) -> str | int:
    return location.removeprefix("unix:") if "/" in location else int(location.rpartition(":")[2])


def _memcached_bytes(address: str | int) -> int:
    for line in ask(address, b"stats\r\n").split(b"\r\n"):
        if line.startswith(b"STAT bytes "):
            return int(line.split()[2])
    return 0


def _redis_memory(cache: Any, candidate: Candidate, keys: Sequence[str]) -> float:
    # A client of our own, so that the measured one sees only what is timed.
    redis: Any = import_module("redis")
    with redis.Redis.from_url(candidate.settings["LOCATION"]) as client:
        sizes = [client.memory_usage(str(cache.make_key(key)), samples=0) for key in keys]
    return sum(size or 0 for size in sizes) / len(keys)


def _is_redis_url(settings: Mapping[str, Any]) -> bool:
    location = settings.get("LOCATION")
    return isinstance(location, str) and location.startswith(("redis://", "rediss://", "unix://"))


def _process_memory(cache: Any, keys: Sequence[str]) -> float:
    raw_keys = [cache.make_key(key) for key in keys]
    sizes = [sys.getsizeof(key) + sys.getsizeof(cache._cache.get(key)) for key in raw_keys]
    return sum(sizes) / len(keys)
