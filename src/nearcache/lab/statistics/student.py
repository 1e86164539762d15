"""Student's t: what few rounds do not know about their own noise.

A bootstrap draws from the rounds it has, so of few it makes intervals that are too narrow, and
where all of them lie on one side of zero it finds no chance at all that this is luck. Both are
mended as for a mean: tails are moved out to where Student's t of so many rounds would have
them, and a p-value is read from how far the interval reaches.

Sources: Hesterberg, What Teachers Should Know About the Bootstrap (The American Statistician,
2015), the expanded percentile interval; Abramowitz and Stegun, 26.7.3 and 26.7.4, the
distribution as a finite sum.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist


def chance_beyond(t: float, freedom: int) -> float:
    """How often chance alone is further from zero than ``t``, to either side."""
    angle = math.atan2(abs(t), math.sqrt(freedom))
    odd = freedom % 2
    term, total = math.cos(angle) if odd else 1.0, 0.0
    for power in range(2 + odd, freedom + 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (power - 1) / power
    inside = math.sin(angle) * total
    return max(0.0, 1 - (2 / math.pi * (angle + inside) if odd else inside))


@lru_cache(maxsize=1024)
def critical(freedom: int, alpha: float) -> float:
    """The t that chance exceeds, to either side, once in 1 / ``alpha``."""
    low, high = 0.0, 1.0
    while chance_beyond(high, freedom) > alpha:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if chance_beyond(middle, freedom) > alpha else (low, middle)
    return high


@lru_cache(maxsize=1024)
def expanded_tail(count: int, alpha: float) -> float:
    """Which tail of a bootstrap of ``count`` rounds makes an interval of 1 - ``alpha``."""
    if count < 2:
        return 0.0
    return NormalDist().cdf(-math.sqrt(count / (count - 1)) * critical(count - 1, alpha))


def p_of_reach(middle: float, reach: float, count: int, alpha: float) -> float:
    """Of "no difference": ``reach`` is how far the 1 - ``alpha`` interval goes towards zero.

    It is below ``alpha`` exactly if the interval does not include zero.
    """
    if count < 2 or not middle:
        return 1.0
    if not reach:
        return 0.0
    return chance_beyond(middle / reach * critical(count - 1, alpha), count - 1)
