"""Upstream time that a cache saved: for every answer it gave, what a fetch of that kind takes.

An answer from the cache is worth the median of the fetches (MISS, EXPIRED) of its URL
group. A group that was never fetched in this log borrows the median of its location, or of
the whole log; how much is borrowed is told. The median and not the mean: a single timeout
of a minute must not be paid out for every hit.

How certain: a bootstrap over the fetches, computed and not simulated in its inner step. The
median of n draws with replacement is the u-quantile of what was observed, where u has the
distribution Beta((n + 1) / 2, (n + 1) / 2) (Efron 1979; Davison and Hinkley, Bootstrap
Methods, 1997, 2.5). Groups are drawn independently and summed; the interval is 95 %. The
seed is fixed: the same log gives the same digits. Times come in buckets of 1/32, so half a
bucket is added at each end. It covers chance only: not that a fetch may be slower when
all are fetched.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nearcache._core import NginxResult, NginxTally

SERVED = ("HIT", "STALE", "UPDATING")
"""Answers that nobody waited for. REVALIDATED asked upstream, and saved bytes only."""
DRAWS = 400
MOST_DRAWN = 250  # of groups, those that saved most; the others count as their middle
TAIL = 0.025
HALF_A_BUCKET = 1 / 64
FEW = 5  # fetches: a median of fewer says little


@dataclass(frozen=True)
class Saved:
    """Seconds of upstream time, with the 95 % interval."""

    seconds: float
    low_s: float
    high_s: float


class Fetches:
    """The times of fetches, as a histogram: ascending (microseconds, how many)."""

    def __init__(self, histogram: Sequence[tuple[int, int]]) -> None:
        self.seconds = [us / 1e6 for us, _ in histogram]
        self._up_to = list(accumulate(many for _, many in histogram))

    @property
    def count(self) -> int:
        return self._up_to[-1] if self._up_to else 0

    def quantile(self, share: float) -> float:
        place = bisect_left(self._up_to, share * self.count)
        return self.seconds[min(place, len(self.seconds) - 1)]

    @property
    def median(self) -> float:
        return self.quantile(0.5)

    def drawn_median(self, chance: random.Random) -> float:
        """The median of one resampling."""
        shape = (self.count + 1) / 2
        return self.quantile(chance.betavariate(shape, shape))


def priced_by(group: Fetches, location: Fetches, total: Fetches) -> Fetches:
    """Whose median is the price of a group's answers: its own fetches', or lent ones'."""
    return next((each for each in (group, location) if each.count), total)


class Savings:
    """What the cache saved, by group, location and hour. Only for logs that have times."""

    def __init__(self, result: NginxResult) -> None:
        total = Fetches(result["total"]["fetch_us"])
        locations = [Fetches(each["fetch_us"]) for each in result["locations"]]
        self.borrowed_requests = 0
        """Served requests of groups that were never fetched."""
        self.thin_requests = 0
        """Served requests of groups that were fetched so rarely that a median says little."""
        self._served = [served(group) for group in result["groups"]]
        self._fetches: list[Fetches] = []
        for group, requests in zip(result["groups"], self._served, strict=True):
            fetches = Fetches(group["fetch_us"])
            if not fetches.count:
                self.borrowed_requests += requests
            elif fetches.count < FEW:
                self.thin_requests += requests
            self._fetches.append(priced_by(fetches, locations[group["location"]], total))
        self.known = total.count > 0
        """False if nothing was fetched: then nobody knows what a fetch takes."""
        self._prices = [each.median if each.count else 0.0 for each in self._fetches]
        self._overall = total.median if total.count else 0.0
        self._draws = self._drawn()

    def of_groups(self, groups: Sequence[int]) -> Saved:
        """Of these together, by their positions in the result."""
        middle = sum(self._served[group] * self._prices[group] for group in groups)
        drawn = [group for group in groups if group in self._draws]
        certain = middle - sum(self._served[group] * self._prices[group] for group in drawn)
        sums = [certain] * DRAWS
        for group in drawn:
            for place, price in enumerate(self._draws[group]):
                sums[place] += self._served[group] * price
        sums.sort()
        low, high = sums[int(TAIL * DRAWS)], sums[int((1 - TAIL) * DRAWS) - 1]
        low, high = min(low, middle) * (1 - HALF_A_BUCKET), max(high, middle) * (1 + HALF_A_BUCKET)
        return Saved(middle, low, high)

    def of_hour(self, pairs: Sequence[tuple[int, int]]) -> float:
        """Seconds, from (position of a group or -1, requests served)."""
        return sum(
            many * (self._prices[group] if group >= 0 else self._overall) for group, many in pairs
        )

    def _drawn(self) -> dict[int, list[float]]:
        worth = [many * price for many, price in zip(self._served, self._prices, strict=True)]
        heaviest = sorted(range(len(worth)), key=worth.__getitem__, reverse=True)[:MOST_DRAWN]
        chance = random.Random(0)
        return {
            group: [self._fetches[group].drawn_median(chance) for _ in range(DRAWS)]
            for group in heaviest
            if worth[group]
        }


def served(tally: NginxTally) -> int:
    """Requests answered from the cache without waiting for an upstream."""
    return sum(tally["statuses"][each]["requests"] for each in SERVED if each in tally["statuses"])


def served_bytes(tally: NginxTally) -> int:
    return sum(tally["statuses"][each]["bytes"] for each in SERVED if each in tally["statuses"])
