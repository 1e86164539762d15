"""Sums that fade: what was lately, in bounded memory, whatever and how much comes.

After ``window_s`` seconds an amount counts 1/e of itself, as in varnishtop. So a sum divided by
:attr:`Fading.seconds`, what a steady rate of 1 would have summed up to, is a rate, from the
first second on.

Of names only the heaviest are kept. What the others had is not forgotten: ``total`` has all
of it, so :meth:`Fading.unlisted` can say how much no list shows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import exp

KEPT = 1000
GONE = 1e-4  # of a request: nobody will miss it


@dataclass(slots=True)
class Amount:
    """What one name had."""

    requests: float = 0.0
    served: float = 0.0
    upstream_s: float = 0.0
    mostly: str = ""
    """The commonest reason, of late."""

    def add(self, other: Amount) -> None:
        self.requests += other.requests
        self.served += other.served
        self.upstream_s += other.upstream_s
        self.mostly = other.mostly or self.mostly

    def fade(self, factor: float) -> None:
        self.requests *= factor
        self.served *= factor
        self.upstream_s *= factor


Rank = Callable[[Amount], tuple[float, float]]


def by_upstream(amount: Amount) -> tuple[float, float]:
    return amount.upstream_s, amount.requests


def by_requests(amount: Amount) -> tuple[float, float]:
    return amount.requests, amount.upstream_s


@dataclass
class Fading:
    """Amounts by name. Call :meth:`fade` once for an interval, then add what it brought."""

    window_s: float
    keeps: int = KEPT
    seconds: float = 0.0
    """What the sums are divided by to be rates."""
    dropped: int = 0
    """How many names were thrown out because there were more than ``keeps``."""
    total: Amount = field(default_factory=Amount)
    """Of all names, also of those that are not kept."""
    sums: dict[str, Amount] = field(default_factory=dict)

    def fade(self, interval_s: float) -> None:
        factor = exp(-interval_s / self.window_s)
        self.seconds = self.seconds * factor + interval_s
        self.total.fade(factor)
        for amount in self.sums.values():
            amount.fade(factor)
        self.sums = {name: each for name, each in self.sums.items() if each.requests > GONE}

    def add(self, name: str, amount: Amount) -> None:
        self.sums.setdefault(name, Amount()).add(amount)

    def cut(self, rank: Rank) -> None:
        """Throws out the lightest of too many names."""
        if len(self.sums) > self.keeps:
            self.dropped += len(self.sums) - self.keeps
            self.sums = dict(self.top(self.keeps, rank))

    def top(self, count: int, rank: Rank) -> list[tuple[str, Amount]]:
        return sorted(self.sums.items(), key=lambda each: rank(each[1]), reverse=True)[:count]

    def unlisted(self) -> Amount:
        """What no name that is kept has."""
        kept = Amount()
        for amount in self.sums.values():
            kept.add(amount)
        return Amount(
            requests=max(0.0, self.total.requests - kept.requests),
            served=max(0.0, self.total.served - kept.served),
            upstream_s=max(0.0, self.total.upstream_s - kept.upstream_s),
        )


PER_DECADE = 14  # at most: columns of a terminal
FIRST_S, DECADES = 0.001, 5
EDGES_S = [FIRST_S * 10 ** (place / PER_DECADE) for place in range(PER_DECADE * DECADES + 1)]
TICK_S = 0.001  # nginx logs whole milliseconds


class FadingTimes:
    """A histogram over the logarithm of time. The first bin is below 1 ms, the last above 100 s."""

    def __init__(self) -> None:
        self.bins = [0.0] * (len(EDGES_S) + 1)

    def fade(self, factor: float) -> None:
        self.bins = [each * factor for each in self.bins]

    def add(self, histogram: Sequence[tuple[int, int]]) -> None:
        """From (microseconds, how many)."""
        for us, many in histogram:
            for place, share in _places(us / 1e6):
                self.bins[place] += many * share

    @property
    def count(self) -> float:
        return sum(self.bins)


def _places(seconds: float) -> list[tuple[int, float]]:
    """The bins of one time, with the share that each gets.

    What was logged as 2 ms may have been anything from 2 to 3 ms, which is several bins:
    without this, small times would be a comb of which every tooth is a millisecond.
    """
    first, last = bisect_right(EDGES_S, seconds), bisect_right(EDGES_S, seconds + TICK_S)
    if seconds < FIRST_S or first == last:
        return [(first, 1.0)]
    bounds = [seconds, *EDGES_S[first:last], seconds + TICK_S]
    return [
        (first + step, (bounds[step + 1] - bounds[step]) / TICK_S)
        for step in range(len(bounds) - 1)
    ]
