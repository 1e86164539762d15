"""A sample as one HTML page: no network, no other file, readable without scripts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from nearcache.lab.analysis import Analysis, Rank, Row
from nearcache.lab.model import NO_PAYLOAD
from nearcache.lab.reports import svg
from nearcache.lab.reports.terminal import counts_line, kind_name
from nearcache.lab.sample import distribution_of
from nearcache.lab.verdict import beside, describe_mix, recommend, short, us

CURVE_RANKS = (0.1, 10, 25, 50, 75, 90, 95, 98, 99, 99.5, 99.8, 99.9, 99.95, 99.99)


@dataclass(frozen=True)
class CellView:
    """One operation on one payload, ready to be drawn."""

    anchor: str
    operation: str
    payload: str
    title: str
    rows: Sequence[Row]
    bars: str
    curves: str
    batch: int


def write_page(analysis: Analysis, path: Path) -> None:
    path.write_text(render(analysis), encoding="utf-8")


def render(analysis: Analysis) -> str:
    environment = Environment(
        loader=PackageLoader("nearcache.lab.reports", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(us=us, short=short, heat=_heat, colour=svg.colour)
    sample = analysis.sample
    cells = [_cell(analysis, *name) for name in analysis.cell_names]
    return environment.get_template("page.html.j2").render(
        about=sample.about,
        beside=beside,
        rounds=sample.rounds,
        analysis=analysis,
        advice=recommend(analysis),
        mix=describe_mix(analysis) if analysis.ranking else "",
        mix_bars=_mix_bars(analysis),
        cells=cells,
        matrix=_matrix(analysis),
        families=list(dict.fromkeys(entry.family for entry in analysis.contenders)),
        floors={kind_name(kind): math.expm1(f) for kind, f in analysis.floors.items()},
        counts=counts_line(analysis),
    )


def _cell(analysis: Analysis, operation: str, payload: str) -> CellView:
    rows = analysis.rows(operation, payload)
    title = operation
    if payload != NO_PAYLOAD:
        title += f", {analysis.sample.about['payloads'].get(payload, payload)}"
    return CellView(
        anchor=f"{operation}-{payload}" if payload != NO_PAYLOAD else operation,
        operation=operation,
        payload=payload,
        title=title,
        rows=rows,
        bars=svg.bars(f"{title}: median in µs, shorter is better", _bars(analysis, rows)),
        curves=svg.percentiles(f"{title}: latency by percentile", _curves(rows)),
        batch=max(row.cell.batch for row in rows),
    )


def _bars(analysis: Analysis, rows: Sequence[Row]) -> list[svg.Bar]:
    base = next((r.summary.median for r in rows if r.entry.name == analysis.baseline), None)
    return [
        svg.Bar(
            row.entry.name,
            row.entry.family,
            row.summary.median,
            # The interval belongs to the ratio; drawn in time it needs the baseline's median.
            row.effect.low * base if row.effect and base else None,
            row.effect.high * base if row.effect and base else None,
            faint=row.entry.twin_of is not None,
        )
        for row in rows
    ]


def _curves(rows: Sequence[Row]) -> list[svg.Curve]:
    return [
        svg.Curve(row.entry.name, row.entry.family, _curve(row), dashed=_is_tcp(row))
        for row in rows
        if row.entry.twin_of is None
    ]


def _curve(row: Row) -> list[tuple[float, float]]:
    # The last rank that at least one sample stands for.
    deepest = 100 * (1 - 1 / row.summary.count)
    ranks = [rank for rank in CURVE_RANKS if rank <= deepest] or [50]
    found = distribution_of(row.cell)
    return [(rank, found.percentile(rank)) for rank in ranks]


def _is_tcp(row: Row) -> bool:
    return row.entry.proof.get("socket", "").startswith("tcp")


def _mix_bars(analysis: Analysis) -> str:
    ranking = analysis.ranking
    if not ranking:
        return ""
    base = next((r.cost_ns for r in ranking if r.entry.name == analysis.baseline), None)
    return svg.bars(
        "An average operation in µs, shorter is better",
        [_mix_bar(rank, base) for rank in ranking],
    )


def _mix_bar(rank: Rank, base: float | None) -> svg.Bar:
    known = rank.effect is not None and base is not None
    return svg.Bar(
        rank.entry.name,
        rank.entry.family,
        rank.cost_ns,
        rank.effect.low * base if known and rank.effect and base else None,
        rank.effect.high * base if known and rank.effect and base else None,
        faint=rank.entry.reach == "process",
    )


def _matrix(analysis: Analysis) -> list[dict[str, Any]]:
    """Medians of everything, each with its factor over the fastest of the column."""
    names = analysis.cell_names
    columns = {name: {row.entry.name: row for row in analysis.rows(*name)} for name in names}
    best = {name: min(r.summary.median for r in col.values()) for name, col in columns.items()}
    lines = []
    for entry in analysis.contenders:
        values = [
            (col[entry.name].summary.median, col[entry.name].summary.median / best[name])
            if entry.name in col
            else None
            for name, col in columns.items()
        ]
        lines.append({"entry": entry, "values": values})
    return lines


def _heat(factor: float) -> str:
    """A background from white to amber, by powers of two over the fastest."""
    strength = min(1.0, math.log2(max(1.0, factor)) / 9)
    return f"rgba(217, 119, 6, {0.55 * strength:.2f})"
