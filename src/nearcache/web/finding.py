"""What the page may say of its reads in one sentence: a winner only where there is one.

Each cache's median has a 95 % interval of its order statistics, which needs no assumption about
how times are spread. A cache is the fastest if its interval ends below where every other one
begins, with Bonferroni's correction for as many as are compared, and if the medians differ by
more than the lab calls a difference. Reads are no rounds: under one load they are not independent,
so an interval here is the least doubt there is. ``lab run`` measures it properly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from nearcache.lab.statistics.stats import ALPHA, LEAST_FLOOR

LEAST_READS = 100  # of a cache, before a sentence names it


@dataclass(frozen=True)
class Timed:
    """The reads of one alias: (ns, how often), rising."""

    alias: str
    counts: Sequence[tuple[float, int]]

    @property
    def reads(self) -> int:
        return sum(count for _, count in self.counts)

    def at(self, place: int) -> float:
        """The time of the read at this place, from 1, in order of time."""
        seen = 0
        for ns, count in self.counts:
            seen += count
            if seen >= place:
                return ns
        return self.counts[-1][0]

    def interval(self, compared: int) -> tuple[float, float]:
        """Of the median, wide enough for ``compared`` of them to hold at once."""
        n = self.reads
        reach = NormalDist().inv_cdf(1 - ALPHA / (2 * compared)) * math.sqrt(n) / 2
        low, high = math.floor(n / 2 - reach), math.ceil(n / 2 + reach) + 1
        return self.at(max(1, low)), self.at(min(n, high))


@dataclass(frozen=True)
class Ranked:
    """The shortest medians first, and who cannot be told apart from the first, it included."""

    ordered: Sequence[tuple[float, str]]
    fastest: Sequence[str]


def rank(timed: Sequence[Timed]) -> Ranked:
    """At least two, each with reads enough."""
    by_median = sorted(timed, key=lambda each: (each.at(math.ceil(each.reads / 2)), each.alias))
    medians = [each.at(math.ceil(each.reads / 2)) for each in by_median]
    _, end = by_median[0].interval(len(timed))
    fastest = [
        each.alias
        for each, median in zip(by_median, medians, strict=True)
        if each.interval(len(timed))[0] <= end or math.log(median / medians[0]) <= LEAST_FLOOR
    ]
    return Ranked(list(zip(medians, (each.alias for each in by_median), strict=True)), fastest)
