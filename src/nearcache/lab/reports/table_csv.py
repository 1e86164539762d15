"""A sample as CSV: one line for each candidate, operation and payload, nothing rounded.

Costs are in the unit of the column ``unit``; what a candidate has no number for is empty.
Cells that begin like a formula are marked as text, because spreadsheets run formulas.
"""

from __future__ import annotations

import csv
import math
from io import StringIO
from typing import Any

from nearcache.lab.judging.analysis import Analysis, Row
from nearcache.lab.reports.tables import Sheet, sheets
from nearcache.lab.results.sample import Cell, distribution_of

HEAD = (
    "experiment", "candidate", "family", "twin_of", "operation", "payload", "unit", "cost",
    "per_second", "median", "mean", "p90", "p99", "p99_9", "max", "stdev", "samples", "rounds",
    "baseline", "ratio", "ratio_low", "ratio_high", "pairs", "verdict", "noise_floor", "void",
    "stored_bytes", "batch", "warm_up", "calls", "hits", "misses", "errors", "refused",
    "outcomes", "measures", "parts_ns",
)  # fmt: skip
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def render(analysis: Analysis) -> str:
    text = StringIO(newline="")
    writer = csv.DictWriter(text, HEAD, restval="", lineterminator="\n")
    writer.writeheader()
    for sheet in sheets(analysis):
        for row in sheet.rows:
            writer.writerow(_safe(_cost_line(sheet, row) | _count_line(row.cell)))
    for cell in _without_costs(analysis):
        writer.writerow(_safe(_place(analysis, cell) | _count_line(cell)))
    return text.getvalue()


def _without_costs(analysis: Analysis) -> list[Cell]:
    """Nobody got an answer there, and how it ended is all there is."""
    names = {entry.name for entry in analysis.measured}
    return [
        cell
        for cell in analysis.sample.cells.values()
        if cell.candidate in names and cell.has_anything and not cell.points
    ]


def _place(analysis: Analysis, cell: Cell) -> dict[str, Any]:
    entry = analysis.sample.candidates[cell.candidate]
    return {
        "experiment": analysis.sample.about["experiment"],
        "candidate": cell.candidate,
        "family": entry.family,
        "twin_of": entry.twin_of or "",
        "operation": cell.operation,
        "payload": cell.payload,
        "unit": cell.unit,
        "void": analysis.void(cell.candidate, cell.operation, cell.payload),
    }


def _cost_line(sheet: Sheet, row: Row) -> dict[str, Any]:
    analysis, cell = sheet.analysis, row.cell
    line = _place(analysis, cell) | {
        "cost": row.cost,
        "per_second": 1e9 / row.cost if cell.unit == "ns" else "",
        "rounds": sum(len(rounds) for rounds in cell.points.values()),
        "baseline": analysis.baseline,
    }
    if stored := row.entry.stored.get(cell.payload):
        line["stored_bytes"] = stored[0]
    if cell.count:
        summary = row.summary
        line |= {name: getattr(summary, name) for name in ("median", "mean", "p90", "p99")}
        line |= {"p99_9": distribution_of(cell).percentile(99.9), "samples": summary.count}
        line |= {"max": summary.max, "stdev": summary.stdev}
    if row.effect is not None:
        base = analysis.sample.candidates[analysis.baseline]
        line |= {
            "ratio": row.effect.ratio,
            "ratio_low": row.effect.low,
            "ratio_high": row.effect.high,
            "pairs": row.effect.pairs,
            "verdict": row.verdict,
            "noise_floor": math.exp(
                analysis.floor_between(row.entry, base, operation=sheet.operation)
            ),
        }
    return line


def _count_line(cell: Cell) -> dict[str, Any]:
    counts = ("batch", "warm_up", "calls", "hits", "misses", "errors", "refused")
    return {name: getattr(cell, name) for name in counts} | {
        "outcomes": "; ".join(f"{name}={times}" for name, times in cell.outcomes.items()),
        "measures": "; ".join(
            f"{name}={series.median:g} {series.unit}".strip()
            for name, series in cell.measures.items()
        ),
        "parts_ns": "; ".join(f"{name}={part.median:g}" for name, part in cell.parts.items()),
    }


def _safe(line: dict[str, Any]) -> dict[str, Any]:
    return {
        name: f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
        for name, value in line.items()
    }
