"""What the script of the page draws: numbers only.

Everything here is in the tables of the page too; a reader without scripts misses shapes,
no numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from nearcache.lab.judging.analysis import Analysis, Row
from nearcache.lab.reports.colours import PALETTE, colours_of, family_colours
from nearcache.lab.reports.tables import Sheet, course, in_order, part_names
from nearcache.lab.results.distribution import Distribution
from nearcache.lab.results.sample import distribution_of
from nearcache.lab.views import Views
from nearcache.report.html import curve_data
from nearcache.report.model import Chart

RANKS = (1, 5, 10, 25, 50, 75, 90, 95, 98, 99, 99.5, 99.8, 99.9, 99.95, 99.99)
BINS = 48


def page_data(analysis: Analysis, sheets: Sequence[Sheet], views: Views) -> dict[str, Any]:
    entries = analysis.measured
    number_of = {entry.name: number for number, entry in enumerate(entries)}
    colours = colours_of(analysis)
    return {
        "candidates": [
            {"name": e.name, "family": e.family, "colour": colours[e.name], "twin": bool(e.twin_of)}
            for e in entries
        ],
        "order": [number_of[e.name] for e in in_order(analysis) if e.name in number_of],
        "baseline": number_of.get(analysis.baseline),
        "ranks": RANKS,
        "palette": PALETTE,
        "payloads": analysis.sample.about["payloads"],
        "sheets": [_sheet(sheet, number_of) for sheet in sheets],
        "charts": [_chart(analysis, part) for part in views.parts if isinstance(part, Chart)],
    }


def _sheet(sheet: Sheet, number_of: Mapping[str, int]) -> dict[str, Any]:
    found = {row.entry.name: distribution_of(row.cell) for row in sheet.rows if row.cell.count}
    edges = _bin_edges(list(found.values()))
    return {
        "operation": sheet.operation,
        "payload": sheet.payload,
        "title": sheet.title,
        "factor": sheet.scale.factor,
        "unit": sheet.scale.suffix,
        "rate": sheet.as_rate,
        "edges": edges,
        "parts": part_names(sheet),
        "rows": [
            _row(sheet, row, number_of[row.entry.name], found.get(row.entry.name), edges)
            for row in sheet.rows
        ],
    }


def _row(
    sheet: Sheet, row: Row, number: int, found: Distribution | None, edges: Sequence[float]
) -> dict[str, Any]:
    plain: dict[str, Any] = {"c": number, "level": row.cost, "points": course(row.cell)}
    plain["sets"] = [len(rounds) for _, rounds in sorted(row.cell.points.items())]
    if row.effect is not None:
        base = sheet.analysis.sample.candidates[sheet.analysis.baseline]
        plain["ratio"] = [row.effect.ratio, row.effect.low, row.effect.high]
        plain["verdict"] = row.verdict
        floor = sheet.analysis.floor_between(row.entry, base, operation=sheet.operation)
        plain["floor"] = math.exp(floor)
    if found is not None:
        deepest = 100 * (1 - 1 / found.count)  # the last rank a sample stands for
        plain["curve"] = [found.percentile(rank) for rank in RANKS if rank <= max(50, deepest)]
        plain["bins"] = found.shares(edges)
    if row.cell.courses:
        first = row.cell.courses[min(row.cell.courses)]
        plain["course"] = first.blocks
        plain["cut"] = first.cut
    if row.cell.parts:
        plain["parts"] = {name: series.median for name, series in row.cell.parts.items()}
    if stored := row.entry.stored.get(sheet.payload):
        plain["stored"] = stored[0]
    return plain


def _bin_edges(found: Sequence[Distribution]) -> list[float]:
    """Equal steps of the logarithm, up to where all but one in a thousand of each have ended."""
    if not found:
        return []
    least = min(one.values[0] for one in found)
    greatest = max(one.percentile(99.9) for one in found) * 1.001
    low, high = math.log(max(1, least)), math.log(max(greatest, least * 1.1, 2))
    return [math.exp(low + (high - low) * number / BINS) for number in range(BINS + 1)]


def _chart(analysis: Analysis, chart: Chart) -> dict[str, Any]:
    by_name, by_family = colours_of(analysis), family_colours(analysis.measured)
    colours = [by_name.get(line.name) or by_family.get(line.family) for line in chart.lines]
    return curve_data(chart, colours)
