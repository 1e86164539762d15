"""Which percentiles of a cell may be quoted."""

from __future__ import annotations

from statistics import fmean

from nearcache.lab.sample import Cell

BEYOND = 10  # samples beyond a percentile, at least: so P90 wants 100 and P99 1,000
LATE_BEYOND = 0.5  # of them, at most this part may be the generator's own doing


def is_firm(cell: Cell, rank: float) -> bool:
    """Do enough samples lie beyond this percentile, and are most of them of the one measured?

    At a fixed rate some calls begin late through no fault of who is asked. They are slow ones:
    one in a hundred decides a P99 and does nothing to a median.
    """
    beyond = 1 - rank / 100
    enough = cell.count * (100 - rank) >= 100 * BEYOND
    return enough and late_share(cell) <= LATE_BEYOND * beyond


def late_share(cell: Cell) -> float:
    """Of its calls, those that the generator began late; the mean of its rounds."""
    series = cell.measures.get("late_share")
    values = [v for rounds in series.points.values() for v in rounds.values()] if series else []
    return fmean(values) if values else 0.0
