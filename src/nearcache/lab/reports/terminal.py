"""A sample in 80 to 100 columns: tables, "shorter better" bars, the verdict."""

from __future__ import annotations

import math

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from nearcache.lab.analysis import Analysis, Row
from nearcache.lab.model import NO_PAYLOAD
from nearcache.lab.verdict import (
    TIMES,
    TO,
    Recommendation,
    beside,
    describe_mix,
    recommend,
    short,
    us,
)

WIDEST = 100
NAME_WIDTH = 26
# What the overview shows first; the page has everything.
OVERVIEW = (
    ("get", "S"), ("get", "F"), ("get", "H"), ("get", "Q"), ("get_fresh", "S"),
    ("set", "S"), ("set", "Q"),
    ("get_many", "S"), ("incr", NO_PAYLOAD), ("delete", "S"), ("miss", NO_PAYLOAD),
)  # fmt: skip


def print_report(
    analysis: Analysis, console: Console, operation: str | None = None, payload: str | None = None
) -> None:
    console.print(Group(*report_parts(analysis, width_of(console), operation, payload)))


def width_of(console: Console) -> int:
    return min(console.width, WIDEST)


def report_parts(
    analysis: Analysis, width: int, operation: str | None = None, payload: str | None = None
) -> list[RenderableType]:
    detail = _detail_cell(analysis, operation, payload)
    advice = recommend(analysis)
    parts: list[RenderableType] = [_heading(analysis)]
    if analysis.absent:
        parts.append(_absent(analysis))
    if analysis.cell_names:
        parts += [_overview(analysis, width), _detail(analysis, width, *detail)]
    if analysis.ranking:
        parts.append(_bars(analysis, width))
    if analysis.contrasts:
        parts.append(_contrasts(analysis))
    return [*parts, _notes(analysis), _verdict(advice)]


def _heading(analysis: Analysis) -> RenderableType:
    about = analysis.sample.about
    machine = about["machine"]
    rounds = analysis.sample.rounds
    lines = [
        Text(about["question"], style="bold"),
        Text(
            f"{machine['cpu_model']}, {machine['cpus_usable']} CPUs, {machine['python']}, "
            f"kernel {machine['kernel']}"
        ),
        Text(
            f"{len(rounds)} rounds in {len({r for r, _ in rounds})} sets of fresh "
            f"processes, {about['seconds']:.0f} s, seed {about['seed']}. Client and server share "
            f"CPU {about['cpu']}."
        ),
    ]
    return Group(*lines, "")


def _absent(analysis: Analysis) -> RenderableType:
    table = _table("Not in the tables")
    table.add_column("candidate", no_wrap=True)
    table.add_column("why")
    for entry in analysis.absent:
        why = f"{entry.state}: {entry.reason}"
        if entry.install and entry.install not in entry.reason:
            why += f" -> {entry.install}"
        table.add_row(entry.name, Text(why))
    return Group(table, "")


