"""Ratios, intervals and the noise floor. Plain numbers in, plain numbers out.

The unit is the round, not the single operation: operations of one round share the
state of the machine, so a million of them prove less than ten rounds.

    point      the median of one candidate in one round
    pair       two points of the same round of the same repetition
    effect     the median of log(a / b) over all pairs, and its 95 % interval by a
               bootstrap in two steps: repetitions (fresh processes), then their rounds,
               as much wider as few rounds need (student.py)
    check      the same question asked of other mathematics: Wilcoxon's signed ranks
    floor      how far two names for one configuration were apart: nothing smaller
               than that is a finding
    same       below the floor; *proven* same only if the interval fits into +-3 % (TOST)
    family     comparisons that are read together: their p-values are Holm's

Nothing here is drawn at random: the bootstrap is computed, not simulated (bootstrap.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal, TypeVar

from nearcache.lab.statistics.bootstrap import Medians
from nearcache.lab.statistics.student import expanded_tail, p_of_reach

LEAST_FLOOR = math.log(1.03)  # below 3 % nobody changes a cache, whatever is proven
ALPHA = 0.05
LEAST_PAIRS = 6  # fewer give a bootstrap too little to draw from: no interval, no verdict
TOO_NOISY = math.log(2)  # a floor above this hides what anybody would call a difference
MOST_EXACT = 60  # differences; above, the ranks' sum is normal enough

Number = TypeVar("Number", int, float)
# repetition -> round -> value
Points = Mapping[int, Mapping[int, float]]
Verdict = Literal["same", "unclear", "faster", "slower"]


@dataclass(frozen=True)
class Effect:
    """How many times longer a takes than b. All ``log_`` are natural logarithms."""

    log_ratio: float
    log_low: float  # of 95 %
    log_high: float
    pairs: int
    p: float | None = None  # of "there is no difference", from the same interval
    check_p: float | None = None  # the same by signed ranks; None if the pairs are too few
    inner: tuple[float, float] | None = None  # of 90 %, as two one-sided tests at 5 % want it

    def widened(self, floor: float) -> Effect:
        """The same, its interval at least as wide as the noise: two rounds may agree by luck."""
        low = min(self.log_low, self.log_ratio - floor)
        high = max(self.log_high, self.log_ratio + floor)
        return replace(self, log_low=low, log_high=high, inner=None)

    @property
    def has_interval(self) -> bool:
        """Is there one? A widened one is the noise, and is not printed."""
        return self.pairs >= LEAST_PAIRS

    @property
    def ratio(self) -> float:
        return math.exp(self.log_ratio)

    @property
    def low(self) -> float:
        return math.exp(self.log_low)

    @property
    def high(self) -> float:
        return math.exp(self.log_high)

    def is_equivalent(self, zone: float = LEAST_FLOOR) -> bool:
        """Proven to be the same within ``zone``, which is more than not being told apart."""
        low, high = self.inner or (self.log_low, self.log_high)
        return -zone <= low and high <= zone

    @property
    def check_agrees(self) -> bool | None:
        """Do both methods find a difference, or neither? None if one cannot say."""
        if self.p is None or self.check_p is None:
            return None
        return (self.p < ALPHA) == (self.check_p < ALPHA)


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


def effect_of(a: Points, b: Points) -> Effect | None:
    """How much longer a takes than b; None if no round has both."""
    groups = paired_log_ratios(a, b)
    if not groups:
        return None
    everything = [ratio for group in groups for ratio in group]
    medians, middle = Medians(groups), median(everything)
    low, high = interval_of(medians, ALPHA)
    is_near = abs(middle) <= LEAST_FLOOR  # else equivalence is out of the question
    return Effect(
        log_ratio=middle,
        log_low=low,
        log_high=high,
        pairs=len(everything),
        p=p_of_reach(middle, middle - low if middle > 0 else high - middle, len(everything), ALPHA),
        check_p=signed_rank_p(everything),
        inner=interval_of(medians, 2 * ALPHA) if is_near else None,
    )


def interval_of(medians: Medians, alpha: float) -> tuple[float, float]:
    """The 1 - ``alpha`` interval of the median; never without the median that was seen."""
    tail = expanded_tail(medians.count, alpha)
    return min(medians.low(tail), medians.seen), max(medians.high(tail), medians.seen)


def floor_of(log_ratios: Sequence[float]) -> float:
    """The floor, as a log ratio, from those of A/A twins: the 90th percentile of their size."""
    if not log_ratios:
        return LEAST_FLOOR
    sizes = sorted(abs(log_ratio) for log_ratio in log_ratios)
    return max(LEAST_FLOOR, sizes[min(len(sizes) - 1, math.ceil(0.9 * len(sizes)) - 1)])


def judge(effect: Effect, floor: float, p: float | None = None) -> Verdict:
    """Is a the same as b, faster, slower, or can this run not tell?

    ``p`` is Holm's, where the comparison is one of a family.
    """
    if abs(effect.log_ratio) <= floor:
        return "same" if floor <= TOO_NOISY else "unclear"
    if not effect.has_interval:
        return "unclear"
    if effect.log_low <= 0 <= effect.log_high or (p is not None and p > ALPHA):
        return "unclear"
    return "slower" if effect.log_ratio > 0 else "faster"


def holm(ps: Sequence[float]) -> list[float]:
    """p-values of one family, adjusted so that all may be read at once (Holm 1979).

    Of forty comparisons at 5 % two would be wrong by luck. The smallest p is multiplied by
    their number, the next by one less, and so on; none falls below the one before.
    """
    adjusted = [0.0] * len(ps)
    least = 0.0
    for place, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        least = max(least, min(1.0, ps[index] * (len(ps) - place)))
        adjusted[index] = least
    return adjusted


def judge_family(effects: Sequence[Effect], floors: Sequence[float]) -> list[Verdict]:
    """The verdicts of comparisons that are read together."""
    adjusted = holm([1.0 if effect.p is None else effect.p for effect in effects])
    return [
        judge(effect, floor, None if effect.p is None else p)
        for effect, floor, p in zip(effects, floors, adjusted, strict=True)
    ]


def signed_rank_p(differences: Sequence[float]) -> float | None:
    """Wilcoxon's signed-rank test, two-sided and exact up to 60 differences; ties share ranks.

    None below six, where even a perfect result could not be told from luck.
    """
    doubled, positive = _signed_ranks(differences)
    if len(doubled) < 6:
        return None
    total = sum(doubled)
    least = min(positive, total - positive)
    if len(doubled) > MOST_EXACT:
        spread = math.sqrt(sum(rank * rank for rank in doubled)) / 2
        return min(1.0, math.erfc((total / 2 - least) / spread / math.sqrt(2)))
    # How many of all 2^n ways to give out signs add up to each sum: a product of (1 + x^rank),
    # kept as one integer with n + 1 bits for each power of x; of powers above, none matters.
    slot = len(doubled) + 1
    wanted = (1 << slot * (least + 1)) - 1
    ways = 1
    for rank in doubled:
        ways += (ways << slot * rank) & wanted
    as_extreme = ways % ((1 << slot) - 1)
    return min(1.0, 2 * as_extreme * 2.0 ** -len(doubled))


def _signed_ranks(differences: Sequence[float]) -> tuple[list[int], int]:
    """Twice the rank of every difference that is not zero, and the sum of the positive ones."""
    ordered = sorted((d for d in differences if d), key=abs)
    doubled: list[int] = []
    for size in [abs(difference) for difference in ordered]:
        if doubled and size == abs(ordered[len(doubled) - 1]):
            doubled.append(doubled[-1])
            continue
        ties = sum(1 for other in ordered[len(doubled) :] if abs(other) == size)
        doubled.append(2 * len(doubled) + ties + 1)
    return doubled, sum(rank for rank, d in zip(doubled, ordered, strict=True) if d > 0)


@dataclass(frozen=True)
class Shift:
    """By how much a is above b, in the unit of both, with a 95 % interval."""

    value: float
    low: float
    high: float


def shift_of(a: Points, b: Points) -> Shift | None:
    """Hodges and Lehmann's shift of paired rounds; None if no round has both.

    The median of the means of all pairs of differences; its interval are those means that
    the signed-rank test would not reject.
    """
    differences = [
        a[repetition][number] - b[repetition][number]
        for repetition in a.keys() & b.keys()
        for number in a[repetition].keys() & b[repetition].keys()
    ]
    if not differences:
        return None
    count = len(differences)
    means = sorted(
        (differences[i] + differences[j]) / 2 for i in range(count) for j in range(i, count)
    )
    spread = math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
    # Half a rank off, because sums of ranks are whole numbers and the normal curve is not.
    outside = max(0, math.floor(len(means) / 2 - 0.5 - 1.96 * spread))
    return Shift(median(means), means[outside], means[-1 - outside])


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values))


def at_share(ordered: Sequence[Number], share: float) -> Number:
    """The value of ``ordered`` that this share of them lies below; of 1, the last."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
