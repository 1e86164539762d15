"""Backends of the test suite only: Django's contract over each engine, without the fused path."""

from __future__ import annotations

from nearcache.backends import SharedMemoryOptions
from nearcache.base.per_process import once
from nearcache.django_cache.adapter import EngineCache
from nearcache.engines.contract import Engine
from nearcache.engines.memory import MemoryEngine
from nearcache.engines.shm import Home, open_store


class MemoryCache(EngineCache):
    """EngineCache over the reference engine."""

    options_class = SharedMemoryOptions

    def open_engine(self) -> Engine:
        return once(("memory", self.options.location), lambda: MemoryEngine(max_item_bytes=1 << 20))


class PlainSharedMemoryCache(EngineCache):
    """EngineCache over the shared-memory engine: what SharedMemoryCache does natively."""

    options_class = SharedMemoryOptions
    options: SharedMemoryOptions

    def open_engine(self) -> Engine:
        chosen = self.options
        home = Home(chosen.location, size_bytes=chosen.size_bytes)
        return open_store(home, max_item_bytes=chosen.max_item_bytes)
