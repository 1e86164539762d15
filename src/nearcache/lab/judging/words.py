"""How a comparison is said: a ratio, its interval, a floor of noise."""

from __future__ import annotations

import math
from collections.abc import Callable

from nearcache.lab.statistics.stats import TOO_NOISY, Effect, Verdict
from nearcache.report.units import short
from nearcache.report.words import plural

TIMES, TO = "\N{MULTIPLICATION SIGN}", "\N{EN DASH}"
LOUD_FLOOR = math.log(1.15)


def span(effect: Effect, number: Callable[[float], str] = short) -> str:
    """The 95 % interval of a ratio, or of how few rounds there is none."""
    if not effect.has_interval:
        return f"({plural(effect.pairs, 'round')})"
    return f"({number(effect.low)}{TO}{number(effect.high)})"


def noise(floor: float) -> str:
    """A floor in percent; one that hides all is no number."""
    return "too noisy to tell" if floor > TOO_NOISY else f"{math.expm1(floor):.1%}"


def beside(effect: Effect | None, verdict: Verdict | None, other: str) -> str:
    """How long something takes, compared with ``other``, in words."""
    if effect is None:
        return f"not compared with {other}"
    if verdict == "same":
        if effect.is_equivalent():
            return f"the same as {other}, within 3 %"
        return f"no different from {other} beyond the noise"
    if verdict == "unclear":
        few = "" if effect.has_interval else f" in {plural(effect.pairs, 'round')}"
        return f"not told apart from {other}{few}"
    if effect.ratio < 1:
        low, high = short(1 / effect.high), short(1 / effect.low)
        return f"{short(1 / effect.ratio)} ({low}{TO}{high}) times as fast as {other}"
    low, high = short(effect.low), short(effect.high)
    return f"{short(effect.ratio)} ({low}{TO}{high}) times the time of {other}"
