"""What only ``replay`` shows: whether calls began when they were due."""

from __future__ import annotations

from nearcache.lab.checks.evidence import LATE_MOST
from nearcache.lab.checks.firm import doubt, late_share
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.results.sample import Cell
from nearcache.lab.views import Views
from nearcache.report.model import Grey, Table


def views(analysis: Analysis) -> Views:
    table = _timing(analysis)
    return Views(parts=(table,) if table else ())


def _timing(analysis: Analysis) -> Table | None:
    """At a fixed rate: how late calls began through no fault of the cache."""
    rows = []
    for entry in analysis.contenders:
        cell = analysis.sample.cells.get((entry.name, "call", "recording"))
        if cell is None or "late_share" not in cell.measures:
            continue
        found = {name: series.median for name, series in cell.measures.items()}
        verdict = _doubts(cell)
        # Why it is void may be just this, so the row stays.
        own = Grey(verdict or "void") if analysis.void(entry.name, "call", "recording") else verdict
        rows.append(
            [
                entry.name,
                f"{found['offered_rate']:,.0f}",
                f"{late_share(cell):.1%}",
                f"{found['dropped_share']:.1%}",
                f"{found.get('service_time', 0) / 1000:,.1f}",
                own,
            ]
        )
    if not rows:
        return None
    head = ["", "calls/s", "began late", "never began", "service µs", ""]
    note = "The median above counts from when a call was due; service time from when it began."
    title = "Calls when they were due"
    return Table(title=title, head=head, rows=rows, text_columns=(0, 5), note=note)


def _doubts(cell: Cell) -> str:
    if late_share(cell) > LATE_MOST:
        return "the generator was late"
    return "its P99 may be the generator's" if doubt(cell, 99) == "late" else ""
