"""Ratios, intervals and the noise floor. Plain numbers in, plain numbers out.

The unit is the round, not the single operation: operations of one round share the
state of the machine, so a million of them prove less than ten rounds.

    point      the median of one candidate in one round
    pair       two points of the same round of the same repetition
    effect     the median of log(a / b) over all pairs, and its 95 % interval by a
               bootstrap in two steps: repetitions (fresh processes), then their rounds
    floor      how far two names for one configuration were apart: nothing smaller
               than that is a finding
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

LEAST_FLOOR = math.log(1.03)  # below 3 % nobody changes a cache, whatever is proven
CONFIDENCE = 0.95

# repetition -> round -> value
Points = Mapping[int, Mapping[int, float]]
Verdict = Literal["same", "unclear", "faster", "slower"]


@dataclass(frozen=True)
class Effect:
    """How many times longer a takes than b. All three are natural logarithms."""

    log_ratio: float
    log_low: float
    log_high: float
    pairs: int

    def widened(self, floor: float) -> Effect:
        """The same, its interval at least as wide as the noise: two rounds may agree by luck."""
        low = min(self.log_low, self.log_ratio - floor)
        high = max(self.log_high, self.log_ratio + floor)
        return Effect(self.log_ratio, low, high, self.pairs)

    @property
    def ratio(self) -> float:
        return math.exp(self.log_ratio)

    @property
    def low(self) -> float:
        return math.exp(self.log_low)

    @property
    def high(self) -> float:
        return math.exp(self.log_high)


def warm_up_count(samples: Sequence[int]) -> int:
    """How many samples at the start to leave out: MSER-5, on medians of five.

    MSER picks the cut that makes the rest's mean most certain. Medians instead of means
    keep one late hiccup from looking like a change of state, which would throw away the
    tail that P99 is about. A cut in the second half is not a warm-up: then nothing goes.
    """
    blocks = [median(samples[i : i + 5]) for i in range(0, len(samples) - 4, 5)]
    if len(blocks) < 6:
        return 0
    best_cut, best_score = 0, math.inf
    total = square = 0.0
    # From the end, so that each candidate cut costs one addition.
    for cut in range(len(blocks) - 1, -1, -1):
        total += blocks[cut]
        square += blocks[cut] ** 2
        kept = len(blocks) - cut
        if kept < 3:
            continue
        score = (square - total**2 / kept) / kept**2
        if score <= best_score:
            best_cut, best_score = cut, score
    return best_cut * 5 if best_cut <= len(blocks) // 2 else 0


def paired_log_ratios(a: Points, b: Points) -> list[list[float]]:
    """log(a / b) of every round both have, one list per repetition."""
    return [
        ratios
        for repetition in sorted(a.keys() & b.keys())
        if (
            ratios := [
                math.log(a[repetition][number] / b[repetition][number])
                for number in sorted(a[repetition].keys() & b[repetition].keys())
            ]
        )
    ]


def effect_of(a: Points, b: Points, resamples: int, rng: random.Random) -> Effect | None:
    """How much longer a takes than b; None if no round has both."""
    groups = paired_log_ratios(a, b)
    if not groups:
        return None
    everything = [ratio for group in groups for ratio in group]
    draws = sorted(_resampled_median(groups, rng) for _ in range(resamples))
    tail = (1 - CONFIDENCE) / 2
    return Effect(
        log_ratio=median(everything),
        log_low=draws[int(tail * len(draws))],
        log_high=draws[min(len(draws) - 1, int((1 - tail) * len(draws)))],
        pairs=len(everything),
    )


def _resampled_median(groups: Sequence[Sequence[float]], rng: random.Random) -> float:
    chosen: list[float] = []
    for group in rng.choices(groups, k=len(groups)):
        chosen += rng.choices(group, k=len(group))
    return median(chosen)


def noise_floor(effects: Sequence[Effect]) -> float:
    """The floor, as a log ratio, from A/A effects: the 90th percentile of their size."""
    if not effects:
        return LEAST_FLOOR
    sizes = sorted(abs(effect.log_ratio) for effect in effects)
    return max(LEAST_FLOOR, sizes[min(len(sizes) - 1, math.ceil(0.9 * len(sizes)) - 1)])


def judge(effect: Effect, floor: float) -> Verdict:
    """Is a the same as b, faster, slower, or can this run not tell?"""
    if abs(effect.log_ratio) <= floor:
        return "same"
    if effect.log_low <= 0 <= effect.log_high:
        return "unclear"
    return "slower" if effect.log_ratio > 0 else "faster"


def tied_with_first(effects: Sequence[Effect | None], floor: float) -> list[bool]:
    """Which of a sorted field are not proven slower than its first.

    ``effects[i]`` is candidate i + 1 against the first.
    """
    return [effect is None or judge(effect, floor) != "slower" for effect in effects]


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values))
