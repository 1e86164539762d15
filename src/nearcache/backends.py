"""The names users write in ``CACHES``, with their options; nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from django.core.cache.backends.base import DEFAULT_TIMEOUT

from nearcache import _core
from nearcache.base.options import GIB, KIB, MIB, CacheOptions, one_of, option, sized, whole
from nearcache.base.per_process import once
from nearcache.base.sans_io import run
from nearcache.django_cache.adapter import Configured
from nearcache.django_cache.async_methods import AsyncMethods
from nearcache.django_cache.get_or_set_options import StampedeOptions
from nearcache.django_cache.placement import root, test_run
from nearcache.django_cache.placement.project import this_owner, this_project
from nearcache.django_cache.redis.methods import RedisMethods
from nearcache.django_cache.redis.options import RedisOptions
from nearcache.django_cache.shm_degraded import forgiving_class
from nearcache.engines import shm
from nearcache.recording.cache import RecordingCache
from nearcache.recording.options import RecordingOptions

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
        " of one location share their items, in all processes of this user on this host. A name"
        " belongs to the project: the same name in another one is another cache, and only a path"
        " is shared by projects. A project is told by the path of its settings module; a release"
        " in `releases/` is the same project as the next. Names live in"
        " `/dev/shm/nearcache-<uid>/` (elsewhere than on Linux: `$TMPDIR/nearcache-<uid>/`). In a"
        " test run see `tests`. Written beside `OPTIONS`, as Django has it.",
        shm.location,
        default="default",
    )
    size_bytes: int | None = option(
        "size",
        'Memory for everything, as a number of bytes or like `"256MB"`, from 1 MiB. It is'
        " reserved when the cache file is made. A change takes effect, and the cache starts"
        " empty, once no process uses the old file.",
        sized(MIB, 1024 * GIB),
        default=None,
        shown_default='`"256MB"`, or half of what is free there if that is less',
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
        sized(shm.LEAST_MEAN_ITEM_BYTES, 64 * KIB),
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
    on_error: str = option(
        "on_error",
        "What happens while the cache file cannot be opened (its directory is gone or read-only,"
        " `/dev/shm` is full, no more memory may be mapped). `raise`: every call raises"
        " RegionError, and a write whose shard stays locked EngineBusy. `miss`: reads miss and"
        " writes are dropped, which is counted, and logged once; it is tried again every second."
        " Numbers and locks still raise, and so does `add` where Django keeps its sessions."
        " `manage.py check` says what is wrong in both.",
        one_of("raise", "miss"),
        default="raise",
    )

    def forgives(self, _settings: Any) -> bool:
        """Whether an outage is served as misses."""
        return self.on_error == "miss"


class SharedMemoryCache(_core.FusedCache, AsyncMethods, Configured):
    """One cache shared by every process of this user on this host; no server.

    A read takes no lock. When memory is full the least useful items go. It survives
    restarts of all processes, and nothing survives a reboot.

    Key, look-up and value are one native call. What is written out below only calls its
    native namesake: Django 6.1 looks for ``__func__`` on these, which native methods lack.
    """

    options_class = SharedMemoryOptions
    options: SharedMemoryOptions

    def __new__(cls, location: Any, params: dict[str, Any]) -> Any:
        options = params.get("OPTIONS")
        forgives = isinstance(options, dict) and options.get("on_error") == "miss"
        return super().__new__(forgiving_class(cls) if forgives else cls, location, params)

    def __init__(self, location: Any, params: dict[str, Any]) -> None:
        super().__init__(location, params)
        if self.options.tests == "apart":
            test_run.watch(self)
        if self.apart:
            test_run.directory()  # now, so that what the tests start belongs to the run

    def moved(self) -> None:
        self.__dict__.pop("engine", None)
        self._reopen()

    @property
    def path(self) -> str:
        """That of its files, without their suffixes."""
        return self._home().base

    @property
    def is_of_user(self) -> bool:
        """Whether another user would get another cache."""
        return not (self.apart or os.path.isabs(self.options.location))

    def open_engine(self) -> _core.Store:
        chosen = self.options
        home = self._home(
            size_bytes=self._test_size_bytes() if self.apart else chosen.size_bytes,
            owner=tuple(this_owner().items()),
        )
        store = shm.open_store(
            home,
            max_item_bytes=chosen.max_item_bytes,
            mean_item_bytes=chosen.mean_item_bytes,
            near_items=chosen.near_items,
            near_bytes=chosen.near_bytes,
        )
        mine = object()
        first = once(("rooted", home), lambda: mine) is mine
        if first and self.is_of_user:  # not inside: it may log, see `once`
            root.warn(home.base)
        return store

    def _home(self, **more: Any) -> shm.Home:
        where = self.options.location
        if self.apart:
            return shm.Home(where, directory=test_run.directory(), **more)
        return shm.Home(where, "" if os.path.isabs(where) else this_project().name, **more)

    def _test_size_bytes(self) -> int:
        chosen = self.options
        needed = 16 * (chosen.max_item_bytes or 0)
        return min(chosen.size_bytes or GIB, max(test_run.MOST_SIZE_BYTES, needed))

    @cached_property
    def engine(self) -> _core.Store:
        return self.open_engine()

    def _touched_envelope(self, raw_key: bytes, expires_at_ms: int | None, head: bytes) -> bool:
        return run(self._settled(raw_key, expires_at_ms, head), self.engine, self.clock)

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
