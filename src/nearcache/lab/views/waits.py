"""Curves of how long contenders waited, and what they met: for experiments with crowds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nearcache.lab.checks.firm import is_firm
from nearcache.lab.results.sample import Cell, Entry, distribution_of
from nearcache.report.model import Chart, Grey, Line
from nearcache.report.units import NOTHING, Scale, scale_for, short

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


@dataclass(frozen=True)
class Waits:
    """Percentiles of the cells of one table, all on one scale: its ``suffix`` is for the heads."""

    scale: Scale

    @classmethod
    def of(cls, cells: Iterable[Cell | None], *ranks: float) -> Waits:
        known = [distribution_of(cell) for cell in cells if cell is not None and cell.count]
        return cls(scale_for("ns", (each.percentile(rank) for each in known for rank in ranks)))

    @property
    def suffix(self) -> str:
        return self.scale.suffix

    def text(self, cell: Cell | None, rank: float) -> str:
        """Grey where it is not firm; the largest, rank 100, is what was seen."""
        if cell is None or not cell.count:
            return NOTHING
        text = self.scale.text(distribution_of(cell).percentile(rank))
        return text if rank == 100 or is_firm(cell, rank) else Grey(text)


MILLISECONDS = Waits(Scale(1e6, "ms"))


def ms(cell: Cell | None, rank: float) -> str:
    """A percentile of a cell in milliseconds, as text."""
    return MILLISECONDS.text(cell, rank)


def percent(share: float | None) -> str:
    return NOTHING if share is None else scale_for("share", [share]).text(share)


def number(value: float | None) -> str:
    return NOTHING if value is None else short(value)


def outcomes(cell: Cell) -> str:
    """What else happened than answers, most frequent first."""
    found = sorted(cell.outcomes.items(), key=lambda item: -item[1])
    return ", ".join(f"{times:,} {name}" for name, times in found) or NOTHING
