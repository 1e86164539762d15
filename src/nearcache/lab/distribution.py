"""A histogram as what it holds: values in order, and how often each was seen.

HdrHistogram answers each question by walking through all its buckets, forty thousand for
the range of the lab. A report asks thousands of questions, so it takes the few buckets
with something in them out once.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
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
        starts = _starts_of(histogram)
        first = max(0, bisect_right(starts, least) - 1)
        end = bisect_right(starts, greatest)
        seen = [(i, count) for i, count in enumerate(histogram.counts[first:end], first) if count]
        # A bucket answers with its upper edge, which may lie above all that was seen.
        values = [min(starts[i + 1] - 1, greatest) for i, _ in seen]
        return cls(values, list(accumulate(count for _, count in seen)))

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


@cache
def _starts(size: int, digits: int) -> list[int]:
    """Where each bucket begins. All histograms of one shape have the same."""
    from hdrh.histogram import HdrHistogram

    histogram = HdrHistogram(1, size, digits)
    return [histogram.get_value_from_index(i) for i in range(histogram.counts_len + 1)]


def _starts_of(histogram: Any) -> list[int]:
    return _starts(histogram.highest_trackable_value, histogram.significant_figures)
