"""Numbers with their unit, three significant digits, in a size one can read.

A column of a table has one scale for all its numbers, named in its head, so that they
can be compared by looking; a number in a sentence carries its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

MICRO = "\N{MICRO SIGN}"
STEPS: dict[str, tuple[tuple[float, str], ...]] = {
    "ns": ((1, "ns"), (1e3, f"{MICRO}s"), (1e6, "ms"), (1e9, "s")),
    "bytes": ((1, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB")),
    "share": ((0.01, "%"),),  # of 1
    "count": ((1, ""),),
    "1/s": ((1, "/s"), (1e3, "k/s"), (1e6, "M/s")),
    "bytes/s": ((1, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s")),
}
# A scale is taken as long as the smallest number keeps two digits in it.
LEAST_SHOWN = 0.0995
LONG = 100_000  # a duration of more digits than that is written in another unit
NOTHING = "\N{EN DASH}"


@dataclass(frozen=True)
class Scale:
    """What the numbers of one column are divided by, and what stands in its head."""

    factor: float
    suffix: str
    unit: str = ""

    def text(self, value: float) -> str:
        if math.isnan(value):
            return NOTHING
        if self.unit == "ns" and abs(value) / self.factor >= LONG:
            return quantity(value, self.unit)  # beside calls of 1 µs: "1.90 s", with its own unit
        return _signed(value / self.factor)

    def with_suffix(self, value: float) -> str:
        number = self.text(value)
        if not self.suffix or self.suffix.startswith(("/", "%")):
            return number + self.suffix
        return f"{number} {self.suffix}"


def scale_for(unit: str, values: Iterable[float]) -> Scale:
    """The largest step of ``unit`` in which the smallest of ``values`` can still be read."""
    steps = STEPS.get(unit, ((1, unit),))
    smallest = min((abs(value) for value in values if value), default=0)
    fitting = [step for step in steps if smallest / step[0] >= LEAST_SHOWN]
    return Scale(*(fitting[-1] if fitting else steps[0]), unit)


def quantity(value: float, unit: str) -> str:
    """One number for a sentence: ``12.3 µs``, ``1.23 MB``, ``4.5%``."""
    steps = STEPS.get(unit, ((1, unit),))
    fitting = [step for step in steps if abs(value) / step[0] >= 1]
    return Scale(*(fitting[-1] if fitting else steps[0])).with_suffix(value)


def rate(cost_ns: float) -> str:
    """The same cost as operations a second."""
    return quantity(1e9 / cost_ns, "1/s") if cost_ns else NOTHING


def us(nanoseconds: float) -> str:
    """Microseconds with three significant digits."""
    return short(nanoseconds / 1000)


def short(value: float) -> str:
    """Three significant digits, at most three of them behind the point."""
    if value >= 10_000:
        return f"{value:,.0f}"
    digits = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
    return f"{value:.{min(digits, 3)}f}"


def times(ratio: float) -> str:
    """A ratio. Small ones keep two digits, or a thousandth and a two-thousandth look alike."""
    return short(ratio) if ratio >= LEAST_SHOWN else f"{ratio:.2g}"


def _signed(value: float) -> str:
    return f"-{short(-value)}" if value < 0 else short(value)
