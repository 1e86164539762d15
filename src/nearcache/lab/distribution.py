"""A histogram as what it holds: values in order, and how often each was seen.

HdrHistogram answers each question by walking through all its buckets, forty thousand for
the range of the lab. A report asks thousands of questions, so it takes the few buckets
with something in them out once.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any


@dataclass(frozen=True)
class Distribution:
    """``values`` rise; ``totals[i]`` samples are at most ``values[i]``."""

    values: Sequence[int]
    totals: Sequence[int]

    @classmethod
    def of(cls, histogram: Any, least: int, greatest: int) -> Distribution:
        """What is recorded in an HdrHistogram. The ends are exact, the rest to three digits."""
        last = histogram.counts_len - 1
        start = bisect_left(range(last), least, key=histogram.get_value_from_index)
        start = max(0, start - 1)  # the bucket that begins at or below the least
        end = bisect_left(range(last), greatest + 1, key=histogram.get_value_from_index)
        seen = [
            (index, count)
            for index, count in enumerate(histogram.counts[start:end], start)
            if count
        ]
        edges = [
            histogram.get_highest_equivalent_value(histogram.get_value_from_index(index))
            for index, _ in seen
        ]
        # A bucket answers with its upper edge, which may lie above all that was seen.
        return cls(
            [min(edge, greatest) for edge in edges], list(accumulate(count for _, count in seen))
        )

    @property
    def count(self) -> int:
        return self.totals[-1] if self.totals else 0

    def percentile(self, rank: float) -> float:
        """The smallest value that ``rank`` percent of the samples do not exceed."""
        wanted = max(1, math.ceil(self.count * rank / 100 - 1e-9))
        return float(self.values[bisect_left(self.totals, wanted)])

    def shares(self, edges: Sequence[float]) -> list[float]:
        """Which part of the samples lies in each of the bins between ``edges``."""
        below = [self._up_to(edge) for edge in edges]
        return [(b - a) / self.count for a, b in pairwise(below)]

    def _up_to(self, edge: float) -> int:
        place = bisect_left(self.values, edge)
        return self.totals[place - 1] if place else 0
