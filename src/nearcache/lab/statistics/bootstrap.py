"""The bootstrap of a median in two steps, computed instead of simulated.

What would be simulated: draw as many repetitions as there are, with replacement; of each
draw as many of its rounds as it has, with replacement; take the median of all that. Done a
thousand times this takes milliseconds, gives other digits every time, and knows no tail below
a thousandth. Only medians are wanted, so the whole distribution can be had at once:

    The median is at most x if at least half of what was drawn is. Of a repetition with n
    rounds, k of them at most x, a draw has i such with the binomial chance of (n, k / n).
    One draw of a repetition is the mean of these distributions over the repetitions, and all
    draws together are that to the power of their number, as polynomials multiply.

A polynomial is kept as one long integer with a slot of bits for each power, so that the
power is one ``pow`` and the sum of upper slots one remainder: microseconds.

Source of the scheme: Davison and Hinkley, Bootstrap Methods (1997), 3.8, on hierarchical
data; that a bootstrapped median has a closed form is from Efron (1979).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from statistics import median
from typing import NamedTuple

PRECISION_BITS = 24  # of each chance


class Chances(NamedTuple):
    """With an even number of draws the median lies between two of them, a lower and an upper."""

    lower: float
    upper: float


class Medians:
    """The distribution of the resampled median of ``groups``, none of them empty."""

    def __init__(self, groups: Sequence[Sequence[float]]) -> None:
        self.groups = [sorted(group) for group in groups]
        everything = [value for group in groups for value in group]
        self.count, self.seen = len(everything), median(everything)
        self.values = sorted(set(everything))

    def low(self, tail: float) -> float:
        """The value that at most ``tail`` of all medians are below."""
        return self._first(lambda value: self._at_most(value).lower > tail)

    def high(self, tail: float) -> float:
        """The value that at most ``tail`` of all medians are above."""
        return self._first(lambda value: self._at_most(value).upper >= 1 - tail)

    def _first(self, reached: Callable[[float], bool]) -> float:
        low, high = 0, len(self.values) - 1
        while low < high:
            middle = (low + high) // 2
            if reached(self.values[middle]):
                high = middle
            else:
                low = middle + 1
        return self.values[low]

    def _at_most(self, value: float) -> Chances:
        """Of a median at most ``value``."""
        hits = ((len(group), bisect_right(group, value)) for group in self.groups)
        return _chances(tuple(sorted(hits)))


@lru_cache(maxsize=65536)
def _chances(groups: tuple[tuple[int, int], ...]) -> Chances:
    """Of a median at most x, from each group's size and how many of it are at most x.

    Nothing else of the values counts, so the comparisons of a run share most of their answers.
    """
    draws, longest = len(groups), max(size for size, _ in groups)
    # Where no group is odd beside the others, every second power would be empty.
    step = 2 if all((longest - size) % 2 == 0 for size, _ in groups) else 1
    per_draw = PRECISION_BITS + draws.bit_length()
    slot_bits = 2 * (draws * per_draw // 2 + 4)
    mixed = sum(_binomial(size, hits, longest, slot_bits // step) for size, hits in groups)
    drawn = mixed**draws
    # Powers count (at most x) - (above x), moved up so that none is negative.
    middle = draws * longest
    digits = (1 << slot_bits) - 1
    # A number's remainder by base - 1 is the sum of its digits.
    everything = drawn % digits
    lower = drawn >> slot_bits * -(-middle // step)
    upper = drawn >> slot_bits * (middle // step + 1)
    return Chances(lower % digits / everything, upper % digits / everything)


@lru_cache(maxsize=4096)
def _binomial(count: int, hits: int, longest: int, power_bits: int) -> int:
    """The chances of drawing i of ``hits`` in ``count`` draws, at powers 2i - count + longest."""
    packed = 0
    for i in range(count + 1):
        ways = math.comb(count, i) * hits**i * (count - hits) ** (count - i)
        chance = (ways << PRECISION_BITS) // count**count
        packed += chance << power_bits * (2 * i - count + longest)
    return packed
