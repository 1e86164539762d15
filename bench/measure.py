"""Callables, interleaved in random order; for two, the ratio of their times with its interval."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median

from nearcache.lab.statistics.stats import Effect, effect_of

ROUNDS = 31
ROUND_NS = 15_000_000  # long enough for the clock, short enough for many rounds

Work = Callable[[int], None]
"""Does an operation that many times."""

Arm = Callable[[], float]
"""Does its work once more; how long an operation took, in nanoseconds."""

Points = dict[int, float]
"""What an arm took, by round."""

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
    works = {"ours": (ours, _count_for(ours)), "peer": (peer, _count_for(peer))}
    arms = {name: partial(_time_ns, *work, clock_ns) for name, work in works.items()}
    points = interleaved(arms, rounds, seed)
    effect = effect_of({0: points["peer"]}, {0: points["ours"]})
    assert effect is not None
    return Comparison(
        ours_ns=median(points["ours"].values()),
        peer_ns=median(points["peer"].values()),
        effect=effect,
    )


def interleaved(arms: Mapping[str, Arm], rounds: int, seed: int = 1) -> dict[str, Points]:
    """Every arm once in each round, in an order drawn anew."""
    rng = random.Random(seed)
    points: dict[str, Points] = {name: {} for name in arms}
    for number in range(rounds):
        names = list(arms)
        rng.shuffle(names)
        for name in names:
            points[name][number] = arms[name]()
    return points


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
