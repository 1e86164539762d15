"""A sample as one HTML page: no network, no other file, readable without scripts.

The page may be opened by others than who measured, and names in a sample come from
anywhere. So everything is escaped, the script sets text and never parses it, and the
page's own policy (CSP) allows these scripts by their hashes and nothing from a network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from nearcache import charts
from nearcache.lab.advice.verdict import describe_mix, opening, recommend
from nearcache.lab.base.units import NOTHING, quantity
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
from nearcache.lab.views import Chart, Grey, Grid, Strong, Table

SCRIPTS = ("page/charts.js", "page/page.js")  # after those of nearcache.charts
STYLES = ("page/style.css",)
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
    scripts = [*map(_shared, charts.SCRIPTS), *map(_resource, SCRIPTS)]
    styles = [*map(_shared, charts.STYLES), *map(_resource, STYLES)]
    return _environment().get_template("page.html.j2").render(
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
        data=Markup(charts.as_script(page_data(analysis, sheets, views))),  # noqa: S704 - escaped there
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
        script_hashes=" ".join(map(charts.hash_source, scripts)),
        scripts=scripts,
        sheets=[_sheet(sheet, colours) for sheet in sheets],
        styles=Markup("").join(styles),
    )  # fmt: skip


def render_tables(title: str, sentences: Sequence[str], parts: Sequence[Table]) -> str:
    """A page of sentences and tables alone; it has no script at all."""
    template = _environment().get_template("tables.html.j2")
    styles = _resource("page/style.css")
    return template.render(title=title, sentences=sentences, parts=parts, styles=styles)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("nearcache.lab.reports", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(lines=_lines, kind=_kind)
    return environment


@cache
def _resource(name: str) -> Markup:
    text = resources.files("nearcache.lab.reports").joinpath(name).read_text(encoding="utf-8")
    return Markup(text)  # noqa: S704 - our own file


@cache
def _shared(name: str) -> Markup:
    return Markup(charts.resource(name))  # noqa: S704 - our own file


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
