"""Did it settle, and did it stay? Change points and trends of a series of costs.

    segments    where the level changes: binary segmentation with a penalty for each cut
    classify    flat, warm-up, slowdown or no steady state, after Barrett et al., "Virtual
                Machine Warmup Blows Hot and Cold" (OOPSLA 2017), whose PELT is exact where
                this is greedy; series here have some sixty points
    trend_of    does it rise or fall, round by round? Kendall's test within each
                repetition, added up (Hirsch, Slack and Smith 1982), with Sen's slope

Everything works on logarithms: a change of a tenth is the same at 1 and at 100 µs.
Knows nothing of caches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Literal

Course = Literal["flat", "warm-up", "slowdown", "no steady state", "inconsistent", "too short"]

LEAST_POINTS = 12  # fewer do not show what they settle to
PENALTY = 4.0  # times log(n) times the variance: what a cut must save
SHORTEST = 3  # points between two cuts
LAST_PART = 0.25  # a change in here, and nothing is known of what would have come next


def segments(values: Sequence[float]) -> list[tuple[int, int]]:
    """(start, end) of stretches of one level each; values are logarithms."""
    if len(values) < 2 * SHORTEST:
        return [(0, len(values))]
    sums, squares = [0.0], [0.0]
    for value in values:
        sums.append(sums[-1] + value)
        squares.append(squares[-1] + value * value)

    def scatter(start: int, end: int) -> float:
        total = sums[end] - sums[start]
        return squares[end] - squares[start] - total * total / (end - start)

    price = PENALTY * math.log(len(values)) * _variance(values)
    found: list[tuple[int, int]] = []
    open_ended = [(0, len(values))]
    while open_ended:
        start, end = open_ended.pop()
        cuts = range(start + SHORTEST, end - SHORTEST + 1)
        best = min(cuts, key=lambda cut: scatter(start, cut) + scatter(cut, end), default=None)
        if best is None or scatter(start, end) - scatter(start, best) - scatter(best, end) <= price:
            found.append((start, end))
        else:
            open_ended += [(start, best), (best, end)]
    return sorted(found)


def classify(costs: Sequence[float], floor: float) -> Course:
    """How a series went. Levels closer than ``floor`` (a log ratio) are one level."""
    if len(costs) < LEAST_POINTS:
        return "too short"
    values = [math.log(max(cost, 1e-9)) for cost in costs]
    parts = segments(values)
    levels = [median(values[start:end]) for start, end in parts]
    best, last = min(levels), levels[-1]
    if max(levels) - best <= floor:
        return "flat"
    last_change = next(
        (parts[i + 1][0] for i in reversed(range(len(parts) - 1)) if _far(levels, i, floor)), 0
    )
    if last_change > len(values) * (1 - LAST_PART):
        return "no steady state"
    return "slowdown" if last - best > floor else "warm-up"


def together(courses: Sequence[Course]) -> Course:
    """The word for several processes: theirs, if they agree."""
    known = {course for course in courses if course != "too short"}
    if not known:
        return "too short"
    return known.pop() if len(known) == 1 else "inconsistent"


@dataclass(frozen=True)
class Trend:
    """How a series moved from its first to its last round, as a log ratio, and if by chance."""

    log_change: float
    p: float
    rounds: int

    @property
    def change(self) -> float:
        """As a share: 0.1 is a tenth more at the end than at the start."""
        return math.expm1(self.log_change)


def trend_of(groups: Sequence[Sequence[float]]) -> Trend | None:
    """The trend within ``groups`` of logarithms, each in order; None if all are too short.

    What differs between the groups is no trend: each has its own start.
    """
    groups = [group for group in groups if len(group) >= 3]
    if not groups:
        return None
    score = variance = 0.0
    slopes: list[float] = []
    for group in groups:
        count = len(group)
        for i in range(count):
            for j in range(i + 1, count):
                score += (group[j] > group[i]) - (group[j] < group[i])
                slopes.append((group[j] - group[i]) / (j - i))
        variance += count * (count - 1) * (2 * count + 5) / 18
    # One off, because the score moves in steps of two.
    z = max(0.0, abs(score) - 1) / math.sqrt(variance)
    longest = max(map(len, groups))
    return Trend(
        log_change=median(slopes) * (longest - 1),
        p=math.erfc(z / math.sqrt(2)),
        rounds=sum(map(len, groups)),
    )


def _far(levels: Sequence[float], place: int, floor: float) -> bool:
    return abs(levels[place + 1] - levels[place]) > floor


def _variance(values: Sequence[float]) -> float:
    """Of the noise around the level: from neighbours, so that steps do not count."""
    steps = [abs(b - a) for a, b in pairwise(values)]
    deviation = 1.4826 * median(steps) / math.sqrt(2)
    return max(deviation * deviation, 1e-8)
