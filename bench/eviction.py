"""Miss ratios beside libCacheSim's policies, at as many items as the store held.

Every kind of traffic is made from a seed, and asks 40 times for each item that fits. A miss is
followed by a `set`. All goes through ``cache.get`` and ``cache.set`` of SharedMemoryCache; the
peers play the same requests with items of size 1. `crates/nearcache-core/tests/eviction/` has more
kinds, and sizes that differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearcache.backends import SharedMemoryCache
from nearcache.base.options import MIB

REQUESTS_PER_ITEM = 40
OVERHEAD_BYTES = 70  # of a key and its record, roughly: scales the traffic
PEERS = ("LRU", "S3FIFO", "ARC", "WTinyLFU")
STORES = ((4 * MIB, 100), (8 * MIB, 100), (32 * MIB, 1000))  # bytes of a store, of a value
SEED = 20

Keys = Any  # numpy.ndarray of int64: no bench but this one needs numpy


@dataclass(frozen=True, kw_only=True)
class Misses:
    """Shares of requests that were misses."""

    traffic: str
    store_bytes: int
    value_bytes: int
    items: int
    ours: float
    peers: dict[str, float]

    @property
    def above_the_best(self) -> float:
        """Beside the best of LRU, S3-FIFO and ARC."""
        return self.ours - min(self.peers[name] for name in ("LRU", "S3FIFO", "ARC"))


def rows(where: Path) -> Iterator[Misses]:
    """Plays everything, in a file of its own each time. Raises ImportError without libcachesim."""
    import libcachesim
    import numpy as np

    for store_bytes, value_bytes in STORES:
        fits = store_bytes * 3 // 4 // (value_bytes + OVERHEAD_BYTES)
        for traffic, make in TRAFFIC.items():
            keys = make(np.random.default_rng(SEED), fits, fits * REQUESTS_PER_ITEM)
            ours, items = _of_the_store(where, store_bytes, bytes(value_bytes), keys)
            yield Misses(
                traffic=traffic,
                store_bytes=store_bytes,
                value_bytes=value_bytes,
                items=items,
                ours=ours,
                peers={name: _of_a_peer(libcachesim, name, items, keys) for name in PEERS},
            )


def line(row: Misses) -> str:
    peers = "  ".join(f"{name} {ratio:.3f}" for name, ratio in row.peers.items())
    return (
        f"{row.store_bytes // MIB:>3} MiB, {row.value_bytes:>5} bytes  {row.traffic:<28}"
        f" ours {row.ours:.3f}  {peers}  ({row.above_the_best:+.3f})"
    )


def _of_the_store(where: Path, store_bytes: int, value: bytes, keys: Keys) -> tuple[float, int]:
    path = where / f"eviction-{store_bytes}-{len(value)}"
    cache = SharedMemoryCache(str(path), {"TIMEOUT": None, "OPTIONS": {"size": store_bytes}})
    cache.clear()
    get, put, misses, items = cache.get, cache.set, 0, 0
    for number, key in enumerate(keys.tolist()):
        name = f"page:{key}"
        if get(name) is None:
            misses += 1
            put(name, value)
        if number % 10_000 == 0:
            items = max(items, cache.stats()["items"])
    assert cache.check() == []
    return misses / len(keys), items


def _of_a_peer(library: Any, name: str, items: int, keys: Keys) -> float:
    peer = getattr(library, name)(cache_size=items)
    request = library.Request(obj_id=0, obj_size=1)
    misses = 0
    for key in keys.tolist():
        request.obj_id = key
        misses += not peer.get(request)
    return misses / len(keys)


# -- traffic: (random generator, items that fit, requests) -> keys ------------------------------


def _ranks(rng: Any, ranks: int, exponent: float, n: int) -> Keys:
    import numpy as np

    weights = np.arange(1, ranks + 1, dtype=float) ** -exponent
    return np.searchsorted(np.cumsum(weights) / weights.sum(), rng.random(n)).clip(0, ranks - 1)


def _steady(rng: Any, fits: int, n: int) -> Keys:
    return _ranks(rng, 4 * fits, 0.8, n)


def _scans(rng: Any, fits: int, n: int) -> Keys:
    """In a fifth of the time somebody reads half as many pages as fit, one after the other."""
    import numpy as np

    keys, run = _ranks(rng, 10 * fits, 0.9, n), fits // 2
    for number, start in enumerate(range(4 * run, n - run, 5 * run)):
        first = (10 + number) * fits
        keys[start : start + run] = np.arange(first, first + run)
    return keys


def _shifts(rng: Any, fits: int, n: int) -> Keys:
    import numpy as np

    parts = np.array_split(_ranks(rng, 2 * fits, 1.0, n), 6)
    return np.concatenate([rng.permutation(2 * fits)[part] for part in parts])


def _drift(rng: Any, fits: int, n: int) -> Keys:
    import numpy as np

    return _ranks(rng, 4 * fits, 1.0, n) + np.arange(n) // 20


def _loop(_: Any, fits: int, n: int) -> Keys:
    import numpy as np

    return np.arange(n) % (fits * 13 // 10)


def _sessions(rng: Any, fits: int, n: int) -> Keys:
    """Half as many users as fit, each for ten requests on the average."""
    import numpy as np

    users, place = fits // 2, rng.integers(0, fits // 2, n)
    leaves = rng.random(n) < 0.1
    here, keys, new = np.arange(users), np.empty(n, dtype=np.int64), users
    for number in range(n):
        keys[number] = here[place[number]]
        if leaves[number]:
            here[place[number]], new = new, new + 1
    return keys


def _news(rng: Any, fits: int, n: int) -> Keys:
    """An article for each 50 requests, asked for the more the newer it is."""
    import numpy as np

    return 6 * fits + np.arange(n) // 50 - _ranks(rng, 6 * fits, 1.0, n)


TRAFFIC: dict[str, Callable[[Any, int, int], Keys]] = {
    "Zipf 0.8, 4 times as many": _steady,
    "Zipf 0.9, a fifth scans": _scans,
    "shifts, six times": _shifts,
    "drift": _drift,
    "loop of 1.3 times the size": _loop,
    "sessions": _sessions,
    "news": _news,
}
