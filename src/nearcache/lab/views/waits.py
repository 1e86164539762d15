"""Curves of how long contenders waited, and what they met: for experiments with crowds."""

from __future__ import annotations

from collections.abc import Sequence

from nearcache.lab.sample import Cell, Entry, distribution_of
from nearcache.lab.units import NOTHING, scale_for, short
from nearcache.lab.views import Chart, Line

RANKS = (1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.9)


def curve(title: str, cells: Sequence[tuple[Entry, Cell]], note: str = "") -> Chart:
    """The share of attempts that had ended after so many milliseconds."""
    lines = [
        Line(name=entry.name, family=entry.family, points=_points(cell))
        for entry, cell in cells
        if cell.count
    ]
    return Chart(
        title=title,
        x_title="ms",
        y_title="% ended",
        x_log=True,
        lines=lines,
        note=note,
    )


def _points(cell: Cell) -> list[tuple[float, float]]:
    found = distribution_of(cell)
    return [(found.percentile(rank) / 1e6, rank) for rank in RANKS]


def ms(cell: Cell | None, rank: float) -> str:
    """A percentile of a cell in milliseconds, as text."""
    if cell is None or not cell.count:
        return NOTHING
    return short(distribution_of(cell).percentile(rank) / 1e6)


def percent(share: float | None) -> str:
    return NOTHING if share is None else scale_for("share", [share]).text(share)


def number(value: float | None) -> str:
    return NOTHING if value is None else short(value)


def outcomes(cell: Cell) -> str:
    """What else happened than answers, most frequent first."""
    found = sorted(cell.outcomes.items(), key=lambda item: -item[1])
    return ", ".join(f"{times:,} {name}" for name, times in found) or NOTHING
