"""A sample as one HTML page, readable without scripts. The script sets text and never parses it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from nearcache.lab.advice.verdict import describe_mix, opening, recommend
from nearcache.lab.checks.firm import legend
from nearcache.lab.judging.analysis import Analysis, Row
from nearcache.lab.judging.words import beside
from nearcache.lab.reports import svg, tables
from nearcache.lab.reports.colours import colours_of
from nearcache.lab.reports.lead import REST_TITLE, lead_and_rest
from nearcache.lab.reports.page_data import page_data
from nearcache.lab.reports.parts import views_of
from nearcache.lab.reports.tables import Sheet
from nearcache.lab.reports.terminal import counts_line
from nearcache.report import html
from nearcache.report.model import Chart, Grey, Grid, Strong, Table
from nearcache.report.units import NOTHING, quantity

FOLDER = Path(__file__).parent / "page"
VOID_COLOUR = "#94a3b855"
LONG = 34  # characters; longer text in a table wraps
MAP_COLOURS = ("#3b82f633", "#f59e0b33", "#10b98133", "#ef444433", "#8b5cf633", "#06b6d433",
               "#ec489933", "#84cc1633", "#a1620733", "#64748b33")  # fmt: skip


@dataclass(frozen=True)
class SheetView:
    """One operation on one payload, ready for the template."""

    title: str
    unit: str
    table: Table
    bars: Sequence[tuple[str, str]]  # width in percent, colour
    measures: Table | None
    parts: Table | None


@dataclass(frozen=True)
class PartView:
    """What only this experiment shows: a table, a chart or a map."""

    kind: str
    title: str
    view: Table | Chart | Grid
    number: int = 0  # of a chart, among the charts
    drawn: str = ""
    words: dict[str, str] | None = None  # of a map: word -> background


@dataclass(frozen=True)
class MixBar:
    """What an average operation costs one candidate."""

    name: str
    share: str  # of the longest
    colour: str
    text: str
    faint: bool  # private to each process, so not comparable


def write_page(analysis: Analysis, path: Path) -> None:
    path.write_text(render(analysis), encoding="utf-8")


def render(analysis: Analysis) -> str:
    sheets, views = tables.sheets(analysis), views_of(analysis)
    advice = recommend(analysis)
    lead, rest = lead_and_rest(advice.sentences, views.sentences)
    ranked = bool(analysis.ranking)
    colours = colours_of(analysis)
    overview = tables.overview(analysis, sheets) if len(sheets) > 1 else None
    return html.render(
        FOLDER,
        "page.html.j2",
        title=analysis.sample.about["question"],
        style="style.css",
        scripts=("charts.js", "page.js"),
        data=page_data(analysis, sheets, views),
        styled_inside=True,
        filters=FILTERS,
        about=analysis.sample.about,
        absent=tables.absent(analysis),
        advice=advice,
        analysis=analysis,
        answers=lead,
        badge_line=tables.badge_line(analysis),
        beside=beside,
        block=advice.caches_block,
        broken=any(check.voids for check in tables.failures(analysis)),
        checks=tables.checks(analysis),
        claims=tables.claims(analysis),
        colours=colours,
        contrasts=analysis.contrasts,
        counts=counts_line(analysis),
        data_line=tables.data_line(analysis),
        facts=tables.facts(analysis),
        failures=tables.failures(analysis),
        floors=tables.floors_line(analysis),
        groups=tables.rank_groups(analysis),
        heat=_heat(analysis, sheets) if overview else [],
        legend=legend(analysis.sample.cells.values()),
        mix=describe_mix(analysis) if ranked else "",
        mix_bars=_mix_bars(analysis, colours) if ranked else [],
        opening=opening(analysis),
        outcomes=tables.outcomes(analysis),
        overview=overview,
        parts=_parts(views.parts, colours),
        proofs=tables.proofs(analysis),
        place_line=tables.place_line(analysis),
        rest=rest,
        rest_title=REST_TITLE,
        rounds_line=tables.rounds_line(analysis),
        sheets=[_sheet(sheet, colours) for sheet in sheets],
    )  # fmt: skip


def render_tables(title: str, sentences: Sequence[str], parts: Sequence[Table]) -> str:
    """A page of sentences and tables alone; it has no script at all."""
    return html.render(
        FOLDER,
        "tables.html.j2",
        title=title,
        style="style.css",
        filters=FILTERS,
        sentences=sentences,
        parts=parts,
    )


def _lines(text: str) -> Markup:
    return Markup("<br>").join(text.split("\n"))


def _kind(text: str, is_text: bool) -> Markup:
    """The attribute that says how a cell is drawn."""
    classes = ["text"] if is_text else []
    classes += ["long"] if is_text and len(text) > LONG else []
    classes += ["grey"] if isinstance(text, Grey) else []
    classes += ["strong"] if isinstance(text, Strong) else []
    classes += [text] if text in ("passed", "failed") else []
    return Markup(' class="{}"').format(" ".join(classes)) if classes else Markup("")


FILTERS: dict[str, Callable[..., Any]] = {"lines": _lines, "kind": _kind}


def _sheet(sheet: Sheet, colours: dict[str, str]) -> SheetView:
    columns = [head for head in tables.columns_of(sheet) if head != "run"]  # there is a chart
    # Without an order there is nothing for bars to show.
    longest = max(row.cost for row in sheet.rows) if sheet.ranked else math.inf
    return SheetView(
        title=sheet.title,
        unit=sheet.scale.suffix,
        table=tables.cell_table(sheet, columns),
        bars=[_bar(row, longest, colours) for row in sheet.rows],
        measures=tables.measures(sheet),
        parts=tables.parts(sheet),
    )


def _bar(row: Row, longest: float, colours: dict[str, str]) -> tuple[str, str]:
    colour = VOID_COLOUR if row.void else colours[row.entry.name]
    return f"{100 * row.cost / longest:.3g}", colour


def _parts(found: Sequence[Table | Chart | Grid], colours: dict[str, str]) -> list[PartView]:
    parts, charts = [], 0
    for view in found:
        if isinstance(view, Table):
            parts.append(PartView("table", view.title, view))
        elif isinstance(view, Chart):
            drawn = Markup(svg.curves(view, colours))  # noqa: S704 - escaped there
            parts.append(PartView("chart", view.title, view, charts, drawn))
            charts += 1
        else:
            parts.append(PartView("map", view.title, view, words=_backgrounds(view)))
    return parts


def _backgrounds(grid: Grid) -> dict[str, str]:
    """One for each word of a map; none for what says nothing."""
    words = dict.fromkeys(word for row in grid.words for word in row if word != NOTHING)
    known = {word: MAP_COLOURS[i % len(MAP_COLOURS)] for i, word in enumerate(words)}
    return {NOTHING: "none", **known}


def _mix_bars(analysis: Analysis, colours: dict[str, str]) -> list[MixBar]:
    longest = max(rank.cost_ns for rank in analysis.ranking)
    return [
        MixBar(
            name=rank.entry.name,
            share=f"{rank.cost_ns / longest:.4f}",
            colour=colours[rank.entry.name],
            text=quantity(rank.cost_ns, "ns"),
            faint=rank.entry.reach == "process",
        )
        for rank in analysis.ranking
    ]


def _heat(analysis: Analysis, sheets: Sequence[Sheet]) -> list[list[Markup]]:
    """Backgrounds of the overview, by powers of two over the best of the column."""
    columns: list[dict[str, Any]] = []
    for sheet in sheets:
        best = min((row.cost for row in sheet.rows if not row.void), default=0)
        columns.append({row.entry.name: _shade(row.cost, best) for row in sheet.rows})
    return [
        [column.get(entry.name, Markup("")) for column in columns]
        for entry in tables.in_order(analysis)
    ]


def _shade(cost: float, best: float) -> Markup:
    factor = cost / best if best > 0 else 1
    strength = min(1.0, math.log2(max(1.0, factor)) / 9)
    if strength < 0.02:  # a shade nobody sees
        return Markup("")
    return Markup(' style="background:rgba(var(--heat),{})"').format(f"{0.5 * strength:.2f}")
