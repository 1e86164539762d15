"""Which percentiles of a cell may be quoted, and why others may not."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean
from typing import Literal

from nearcache.lab.results.sample import Cell

Doubt = Literal["few", "late", ""]

BEYOND = 10  # samples beyond a percentile, at least: so P90 wants 100 and P99 1,000
LATE_BEYOND = 0.5  # of them, at most this part may be the generator's own doing
SHOWN = (90, 99)  # percentiles that tables have


def doubt(cell: Cell, rank: float) -> Doubt:
    """Do too few samples lie beyond this percentile, or too many that began late?

    At a fixed rate some calls begin late through no fault of who is asked. They are slow ones:
    one in a hundred decides a P99 and does nothing to a median.
    """
    if cell.count * (100 - rank) < 100 * BEYOND:
        return "few"
    return "late" if late_share(cell) > LATE_BEYOND * (1 - rank / 100) else ""


def is_firm(cell: Cell, rank: float) -> bool:
    return not doubt(cell, rank)


def late_share(cell: Cell) -> float:
    """Of its calls, those that the generator began late; the mean of its rounds."""
    series = cell.measures.get("late_share")
    values = [v for rounds in series.points.values() for v in rounds.values()] if series else []
    return fmean(values) if values else 0.0


def legend(cells: Iterable[Cell]) -> str:
    """What grey means in a report of these cells."""
    late = dict.fromkeys(
        cell.operation
        for cell in cells
        if cell.count and any(doubt(cell, rank) == "late" for rank in SHOWN)
    )
    few = (
        "Grey or in brackets: void, or a percentile with fewer than 10 samples beyond it "
        "(P90 wants 100, P99 1,000)"
    )
    if not late:
        return f"{few}."
    return (
        f"{few}; of {', '.join(late)} also one that says more of the generator than of the "
        "candidate: most of the calls beyond it may have begun late."
    )
