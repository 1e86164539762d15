"""The names users write in ``CACHES``, with their options; nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nearcache.adapter import EngineCache
from nearcache.engine import Engine
from nearcache.engines.shm import base_path, open_store
from nearcache.options import GIB, MIB, CacheOptions, option, sized

__all__ = ["SharedMemoryCache", "SharedMemoryOptions"]


@dataclass(frozen=True, kw_only=True)
class SharedMemoryOptions(CacheOptions):
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
        " reserved when the cache file is made; a file that exists keeps its size.",
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


class SharedMemoryCache(EngineCache):
    """One cache shared by every process of this user on this host; no server.

    A read takes no lock. When memory is full the least useful items go. It survives
    restarts of all processes, and nothing survives a reboot.
    """

    options_class = SharedMemoryOptions
    options: SharedMemoryOptions

    def open_engine(self) -> Engine:
        chosen = self.options
        return open_store(chosen.location, chosen.size_bytes, chosen.max_item_bytes)
