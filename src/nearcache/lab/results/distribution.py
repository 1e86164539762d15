"""A histogram as a report asks it: values in order, and how often each was seen."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from nearcache.lab.results.histogram import Histogram, starts


@dataclass(frozen=True)
class Distribution:
    """``values`` rise; ``totals[i]`` samples are at most ``values[i]``."""

    values: Sequence[int]
    totals: Sequence[int]

    @classmethod
    def of(cls, histogram: Histogram, greatest: int) -> Distribution:
        """What a histogram holds, to three digits; the greatest of all is known exactly."""
        edges = starts()
        seen = sorted(histogram.counts.items())
        # A bucket answers with its upper edge, which may lie above all that was seen.
        values = [min(edges[i + 1] - 1, greatest) for i, _ in seen]
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
