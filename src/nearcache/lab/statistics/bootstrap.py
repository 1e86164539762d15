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
        self.draws = len(self.groups)
        self.longest = max(map(len, self.groups))
        # Where no group is odd beside the others, every second power would be empty.
        self.step = 2 if all((self.longest - len(g)) % 2 == 0 for g in self.groups) else 1
        per_draw = PRECISION_BITS + self.draws.bit_length()
        self.slot_bits = 2 * (self.draws * per_draw // 2 + 4)
        self._at_most = lru_cache(maxsize=None)(self._chances)

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

    def _chances(self, value: float) -> Chances:
        """Of a median at most ``value``."""
        slots = self.slot_bits // self.step
        mixed = sum(
            _binomial(len(group), bisect_right(group, value), self.longest, slots)
            for group in self.groups
        )
        drawn = mixed**self.draws
        # Powers count (at most x) - (above x), moved up so that none is negative.
        middle = self.draws * self.longest
        digits = (1 << self.slot_bits) - 1
        # A number's remainder by base - 1 is the sum of its digits.
        everything = drawn % digits
        lower = drawn >> self.slot_bits * -(-middle // self.step)
        upper = drawn >> self.slot_bits * (middle // self.step + 1)
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