def _overview(analysis: Analysis, width: int) -> RenderableType:
    names = [name for name in OVERVIEW if name in analysis.cell_names]
    names += [name for name in analysis.cell_names if name not in names]
    names = names[: max(1, (width - NAME_WIDTH - 2) // 7)]
    table = _table("Median, µs per call (many: 20 keys; fresh: just written by another process)")
    table.add_column("", no_wrap=True, width=NAME_WIDTH)
    for operation, payload in names:
        head = operation.removeprefix("get_") + (f"\n{payload}" if payload != "-" else "\n")
        table.add_column(head, justify="right", no_wrap=True, min_width=5)
    columns = [{row.entry.name: row for row in analysis.rows(*name)} for name in names]
    best = [min(row.summary.median for row in column.values()) for column in columns]
    for entry in analysis.measured:
        cells = [
            _overview_cell(col.get(entry.name), top) for col, top in zip(columns, best, strict=True)
        ]
        table.add_row(entry.name, *cells)
    payloads = analysis.sample.about["payloads"]
    legend = ", ".join(f"{letter} {title}" for letter, title in payloads.items())
    return Group(table, Text(legend, style="dim"), "")


def _overview_cell(row: Row | None, best: float) -> Text:
    if row is None:
        return Text("-", style="dim")
    return Text(us(row.summary.median), style="bold" if row.summary.median == best else "")


def _detail_cell(analysis: Analysis, operation: str | None, payload: str | None) -> tuple[str, str]:
    for name in analysis.cell_names:
        if operation in (None, name[0]) and payload in (None, name[1]):
            return name
    return analysis.cell_names[0] if analysis.cell_names else ("", "")


def _detail(analysis: Analysis, width: int, operation: str, payload: str) -> RenderableType:
    title = analysis.sample.about["payloads"].get(payload)
    wide = width >= 94
    table = _table(f"{operation} {f'of a {title} ({payload})' if title else ''}, µs")
    table.add_column("", no_wrap=True, width=NAME_WIDTH)
    heads = ["median", "mean", "P90", "P99", "max", "s.d."] if wide else ["median", "P90", "P99"]
    for head in [*heads, f"{TIMES} {analysis.baseline} (95 %)", "bytes"]:
        table.add_column(head, justify="right", no_wrap=True)
    for row in analysis.rows(operation, payload):
        table.add_row(row.entry.name, *_numbers(row, wide), _ratio(row), _bytes(row, payload))
    return Group(table, "")


def _numbers(row: Row, wide: bool) -> list[Text]:
    summary = row.summary
    grey = "" if row.p99_is_firm else "dim"
    p90 = Text(us(summary.p90), style="" if row.p90_is_firm else "dim")
    median = Text(us(summary.median) + ("*" if row.cell.batch > 1 else ""))
    if not wide:
        return [median, p90, Text(us(summary.p99), style=grey)]
    return [
        median, Text(us(summary.mean)), p90, Text(us(summary.p99), style=grey),
        Text(us(summary.max), style="dim"), Text(us(summary.stdev)),
    ]  # fmt: skip


def _ratio(row: Row) -> Text:
    if row.effect is None:
        return Text("1")
    if row.verdict == "same":
        return Text("same", style="dim")
    effect = row.effect
    style = "dim" if row.verdict == "unclear" else ""
    mark = "?" if row.verdict == "unclear" else ""
    return Text(
        f"{short(effect.ratio)} ({short(effect.low)}{TO}{short(effect.high)}){mark}", style=style
    )


def _bytes(row: Row, payload: str) -> Text:
    stored = row.entry.stored.get(payload)
    return Text(f"{stored[0]:,.0f}" if stored else "-", style="" if stored else "dim")


def _bars(analysis: Analysis, width: int) -> RenderableType:
    ranking = analysis.ranking
    longest = max(rank.cost_ns for rank in ranking)
    room = width - NAME_WIDTH - 12
    lines = [
        Text(f"An average operation (shorter better): {describe_mix(analysis)}", style="bold"),
        Text("#" * width, style="dim"),
    ]
    for rank in ranking:
        bar = "█" * max(1, round(room * rank.cost_ns / longest))
        style = "cyan" if rank.entry.reach != "process" else "dim cyan"
        line = Text(f"{rank.entry.name:<{NAME_WIDTH}} ")
        lines.append(line.append(bar, style=style).append(f" {us(rank.cost_ns)}"))
    per_block = longest / room
    lines.append(Text(f"µs; linear from 0, one █ is {us(per_block)} µs", style="dim"))
    return Group(*lines, "")


def _contrasts(analysis: Analysis) -> RenderableType:
    parts: list[RenderableType] = [Text("Side by side, for an average operation", style="bold")]
    for title, contrasts in analysis.contrasts.items():
        table = Table.grid(padding=(0, 1))
        for contrast in contrasts:
            says = beside(contrast.effect, contrast.verdict, contrast.b.name)
            table.add_row(f"  {contrast.a.name}", says)
        parts += [Text(title, style="dim"), table]
    return Group(*parts, "")


def _notes(analysis: Analysis) -> RenderableType:
    sample = analysis.sample
    notes = [f"{kind_name(kind)} {math.expm1(f):.1%}" for kind, f in analysis.floors.items()]
    lines = []
    if notes:
        lines.append(
            f"Noise floor (A/A twins): {', '.join(notes)}; smaller differences print as same. "
            "? means: larger, but the interval includes none."
        )
    lines.append(
        f"* timed in batches of {max((c.batch for c in sample.cells.values()), default=1)}: "
        "spread is that of batch means. Grey: too few samples to be firm "
        "(P90 wants 100, P99 1,000)."
    )
    lines.append(counts_line(analysis))
    seen = dict.fromkeys(e.note for e in analysis.contenders if e.note)
    for note in seen:
        names = ", ".join(e.name for e in analysis.contenders if e.note == note)
        lines.append(f"{names}: {note}.")
    return Group(*(Padding(Text(line, style="dim"), (0, 0)) for line in lines), "")


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


def _verdict(advice: Recommendation) -> RenderableType:
    parts: list[RenderableType] = [Text(f"! {line}", style="yellow") for line in advice.warnings]
    parts += [Text(sentence) for sentence in advice.sentences]
    if advice.caches_block:
        parts += ["", Text(advice.caches_block, style="green")]
    return Group(*parts)


def _table(title: str) -> Table:
    return Table(
        title=title, title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0)
    )
