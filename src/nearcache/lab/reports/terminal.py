"""A sample in 80 to 100 columns, whatever the experiment counts: tables, bars, the verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from nearcache.lab.analysis import Analysis
from nearcache.lab.reports import tables
from nearcache.lab.reports.tables import Sheet
from nearcache.lab.reports.terminal_views import MOST_NAME, draw
from nearcache.lab.reports.textplots import FILLS, bar, stacked
from nearcache.lab.units import quantity, rate
from nearcache.lab.verdict import Recommendation, beside, describe_mix, recommend
from nearcache.lab.views import Table, views_of

WIDEST = 100
MOST_SHEETS = 3  # experiments with more show the first in full, and say how to ask for others
MOST_COLUMNS = 24  # of the overview; the page has everything
ROOMY = 94
NOT_IN_NARROW = {"mean", "max", "s.d.", "run"}  # and the counts nowhere: they are in the page


def print_report(
    analysis: Analysis, console: Console, operation: str | None = None, payload: str | None = None
) -> None:
    width = min(console.width, WIDEST)
    parts = report_parts(analysis, width, operation, payload, console.color_system is not None)
    console.print(Group(*parts), width=width)


def report_parts(
    analysis: Analysis,
    width: int,
    operation: str | None = None,
    payload: str | None = None,
    colours: bool = True,
) -> list[RenderableType]:
    everything = tables.sheets(analysis)
    shown = _asked_for(everything, operation, payload)
    found = [tables.absent(analysis), _overview(analysis, everything)]
    parts: list[RenderableType] = [_heading(analysis)]
    parts += [draw(table, width, colours) for table in found if table]
    for sheet in shown:
        parts += _sheet(sheet, width, colours)
    parts += _others(everything, shown)
    endings = tables.outcomes(analysis)
    parts += [draw(endings, width, colours)] if endings else []
    parts += [_ranking(analysis, width)] if analysis.ranking else []
    parts += [_contrasts(analysis)] if analysis.contrasts else []
    parts += _views(analysis, width, colours)
    return [*parts, _notes(analysis), _verdict(analysis, recommend(analysis))]


def _asked_for(
    everything: Sequence[Sheet], operation: str | None, payload: str | None
) -> list[Sheet]:
    found = [
        sheet
        for sheet in everything
        if operation in (None, sheet.operation) and payload in (None, sheet.payload)
    ]
    if operation or payload or len(everything) <= MOST_SHEETS:
        return found[:MOST_SHEETS]
    return found[:1]


def _heading(analysis: Analysis) -> RenderableType:
    about = analysis.sample.about
    machine = about["machine"]
    rounds = analysis.sample.rounds
    return Group(
        Text(about["question"], style="bold"),
        Text(
            f"{machine['cpu_model']}, {machine['cpus_usable']} CPUs, {machine['python']}, "
            f"kernel {machine['kernel']}"
        ),
        Text(
            f"{len(rounds)} rounds in {len({r for r, _ in rounds})} sets of fresh processes, "
            f"{about['seconds']:.0f} s, seed {about['seed']}. Client and server share CPU "
            f"{about['cpu']}."
        ),
        "",
    )


def _overview(analysis: Analysis, everything: Sequence[Sheet]) -> Table | None:
    return tables.overview(analysis, everything[:MOST_COLUMNS]) if len(everything) > 1 else None


def _sheet(sheet: Sheet, width: int, colours: bool) -> list[RenderableType]:
    unwanted = {*tables.COUNTS, *(set() if width >= ROOMY else NOT_IN_NARROW)}
    columns = [head for head in tables.columns_of(sheet) if head not in unwanted]
    parts = [draw(tables.cell_table(sheet, columns), width, colours)]
    if not sheet.analysis.ranking:
        parts.append(_sheet_bars(sheet, width))
    seen = tables.measures(sheet)
    parts += [draw(seen, width, colours)] if seen else []
    return [*parts, *_attribution(sheet, width)]


def _others(everything: Sequence[Sheet], shown: Sequence[Sheet]) -> list[RenderableType]:
    rest = [sheet for sheet in everything if sheet not in shown]
    if not rest:
        return []
    operations = ", ".join(dict.fromkeys(sheet.operation for sheet in rest))
    payloads = ", ".join(dict.fromkeys(sheet.payload for sheet in rest if sheet.payload != "-"))
    text = f"In full: `lab report FILE --operation O --payload P`; O: {operations}"
    return [Text(text + (f"; P: {payloads}" if payloads else ""), style="dim"), ""]


def _sheet_bars(sheet: Sheet, width: int) -> RenderableType:
    rows = [row for row in sheet.rows if row.entry.twin_of is None]
    costs = {row.entry.name: tables.level(row.cell) for row in rows}
    return _bars(f"{sheet.title} (shorter better)", costs, sheet.unit, width, sheet.as_rate)


def _ranking(analysis: Analysis, width: int) -> RenderableType:
    costs = {rank.entry.name: rank.cost_ns for rank in analysis.ranking}
    title = f"An average operation (shorter better): {describe_mix(analysis)}"
    return _bars(title, costs, "ns", width)


def _bars(
    title: str, costs: dict[str, float], unit: str, width: int, as_rate: bool = False
) -> RenderableType:
    longest = max(costs.values())
    names = min(MOST_NAME, max(map(len, costs)))
    room = width - names - (24 if as_rate else 12)
    lines = [Text(title, style="bold"), Text("#" * width, style="dim")]
    for name, cost in costs.items():
        text = quantity(cost, unit) + (f" = {rate(cost)}" if as_rate else "")
        label = name if len(name) <= names else name[: names - 1] + "…"
        line = Text(f"{label:<{names}} ").append(bar(cost, longest, room), style="cyan")
        lines.append(line.append(f" {text}"))
    lines.append(Text(f"linear from 0; one █ is {quantity(longest / room, unit)}", style="dim"))
    return Group(*lines, "")


def _attribution(sheet: Sheet, width: int) -> list[RenderableType]:
    """Where the time goes, as bars of one scale: what is short is fast."""
    order = tables.part_names(sheet)
    if not order:
        return []
    rows = [row for row in sheet.rows if row.cell.parts and row.entry.twin_of is None]
    found = {
        row.entry.name: {name: series.median for name, series in row.cell.parts.items()}
        for row in rows
    }
    longest = max(sum(parts.values()) for parts in found.values())
    names = min(MOST_NAME, max(map(len, found)))
    lines = [Text(f"Where the time goes: {sheet.title}", style="bold")]
    for name, parts in found.items():
        drawn = stacked(parts, longest, width - names - 12, order)
        lines.append(Text(f"{name[:names]:<{names}} {drawn} {quantity(sum(parts.values()), 'ns')}"))
    legend = "  ".join(f"{FILLS[i % len(FILLS)]} {name}" for i, name in enumerate(order))
    return [Group(*lines, Text(legend, style="dim"), "")]


def _contrasts(analysis: Analysis) -> RenderableType:
    parts: list[RenderableType] = [Text("Side by side, for an average operation", style="bold")]
    for title, contrasts in analysis.contrasts.items():
        parts.append(Text(title, style="dim"))
        for each in contrasts:
            says = beside(each.effect, each.verdict, each.b.name)
            parts.append(Text(f"  {each.a.name}: {says}"))
    return Group(*parts, "")


def _views(analysis: Analysis, width: int, colours: bool) -> list[RenderableType]:
    views = views_of(analysis)
    sentences = [Text(sentence) for sentence in views.sentences]
    drawn = [draw(part, width, colours) for part in views.parts]
    return [*drawn, *([Group(*sentences, "")] if sentences else [])]


def _notes(analysis: Analysis) -> RenderableType:
    notes = [f"{kind_name(kind)} {math.expm1(f):.1%}" for kind, f in analysis.floors.items()]
    lines = []
    if notes:
        lines.append(
            f"Noise floor (A/A twins): {', '.join(notes)}; smaller differences print as same. "
            "? means: larger, but the interval includes none."
        )
    lines.append("Grey or in brackets: too few samples to be firm (P90 wants 100, P99 1,000).")
    lines.append(counts_line(analysis))
    seen = dict.fromkeys(e.note for e in analysis.contenders if e.note)
    for note in seen:
        names = ", ".join(e.name for e in analysis.contenders if e.note == note)
        lines.append(f"{names}: {note}.")
    return Group(*(Text(line, style="dim") for line in lines), "")


def counts_line(analysis: Analysis) -> str:
    """Proof of work in one sentence."""
    cells = analysis.sample.cells.values()
    hits = sum(cell.hits for cell in cells)
    misses = sum(cell.misses for cell in cells)
    refused = sum(cell.refused for cell in cells)
    dropped = sum(cell.warm_up for cell in cells)
    kept = sum(cell.count for cell in cells)
    share = dropped / (dropped + kept) if kept else 0
    text = f"{hits:,} answers verified, {misses:,} wanted misses, 0 wrong among those measured"
    text += f", {refused:,} values refused" if refused else ""
    return f"{text}; {share:.1%} of samples left out as warm-up."


def kind_name(kind: str) -> str:
    return "servers" if kind == "server" else "in process"


def _verdict(analysis: Analysis, advice: Recommendation) -> RenderableType:
    parts: list[RenderableType] = [Text(f"! {line}", style="yellow") for line in advice.warnings]
    if not analysis.ranking:
        return Group(*parts)  # nothing here is a cache that one could choose
    parts += [Text(sentence) for sentence in advice.sentences]
    if advice.caches_block:
        parts += ["", Text(advice.caches_block, style="green")]
    return Group(*parts)
