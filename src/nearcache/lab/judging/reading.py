"""Numbers of a sample by name, for views: what a cell counts as, and how two of them differ.

What is void is not there: it has no cell, no point, and is compared with nothing. So a view
that asks here cannot lead with numbers that broke a rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.results.sample import Cell
from nearcache.lab.statistics.stats import Effect, Verdict


def cell_of(analysis: Analysis, candidate: str, operation: str, payload: str) -> Cell | None:
    """The cell, if this run has it, something happened in it, and it is not void."""
    cell = analysis.sample.cells.get((candidate, operation, payload))
    if cell is None or not cell.has_anything or analysis.void(candidate, operation, payload):
        return None
    return cell


def point_of(analysis: Analysis, candidate: str, operation: str, payload: str) -> float | None:
    """What the cell counts as: the median of its rounds."""
    cell = cell_of(analysis, candidate, operation, payload)
    values = [v for rounds in cell.points.values() for v in rounds.values()] if cell else []
    return median(values) if values else None


def measure_of(cell: Cell | None, name: str) -> float | None:
    """A secondary number of the cell: the median of its rounds."""
    series = cell.measures.get(name) if cell else None
    return series.median if series and series.points else None


def compared(
    analysis: Analysis, a: str, b: str, operation: str, payload: str, payload_of_b: str = ""
) -> tuple[Effect, Verdict] | None:
    """How many times what ``b`` costs ``a`` costs, judged by the noise of this run."""
    first = cell_of(analysis, a, operation, payload)
    second = cell_of(analysis, b, operation, payload_of_b or payload)
    if first is None or second is None:
        return None
    entries = analysis.sample.candidates
    return analysis.judged(entries[a], entries[b], first.points, second.points)


def compared_all(
    analysis: Analysis, pairs: Sequence[tuple[str, str]], operation: str, payloads: Sequence[str]
) -> dict[tuple[str, str, str], tuple[Effect, Verdict]]:
    """A table of comparisons, judged as one family: of forty, two differ by luck at 5 %."""
    asked = []
    for a, b in pairs:
        for payload in payloads:
            cells = [cell_of(analysis, name, operation, payload) for name in (a, b)]
            if cells[0] is not None and cells[1] is not None:
                asked.append(((a, b, payload), cells[0].points, cells[1].points))
    entries = analysis.sample.candidates
    family = [(entries[a], entries[b], of_a, of_b) for (a, b, _), of_a, of_b in asked]
    judged = analysis.judge_all(family, operation)
    return {
        where: found
        for (where, _, _), found in zip(asked, judged, strict=True)
        if found is not None
    }


def verdict_of(
    analysis: Analysis, a: str, b: str, operation: str, payload: str, payload_of_b: str = ""
) -> Verdict | None:
    """Is ``a`` faster than ``b``, slower, the same, or is that unclear?"""
    found = compared(analysis, a, b, operation, payload, payload_of_b)
    return found[1] if found else None
