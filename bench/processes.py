"""Rows that need several processes: scaling, and hit ratio under one memory budget."""

from __future__ import annotations

import os
import pickle
import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

from bench.peers import SMALL, shared_memory

READ_SECONDS = 0.5
SCALING_ROUNDS = 9
KEYS = 200_000
REQUESTS_PER_WORKER = 300_000
WORKERS = 4
BUDGET_BYTES = 64 << 20
VALUE_BYTES = 1000


def in_children(works: Sequence[Callable[[], Any]], cores: Sequence[int]) -> list[Any]:
    """Runs each work in a forked child pinned to a core; what they returned."""
    pipes = []
    for number, work in enumerate(works):
        read_end, write_end = os.pipe()
        if os.fork() == 0:
            os.close(read_end)
            os.sched_setaffinity(0, {cores[number % len(cores)]})
            with os.fdopen(write_end, "wb") as pipe:
                pickle.dump(work(), pipe)
            os._exit(0)
        os.close(write_end)
        pipes.append(read_end)
    results = []
    for read_end in pipes:
        with os.fdopen(read_end, "rb") as pipe:
            results.append(pickle.load(pipe))
    for _ in works:
        os.wait()
    return results


@dataclass(frozen=True)
class Scaling:
    """Throughput of two processes over that of one."""

    ours: float
    bare_loop: float
    """The same for a loop that touches nothing shared: what this machine can give."""


def scaling(cache: Any, cores: Sequence[int]) -> Scaling:
    """Reads 10,000 keys in one process, then in two, each on a core of its own."""
    names = [f"read{number}" for number in range(10_000)]
    cache.set_many(dict.fromkeys(names, SMALL))

    def reads() -> int:
        return _loops(lambda: [cache.get(name) for name in names])

    def bare() -> int:
        return _loops(lambda: [len(name) for name in names])

    def ratio(work: Callable[[], int]) -> float:
        alone, together = [], []
        for _ in range(SCALING_ROUNDS):
            alone += in_children([work], cores)
            together.append(sum(in_children([work, work], cores)))
        return float(median(together) / median(alone))

    return Scaling(ours=ratio(reads), bare_loop=ratio(bare))


def _loops(work: Callable[[], object]) -> int:
    work()
    end = time.perf_counter() + READ_SECONDS
    loops = 0
    while time.perf_counter() < end:
        work()
        loops += 1
    return loops


@dataclass(frozen=True)
class HitRatios:
    """Hits by requests, of the same load and the same memory."""

    shared: float
    separate: float
    entries_each: int
    """What LocMemCache may hold in a worker's share of the budget."""


def hit_ratios(where: Path, cores: Sequence[int]) -> HitRatios:
    """Four workers with 64 MB together: one shared cache, or four LocMemCaches."""
    from django.core.cache.backends.locmem import LocMemCache
    from django.utils.module_loading import import_string

    config = shared_memory(where / "hits", str(BUDGET_BYTES))
    shared = import_string(config.pop("BACKEND"))(config.pop("LOCATION"), config)
    shared.set("open", 1)
    entries = BUDGET_BYTES // WORKERS // _locmem_entry_bytes()

    def worker(number: int, cache: Any) -> Callable[[], float]:
        return lambda: _zipf_hit_ratio(cache, seed=number)

    def local(number: int) -> Any:
        return LocMemCache(f"worker{number}", {"OPTIONS": {"MAX_ENTRIES": entries}})

    workers = range(WORKERS)
    together = in_children([worker(number, shared) for number in workers], cores)
    apart = in_children([worker(number, local(number)) for number in workers], cores)
    return HitRatios(sum(together) / WORKERS, sum(apart) / WORKERS, entries)


def _zipf_hit_ratio(cache: Any, seed: int) -> float:
    """Looks keys up by Zipf's law (exponent 1) and fills what is missing."""
    weights = list(accumulate(1 / rank for rank in range(1, KEYS + 1)))
    keys = random.Random(seed).choices(range(KEYS), cum_weights=weights, k=REQUESTS_PER_WORKER)
    hits = 0
    for key in keys:
        value = cache.get(f"page{key}")
        if value is None:
            cache.set(f"page{key}", b"%08d" % key + bytes(VALUE_BYTES - 8))
        else:
            assert value[:8] == b"%08d" % key
            hits += 1
    return hits / REQUESTS_PER_WORKER


def _locmem_entry_bytes() -> int:
    """What LocMemCache takes for one of these items, as the allocator counts it."""
    from django.core.cache.backends.locmem import LocMemCache

    cache, items = LocMemCache("measured", {"OPTIONS": {"MAX_ENTRIES": 10_000_000}}), 20_000
    tracemalloc.start()
    for key in range(items):
        cache.set(f"page{key}", b"%08d" % key + bytes(VALUE_BYTES - 8))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    cache.clear()
    sys.stdout.flush()  # or the children print it again
    return taken // items
