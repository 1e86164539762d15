"""How many bytes one stored item costs, asked from whoever keeps it.

The store's own measure where there is one, because it includes what the store adds:
headers, slab rounding, index. Otherwise the pickled size, and the label says so.
"""

from __future__ import annotations

import pickle
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from nearcache.lab.model import Candidate
from nearcache.lab.servers import ask


class Meter:
    """Make it before the keys are stored; ``per_item`` afterwards."""

    def __init__(self, candidate: Candidate, cache: Any, directory: Path) -> None:
        self._cache = cache
        self._candidate = candidate
        self._total = _total_reader(candidate, cache, directory)
        self._before = self._total[0]() if self._total else 0

    def per_item(self, keys: Sequence[str], sample: Any) -> tuple[float, str]:
        """(bytes, how they were measured). ``sample`` is one of the stored values."""
        if self._total:
            read, how = self._total
            return max(0, read() - self._before) / len(keys), how
        if self._candidate.server == "redis":
            return _redis_memory(self._cache, self._candidate, keys), "MEMORY USAGE"
        if hasattr(self._cache, "_cache") and isinstance(self._cache._cache, dict):
            return _process_memory(self._cache, keys), "size in process memory"
        return float(len(pickle.dumps(sample, pickle.HIGHEST_PROTOCOL))), "pickled size"


Total = tuple[Callable[[], int], str]


def _total_reader(candidate: Candidate, cache: Any, directory: Path) -> Total | None:
    """A function that reads how much the whole store holds, where there is such a thing."""
    if candidate.server in ("memcached-unix", "memcached-tcp"):
        address = _memcached_address(candidate.settings["LOCATION"])
        return lambda: _memcached_bytes(address), "stats bytes"
    if candidate.settings_module:
        return None  # a user's own server: others write to it, a difference means nothing
    if candidate.family == "files":
        return lambda: _directory_bytes(directory), "size of its files"
    stats: Callable[[], Any] | None = getattr(cache, "stats", None)
    if candidate.family == "shared memory" and stats is not None:
        with suppress(Exception):
            if _stats_bytes(stats()) is not None:
                return lambda: _stats_bytes(stats()) or 0, "cache.stats()"
    return None


def _stats_bytes(stats: Any) -> int | None:
    get = stats.get if isinstance(stats, dict) else lambda name: getattr(stats, name, None)
    for name in ("live_bytes", "used_bytes", "item_bytes", "bytes"):
        value = get(name)
        if isinstance(value, int):
            return value
    return None


def _directory_bytes(directory: Path) -> int:
    """Files, and of databases the pages in use: deleted rows leave pages behind."""
    total = 0
    for path in directory.rglob("*"):
        with suppress(OSError, sqlite3.Error):
            if path.suffix in (".db", ".sqlite3"):
                total += _pages_in_use_bytes(path)
            elif path.is_file() and not path.name.endswith(("-wal", "-shm", "-journal")):
                total += path.stat().st_size
    return total


def _pages_in_use_bytes(path: Path) -> int:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        pages, free, size = (
            database.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
    return int((pages - free) * size)


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


def _process_memory(cache: Any, keys: Sequence[str]) -> float:
    raw_keys = [cache.make_key(key) for key in keys]
    sizes = [sys.getsizeof(key) + sys.getsizeof(cache._cache.get(key)) for key in raw_keys]
    return sum(sizes) / len(keys)
