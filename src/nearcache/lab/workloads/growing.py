"""G: the list of the articles, that every read makes longer. Kept to show what is wrong with it.

Articles 000 and 003 read one key, appended how long that took, and wrote it back, from
several threads at once. Nothing locks, so of two writers one loses. Who is slow loses
more, and then reads a shorter list: the value under test is an outcome of the test, each
configuration has another, and its numbers cannot be compared. They are counted here and
never ranked.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import Any

WRITERS = 4
HITS = 25  # of each writer
TIMEOUT_S = 100  # the article's


@dataclass(frozen=True)
class Grown:
    """What came of one run of the articles' view."""

    attempted: int
    kept: int  # entries of the list at its end
    read_ns: float  # median

    @property
    def lost(self) -> int:
        return self.attempted - self.kept


def grow(open_cache: Callable[[], Any], key: str) -> Grown:
    """Hit the articles' view from all writers at once. Raises what a cache raises."""
    with ThreadPoolExecutor(WRITERS) as pool:
        runs = [pool.submit(_hits, open_cache, key) for _ in range(WRITERS)]
        reads_ns = [ns for run in runs for ns in run.result()]
    cache = open_cache()
    kept = len(cache.get(key))
    return Grown(WRITERS * HITS, kept, median(reads_ns))


def _hits(open_cache: Callable[[], Any], key: str) -> list[int]:
    cache = open_cache()
    return [_hit(cache, key) for _ in range(HITS)]


def _hit(cache: Any, key: str) -> int:
    start = time.perf_counter_ns()
    times = cache.get(key, [])
    took_ns = time.perf_counter_ns() - start
    times.append(took_ns / 1e9)
    cache.set(key, times, TIMEOUT_S)
    return took_ns
