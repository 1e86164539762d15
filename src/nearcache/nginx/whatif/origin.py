"""How often the origin changes, and so how many answers from the cache are outdated.

How old answers get a replay knows exactly; how many of them are *outdated* is an estimate.
Between two fetches of a key that were dt apart the response changed with probability
1 - exp(-rate * dt), one rate for the whole log, by maximum likelihood from all pairs of
fetches (Cho and Garcia-Molina, "Estimating frequency of change", ACM TOIT 3(3), 2003). That it
changed is seen by its size, so some changes go unseen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from nearcache.report.words import ratio

FEW_REFETCHES = 30


def change_rate(refetches: Sequence[tuple[float, int, int]]) -> float | None:
    """Changes a second, from (seconds between two fetches, pairs, pairs that differ).

    None if there are too few pairs to say anything.
    """
    pairs = sum(count for _, count, _ in refetches)
    if pairs < FEW_REFETCHES:
        return None
    if not any(changed for _, _, changed in refetches):
        return 0.0
    low, high = 1e-12, 1e6
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _slope(refetches, middle) > 0 else (low, middle)
    return low


def _slope(refetches: Sequence[tuple[float, int, int]], rate: float) -> float:
    """Of the logarithm of the likelihood; it falls with the rate."""
    slope = 0.0
    for after_s, count, changed in refetches:
        seconds = max(after_s, 1e-3)
        slope += (
            changed * seconds / math.expm1(min(rate * seconds, 700)) - (count - changed) * seconds
        )
    return slope


def outdated_share(ages: Sequence[tuple[float, int]], changes_per_s: float) -> float:
    served = sum(count for _, count in ages)
    outdated = sum(count * -math.expm1(-changes_per_s * age) for age, count in ages)
    return ratio(outdated, served) or 0.0
