"""A sample in 80 to 100 columns, whatever the experiment counts: tables, bars, the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console, Group, RenderableType
from rich.text import Text

from nearcache.lab.advice.verdict import Recommendation, describe_mix, opening, recommend
from nearcache.lab.base.model import NO_PAYLOAD
from nearcache.lab.checks.firm import legend
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.judging.claims import ClaimResult
from nearcache.lab.judging.words import TIMES, beside
from nearcache.lab.reports import tables
from nearcache.lab.reports.lead import REST_TITLE, lead_and_rest
from nearcache.lab.reports.parts import views_of
from nearcache.lab.reports.tables import Sheet
from nearcache.report.model import Table
from nearcache.report.terminal import columns_that_fit, draw, draw_bars, draw_stacks
from nearcache.report.units import short
from nearcache.report.words import plural

WIDEST = 100
MOST_SHEETS = 3  # experiments with more show the first in full, and say how to ask for others
MOST_GROUPS, MOST_ENDINGS = 8, 24
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
    found = [tables.absent(analysis), _overview(analysis, everything, width)]
    parts: list[RenderableType] = [_heading(analysis), _badge(analysis)]
    parts += [draw(table, width, colours) for table in found if table]
    for sheet in shown:
        parts += _sheet(sheet, width, colours)
    parts += _others(everything, shown)
    endings = tables.outcomes(analysis)
    parts += [draw(_first_rows(endings), width, colours)] if endings else []
    parts += [_ranking(analysis, width)] if analysis.ranking else []
    parts += [_contrasts(analysis)] if analysis.contrasts else []
    views, advice = views_of(analysis), recommend(analysis)
    lead, rest = lead_and_rest(advice.sentences, views.sentences)
    parts += [draw(part, width, colours) for part in views.parts]
    parts += _rest(rest)
    parts += _claims(analysis)
    return [*parts, _notes(analysis), _verdict(advice, lead)]


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
    return Group(
        Text(about["question"], style="bold"),
        *(Text(sentence, style="bold red") for sentence in opening(analysis)),
        Text(
            f"{machine['cpu_model']}, {machine['cpus_usable']} CPUs, {machine['python']}, "
            f"kernel {machine['kernel']}"
        ),
        Text(
            f"{tables.rounds_line(analysis)}, {about['seconds']:.0f} s, seed {about['seed']}. "
            f"{tables.place_line(analysis)}."
        ),
        *([Text(data)] if (data := tables.data_line(analysis)) else []),
        "",
    )


def _badge(analysis: Analysis) -> RenderableType:
    """How many rules hold, and which do not. What voids is said loudest."""
    lines = [Text(tables.badge_line(analysis) + ".")]
    for check in tables.failures(analysis):
        text = f"{'VOID' if check.voids else 'not kept'}: {check.name}: {check.text}"
        lines.append(Text(text, style="bold red" if check.voids else "dim"))
    return Group(*lines, "")


def _overview(analysis: Analysis, everything: Sequence[Sheet], width: int) -> Table | None:
    """As many columns as fit: all operations on the first payload before any on the next."""
    if len(everything) < 2:
        return None
    payloads = [NO_PAYLOAD, *analysis.sample.about["payloads"]]
    wanted = sorted(everything, key=lambda sheet: payloads.index(sheet.payload))
    fitting = columns_that_fit(tables.overview(analysis, wanted), width) - 1
    chosen = wanted[:fitting]
    return tables.overview(analysis, [sheet for sheet in everything if sheet in chosen])


def _sheet(sheet: Sheet, width: int, colours: bool) -> list[RenderableType]:
    unwanted = {*tables.COUNTS, *(set() if width >= ROOMY else NOT_IN_NARROW)}
    columns = [head for head in tables.columns_of(sheet) if head not in unwanted]
    parts = [draw(tables.cell_table(sheet, columns), width, colours)]
    if sheet.ranked and not sheet.analysis.ranking:
        parts += _sheet_bars(sheet, width)
        parts += _ties(tables.row_groups(sheet))
    seen = tables.measures(sheet)
    parts += [draw(_first_columns(seen, width), width, colours)] if seen else []
    return [*parts, *_attribution(sheet, width)]


def _first_rows(table: Table) -> Table:
    rest = len(table.rows) - MOST_ENDINGS
    if rest <= 0:
        return table
    note = f"{plural(rest, 'more line')} in the page"
    return replace(table, rows=table.rows[:MOST_ENDINGS], note=note)


def _first_columns(table: Table, width: int) -> Table:
    """As many secondary numbers as stand beside each other; the page has the rest."""
    fitting = columns_that_fit(table, width)
    rest = len(table.head) - fitting
    if not rest:
        return table
    rows = [row[:fitting] for row in table.rows]
    note = f"{table.note}; {plural(rest, 'more number')} in the page"
    return replace(table, head=table.head[:fitting], rows=rows, note=note)


def _others(everything: Sequence[Sheet], shown: Sequence[Sheet]) -> list[RenderableType]:
    rest = [sheet for sheet in everything if sheet not in shown]
    if not rest:
        return []
    operations = ", ".join(dict.fromkeys(sheet.operation for sheet in rest))
    payloads = ", ".join(dict.fromkeys(sheet.payload for sheet in rest if sheet.payload != "-"))
    text = f"In full: `lab report FILE --operation O --payload P`; O: {operations}"
    return [Text(text + (f"; P: {payloads}" if payloads else ""), style="dim"), ""]


def _sheet_bars(sheet: Sheet, width: int) -> list[RenderableType]:
    rows = [row for row in sheet.rows if not (row.void or row.entry.twin_of)]
    if not rows:
        return []
    costs = {row.entry.name: row.cost for row in rows}
    title = f"{sheet.title} (shorter better)"
    return [draw_bars(title, costs, sheet.unit, width, sheet.as_rate)]


def _ranking(analysis: Analysis, width: int) -> RenderableType:
    costs = {rank.entry.name: rank.cost_ns for rank in analysis.ranking}
    title = f"An average operation (shorter better): {describe_mix(analysis)}"
    bars = draw_bars(title, costs, "ns", width)
    unranked = [Text(f"{e.name} has no rank: {why}") for e, why in analysis.unranked]
    return Group(bars, *_ties(tables.rank_groups(analysis)), *unranked)


def _ties(groups: Sequence[Sequence[str]]) -> list[RenderableType]:
    """Places within a group would claim an order that this run has not seen."""
    if len(groups) < 2 and len(groups[0] if groups else ()) < 2:
        return []
    lines = [f"  {number}. {', '.join(names)}" for number, names in enumerate(groups, 1)]
    if len(lines) > MOST_GROUPS:
        lines[MOST_GROUPS:] = [f"  and {len(lines) - MOST_GROUPS} more"]
    return [Text("Groups that this run can tell apart"), *map(Text, lines), ""]


def _attribution(sheet: Sheet, width: int) -> list[RenderableType]:
    found = {
        row.entry.name: {name: series.median for name, series in row.cell.parts.items()}
        for row in sheet.rows
        if row.cell.parts and row.entry.twin_of is None
    }
    title = f"Where the time goes: {sheet.title}"
    if not found:
        return []
    drawn = draw_stacks(title, found, tables.part_names(sheet), width)
    return [drawn, Text(tables.explained(sheet)), ""]


def _contrasts(analysis: Analysis) -> RenderableType:
    by = "for an average operation" if analysis.mix_shares else "over all that both did"
    parts: list[RenderableType] = [Text(f"Side by side, {by}", style="bold")]
    for title, contrasts in analysis.contrasts.items():
        parts.append(Text(title, style="dim"))
        for each in contrasts:
            says = beside(each.effect, each.verdict, each.b.name)
            parts.append(Text(f"  {each.a.name}: {says}"))
    return Group(*parts, "")


def _claims(analysis: Analysis) -> list[RenderableType]:
    lines: list[RenderableType] = []
    known = analysis.claims()
    asked = [claim for claim in known if claim.asked]
    for claim in asked:
        lines += [Text(f"{claim.article}: {claim.text}", style="bold"), Text(f"  {said_of(claim)}")]
    if more := len(known) - len(asked):
        lines.append(
            Text(f"{plural(more, 'headline')} not asked by this plan; --markdown names all.")
        )
    return [Text("What the articles said", style="bold"), *lines, ""] if lines else []


def said_of(claim: ClaimResult) -> str:
    """The article said that many times, here it is so many: same. And what is known about that."""
    then = f"the article said {short(claim.published)}{TIMES}"
    if claim.effect is None:
        return f"{then}; {claim.word} here" + (f": {claim.why}." if claim.why else ".")
    known = f" Known: {claim.why}." if claim.why else ""
    return f"{then}; here {tables.today(claim)}: {tables.word_of(claim)}.{known}"


def _rest(sentences: Sequence[str]) -> list[RenderableType]:
    if not sentences:
        return []
    return [Text(REST_TITLE, style="bold"), *(Text(f"  {line}") for line in sentences), ""]


def _notes(analysis: Analysis) -> RenderableType:
    lines = []
    if floors := tables.floors_line(analysis):
        lines.append(
            f"Noise floor (A/A twins): {floors}. Smaller differences print as same. "
            "? means: larger, but this run cannot tell it from none."
        )
    lines.append(legend(analysis.sample.cells.values()))
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


def _verdict(advice: Recommendation, lead: Sequence[str]) -> RenderableType:
    """What a reader of the last screen takes away."""
    parts: list[RenderableType] = [Text(f"! {line}", style="yellow") for line in advice.warnings]
    parts += [Text(sentence) for sentence in lead]
    if advice.caches_block:
        parts += ["", Text(advice.caches_block, style="green")]
    return Group(*parts)
