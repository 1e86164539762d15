"""Amounts as one says them, and what strangers sent, as text.

A log holds what strangers sent. Whatever of it is shown goes through :func:`printable`:
a terminal must not obey it.
"""

from __future__ import annotations

from collections.abc import Sequence

from nearcache.base.options import human_duration

NOTHING = "-"
SIZE_UNITS = ("B", "kB", "MB", "GB", "TB")


def duration(seconds: float | None) -> str:
    """``4331`` as ``1 h 12 min``, ``3.14`` as ``3.1 s``, ``0.02`` as ``20 ms``."""
    if seconds is None:
        return NOTHING
    if round(seconds, 3) < 1:
        return _milliseconds(1000 * seconds)
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    return human_duration(1000 * round(seconds))


def _milliseconds(ms: float) -> str:
    return f"{ms:.0f} ms" if ms >= 9.95 or not ms else f"{ms:.1f} ms" if ms >= 0.1 else "<0.1 ms"


def size(amount: float | None) -> str:
    """Bytes in powers of 1000, as logs and disks are counted: ``34 MB``."""
    if amount is None:
        return NOTHING
    power = 0
    while abs(amount) >= 999.5 and power < len(SIZE_UNITS) - 1:
        amount, power = amount / 1000, power + 1
    digits = 0 if amount >= 99.95 or not power else 1
    return f"{amount:.{digits}f} {SIZE_UNITS[power]}"


def count(number: int | None) -> str:
    return NOTHING if number is None else f"{number:,}"


def percent(share: float | None) -> str:
    return NOTHING if share is None else f"{share:.1%}"


def ratio(part: float, whole: float) -> float | None:
    """None where there is nothing to divide by."""
    return part / whole if whole else None


def plural(number: int, one: str, many: str = "") -> str:
    """``1 request``, ``2,000 requests``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listed(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``; one at least."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def printable(text: str) -> str:
    """Without what moves cursors, changes colours or turns the direction of writing."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
