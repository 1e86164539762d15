"""Sums over a stream of any length in bounded memory: quantiles, and what occurs most.

:class:`Spread` counts values in buckets 5 % wide, so its quantiles are within 2.5 %.
:class:`Heavy` keeps the largest of a sum per name and forgets the smallest when there are too
many; a forgotten amount is bounded and shown as ``unsure``.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Generic, TypeVar

STEP = math.log(1.05)
SMALLEST = 0.001  # closer to zero is zero

Name = TypeVar("Name")


@dataclass
class Spread:
    """How values are spread; they may be negative."""

    count: int = 0
    least: float = math.inf
    most: float = -math.inf
    _buckets: Counter[int] = field(default_factory=Counter)

    def add(self, value: float) -> None:
        self.count += 1
        self.least, self.most = min(self.least, value), max(self.most, value)
        self._buckets[_bucket(value)] += 1

    def quantile(self, share: float) -> float | None:
        """None if there is no value."""
        if not self.count:
            return None
        rank, seen = share * (self.count - 1), 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen > rank:
                return min(self.most, max(self.least, _middle(bucket)))
        return self.most

    def quantiles(self) -> dict[str, float | None]:
        shares = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99}
        ends = {"min": self.least, "max": self.most} if self.count else {"min": None, "max": None}
        return {name: self.quantile(share) for name, share in shares.items()} | ends


def _bucket(value: float) -> int:
    size = abs(value)
    if size < SMALLEST:
        return 0
    place = 1 + int(math.log(size / SMALLEST) / STEP)
    return place if value > 0 else -place


def _middle(bucket: int) -> float:
    if bucket == 0:
        return 0.0
    size = SMALLEST * math.exp((abs(bucket) - 0.5) * STEP)
    return size if bucket > 0 else -size


@dataclass
class Heavy(Generic[Name]):
    """The names with the largest sums. Source: Manku and Motwani, "Lossy Counting" (VLDB 2002)."""

    keeps: int = 2000
    unsure: int = 0  # a sum may be too small by this much
    sums: Counter[Name] = field(default_factory=Counter)

    def add(self, name: Name, amount: int = 1) -> None:
        self.sums[name] += amount
        if len(self.sums) > 2 * self.keeps:
            kept = self.sums.most_common(self.keeps + 1)
            self.unsure += kept.pop()[1]
            self.sums = Counter(dict(kept))

    def top(self, count: int) -> list[tuple[Name, int]]:
        return self.sums.most_common(count)
