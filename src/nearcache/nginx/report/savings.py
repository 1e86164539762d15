"""Upstream time that a cache saved: for every answer it gave, what a fetch of its URL takes.

Prices are the native pass's (``prices.rs``), the same as in `whatif`: the mean of a URL's own
fetches (MISS, EXPIRED), drawn to its group's by how few they are. A group that was never fetched
in this log borrows the mean of its location, or of the whole log; how much is borrowed is told.

How certain: hits are known, and what chance decided is which fetches of which URLs the log
has. Their variances come with the prices. The sum is a positive number made of skewed ones, so
the interval (95 %) is that of a logarithm, with Student's quantile for variances that are estimates
(degrees of freedom by Satterthwaite, Biometrics Bulletin 2, 1946) and the mean of a log-normal
above its median. Two doubts are added to both ends, because a variance from few fetches does not
have them: how far a URL's own fetches are to be believed (the sum with them alone), and the tail.
The slowest fetch of a group may be an exception, or slower ones may not have come yet: its share
of all time, and what a Pareto tail of the slowest tenth has beyond it (Hill, Annals of Statistics
3, 1975).

It covers chance only: not that a fetch may be slower when all are fetched.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nearcache._core import NginxResult, NginxSaved

NORMAL = 1.959964  # its quantile of 97.5 %
LEAST_FREEDOM = 3.0
TAIL = 0.1  # of the fetches are its tail
FEW_FOR_TAIL = 20
LEAST_INDEX = 1.1  # a tail whose mean is infinite is not believed
FEW = 5  # fetches of a URL: a mean of fewer says little


@dataclass(frozen=True)
class Saved:
    """Seconds of upstream time, with the 95 % interval."""

    seconds: float
    low_s: float
    high_s: float


class Savings:
    """What the cache saved, by group, location and hour. Only for logs that have times."""

    def __init__(self, result: NginxResult) -> None:
        self._groups: list[NginxSaved] = [group["saved"] for group in result["groups"]]
        self._tails = [tail_of(group["fetch_us"]) for group in result["groups"]]
        self.borrowed_requests = sum(each["served"] for each in self._groups if each["is_borrowed"])
        """Served requests of groups that were never fetched."""
        self.thin_requests = sum(each["thin"] for each in self._groups if not each["is_borrowed"])
        """Served requests of URLs that were fetched so rarely that a mean says little."""
        self.known = not all(each["is_borrowed"] for each in self._groups)
        """False if nothing was fetched: then nobody knows what a fetch takes."""
        total_s = self.of_groups(range(len(self._groups))).seconds
        answers = sum(each["served"] for each in self._groups)
        self._overall_s = total_s / answers if answers else 0.0

    def of_groups(self, groups: Iterable[int]) -> Saved:
        """Of these together, by their positions in the result."""
        wanted = [number for number in groups if self._groups[number]["us"] > 0]
        if not wanted:
            return Saved(0.0, 0.0, 0.0)
        saved = [self._groups[number] for number in wanted]
        middle = sum(each["us"] for each in saved)
        low, high = _interval(saved, middle)
        own = sum(each["own_us"] for each in saved)
        tails = [(self._groups[number]["us"], self._tails[number]) for number in wanted]
        low_us = min(middle, own) * low - math.hypot(*(us * tail.slowest for us, tail in tails))
        high_us = max(middle, own) * high + math.hypot(*(us * tail.beyond for us, tail in tails))
        return Saved(middle / 1e6, max(0.0, low_us) / 1e6, high_us / 1e6)

    def of_hour(self, pairs: Sequence[tuple[int, int]]) -> float:
        """Seconds, from (position of a group or -1, requests served)."""
        return sum(many * self._price_s(group) for group, many in pairs)

    def _price_s(self, group: int) -> float:
        """Of an answer; -1: of any group."""
        of = self._groups[group]
        return of["us"] / of["served"] / 1e6 if group >= 0 and of["served"] else self._overall_s


def _interval(saved: Sequence[NginxSaved], middle_us: float) -> tuple[float, float]:
    """What its ends are, in middles."""
    variance = sum(each["within"] + each["between"] for each in saved)
    if not variance:
        return 1.0, 1.0
    uncertain = sum(
        each["within"] ** 2 / each["within_freedom"]
        + each["between"] ** 2 / each["between_freedom"]
        for each in saved
    )
    freedom = max(LEAST_FREEDOM, variance**2 / uncertain)
    of_log = math.log1p(variance / middle_us**2)
    width = student(freedom) * math.sqrt(of_log)
    return math.exp(-width), math.exp(of_log / 2 + width)


def student(freedom: float) -> float:
    """Student's quantile of 97.5 %, from three degrees of freedom on to 2 %.

    Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.
    """
    z = NORMAL
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


@dataclass(frozen=True)
class Tail:
    """The slowest fetches of a group, in shares of the time of all of them."""

    slowest: float = 0.0
    """What the slowest of all took above the mean."""
    beyond: float = 0.0
    """What slower ones would add that a tail of this kind has, and this log has not."""


def tail_of(histogram: Sequence[tuple[int, int]]) -> Tail:
    """Of fetches: ascending (microseconds, how many). None is seen in few of them."""
    count = sum(many for _, many in histogram)
    total_us = sum(us * many for us, many in histogram)
    if count < FEW_FOR_TAIL or not total_us:
        return Tail()
    slowest_us = histogram[-1][0]
    index = tail_index(histogram, int(count * TAIL))
    beyond = slowest_us / total_us * index / (index - 1) if index else 0.0
    return Tail((slowest_us - total_us / count) / total_us, beyond)


def tail_index(histogram: Sequence[tuple[int, int]], most: int) -> float | None:
    """Hill's estimate from so many of the slowest, at its lower end; None: all took the same."""
    slower: list[tuple[int, int]] = []
    left, next_us = most, 1
    for us, many in reversed(histogram):
        next_us = max(us, 1)
        if not left:
            break
        slower.append((us, min(left, many)))
        left -= slower[-1][1]
    logs = sum(many * math.log(us / next_us) for us, many in slower if us > next_us)
    if not logs:
        return None
    return max(LEAST_INDEX, most / logs * (1 - 1 / math.sqrt(most)))
