"""The names users write in ``CACHES``, with their options; nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from django.core.cache.backends.base import DEFAULT_TIMEOUT

from nearcache import _core
from nearcache.adapter import Configured
from nearcache.codec.envelope import HEADER as ENVELOPE
from nearcache.engines.shm import base_path, open_store
from nearcache.flows import run
from nearcache.options import GIB, KIB, MIB, CacheOptions, option, sized, whole
from nearcache.recording.cache import RecordingCache
from nearcache.recording.options import RecordingOptions
from nearcache.redis_cache import RedisMethods
from nearcache.redis_options import RedisOptions
from nearcache.stampede_options import StampedeOptions
from nearcache.twins import AsyncTwins

__all__ = [
    "RecordingCache",
    "RecordingOptions",
    "RedisCache",
    "RedisOptions",
    "SharedMemoryCache",
    "SharedMemoryOptions",
]


@dataclass(frozen=True, kw_only=True)
class SharedMemoryOptions(StampedeOptions, CacheOptions):
    """``LOCATION`` and ``OPTIONS`` of :class:`SharedMemoryCache`."""

    backend: ClassVar[str] = "SharedMemoryCache"

    location: str = option(
        "LOCATION",
        "A name, or an absolute path to which `.v<layout>.seg` and `.lock` are added. Caches"
        " of one location share their items, in all processes of this user on this host."
        " Names live in `/dev/shm/nearcache-<uid>/` (elsewhere than on Linux:"
        " `$TMPDIR/nearcache-<uid>/`). Written beside `OPTIONS`, as Django has it.",
        base_path,
        default="default",
    )
    size_bytes: int | None = option(
        "size",
        'Memory for everything, as a number of bytes or like `"256MB"`, from 1 MiB. It is'
        " reserved when the cache file is made. A change takes effect, and the cache starts"
        " empty, once no process uses the old file.",
        sized(MIB, 1024 * GIB),
        default=None,
        shown_default='`"256MB"`, or half of the file system if that is less',
    )
    max_item_bytes: int | None = option(
        "max_item",
        "The largest key and value together. What is larger is not stored, and counted as refused.",
        sized(64, GIB),
        default=None,
        shown_default="what `size` allows",
    )
    mean_item_bytes: int | None = option(
        "mean_item",
        "What an item takes on average (key, value and 32 bytes), to make the index for. Lower"
        " it for many tiny values: the index takes more of `size` then.",
        sized(64, 64 * KIB),
        default=None,
        shown_default="256 bytes",
    )
    near_items: int = option(
        "near_items",
        "How many decoded objects each process keeps beside the cache, of those that nobody can"
        " change. They are checked against the cache at each use, so they are never stale."
        " 0: none.",
        whole(0),
        default=4096,
    )
    near_bytes: int = option(
        "near_size",
        "About how much memory these objects may take in each process.",
        sized(0, 64 * GIB),
        default=16 * MIB,
        shown_default='`"16MB"`',
    )


class SharedMemoryCache(_core.FusedCache, AsyncTwins, Configured):
    """One cache shared by every process of this user on this host; no server.

    A read takes no lock. When memory is full the least useful items go. It survives
    restarts of all processes, and nothing survives a reboot.

    Key, look-up and value are one native call. What is written out below only calls its
    native namesake: Django 6.1 looks for ``__func__`` on these, which native methods lack.
    """

    options_class = SharedMemoryOptions
    options: SharedMemoryOptions

    def open_engine(self) -> _core.Store:
        chosen = self.options
        return open_store(
            chosen.location,
            chosen.size_bytes,
            max_item_bytes=chosen.max_item_bytes,
            mean_item_bytes=chosen.mean_item_bytes,
            near_items=chosen.near_items,
            near_bytes=chosen.near_bytes,
        )

    @cached_property
    def engine(self) -> _core.Store:
        return self.open_engine()

    def touch(self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        head = self.engine.head(self._raw_key(key, version), 1)
        if not head or head[0] != ENVELOPE:
            return _core.FusedCache.touch(self, key, timeout, version)
        # The native one moves a deadline, and knows no grace behind it.
        return run(self._touch(key, timeout, version), self.engine, self.clock)

    def get_many(self, keys: Iterable[Any], version: int | None = None) -> dict[Any, Any]:
        return _core.FusedCache.get_many(self, keys, version)

    def set_many(
        self, data: Mapping[Any, Any], timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> list[Any]:
        return _core.FusedCache.set_many(self, data, timeout, version)

    def delete_many(self, keys: Iterable[Any], version: int | None = None) -> None:
        _core.FusedCache.delete_many(self, keys, version)

    def has_key(self, key: Any, version: int | None = None) -> bool:
        return _core.FusedCache.has_key(self, key, version)

    def incr(self, key: Any, delta: Any = 1, version: int | None = None) -> Any:
        return _core.FusedCache.incr(self, key, delta, version)


class RedisCache(RedisMethods):
    """One cache for all hosts, in Redis or Valkey: one server, replicas, Sentinels or a Cluster.

    All threads, greenlets and tasks of a process share one connection per server. It takes the
    settings of Django's own RedisCache and of django-redis: changing ``BACKEND`` is enough.
    """

    options_class = RedisOptions
