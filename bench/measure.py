"""Two callables, interleaved in random order; the ratio of their times, with its interval."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from nearcache.lab.stats import Effect, effect_of

ROUNDS = 31
ROUND_NS = 15_000_000  # long enough for the clock, short enough for many rounds

Work = Callable[[int], None]
"""Does an operation that many times."""


Clock = Callable[[], int]
"""Nanoseconds: of the wall, or of this process's CPU."""


@dataclass(frozen=True)
class Comparison:
    """One row of the table. Times are medians over rounds, in nanoseconds per operation."""

    ours_ns: float
    peer_ns: float
    effect: Effect
    """peer / ours: above 1, ours is faster."""


def compare(
    ours: Work,
    peer: Work,
    *,
    rounds: int = ROUNDS,
    seed: int = 1,
    clock_ns: Clock = time.perf_counter_ns,
) -> Comparison:
    """How many times longer the peer takes for the same work."""
    rng = random.Random(seed)
    works = {"ours": (ours, _count_for(ours)), "peer": (peer, _count_for(peer))}
    points: dict[str, dict[int, float]] = {"ours": {}, "peer": {}}
    for number in range(rounds):
        names = list(works)
        rng.shuffle(names)
        for name in names:
            points[name][number] = _time_ns(*works[name], clock_ns)
    effect = effect_of({0: points["peer"]}, {0: points["ours"]})
    assert effect is not None
    return Comparison(
        ours_ns=median(points["ours"].values()),
        peer_ns=median(points["peer"].values()),
        effect=effect,
    )


def _time_ns(work: Work, count: int, clock_ns: Clock = time.perf_counter_ns) -> float:
    start = clock_ns()
    work(count)
    return (clock_ns() - start) / count


def _count_for(work: Work) -> int:
    """How often to do the work to fill a round; warms it up as well."""
    count = 1
    while (took := _time_ns(work, count) * count) < ROUND_NS / 4:
        count = count * 2 if took < ROUND_NS / 50 else count + max(1, count // 2)
    return max(1, int(count * ROUND_NS / took))
