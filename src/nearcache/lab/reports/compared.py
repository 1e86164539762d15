"""A comparison of two runs: for a terminal, as Markdown, and as one page without scripts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.console import Console, Group
from rich.text import Text

from nearcache.lab.judging.compare import OVERALL, Comparison, Pair
from nearcache.lab.judging.words import TIMES, TO
from nearcache.lab.reports import html, markdown, terminal
from nearcache.lab.reports.tables import kind_name
from nearcache.report.model import Grey, Table
from nearcache.report.terminal import draw
from nearcache.report.units import quantity, short

WORDS = {"faster": "faster", "slower": "SLOWER", "same": "same", "unclear": "unclear"}


def print_comparison(found: Comparison, console: Console, *, everything: bool = False) -> None:
    width = min(console.width, terminal.WIDEST)
    colours = console.color_system is not None
    drawn = [draw(table, width, colours) for table in _tables(found, everything)]
    lines = [Text(line) for line in summary(found)]
    heading = Text(title(found), style="bold")
    console.print(Group(heading, "", *drawn, *lines), width=width)


def render_markdown(found: Comparison) -> str:
    lines = [f"# {markdown.escape(title(found))}", ""]
    for line in summary(found):
        lines += [markdown.escape(line), ""]
    for table in _tables(found, everything=True):
        lines += [*markdown.table_lines(table), ""]
    return "\n".join(lines).rstrip() + "\n"


def render_html(found: Comparison) -> str:
    return html.render_tables(title(found), summary(found), list(_tables(found, everything=True)))


def title(found: Comparison) -> str:
    about = [side.sample.about for side in (found.before, found.after)]
    return f"{about[0]['experiment']}: {about[0]['started']} and {about[1]['started']}"


def summary(found: Comparison) -> list[str]:
    """The answer in sentences, and how far it can be trusted."""
    slower, faster = found.having("slower"), found.having("faster")
    rest = [len(found.having("same")), len(found.having("unclear"))]
    text = f"Of {len(found.pairs)} comparisons {len(slower)} became slower, {len(faster)} faster; "
    lines = [text + f"{rest[0]} are the same within the noise, {rest[1]} cannot be told."]
    if found.is_one_run:
        lines.insert(0, "Both sides are one and the same run; no difference can be seen in it.")
    if slower:
        worst = max(slower, key=lambda pair: pair.effect.log_ratio)
        lines.append(f"Worst: {_said(worst)}.")
    lines += [f"Noise floor: {_floors(found)}; the coarser of both counts."]
    if found.single_runs:
        lines.append(
            "One side is a single run: what differs from one run to the next is not in the "
            "intervals. Give directories of several runs to have it in."
        )
    return lines


def _said(pair: Pair) -> str:
    where = f"{pair.operation} {pair.payload}".replace(" -", "").strip()
    return f"{pair.candidate}, {where}: {ratio(pair)} of its former time"


def ratio(pair: Pair) -> str:
    effect = pair.effect
    return f"{short(effect.ratio)}{TIMES} ({short(effect.low)}{TO}{short(effect.high)})"


def _floors(found: Comparison) -> str:
    sides = []
    for word, side in (("before", found.before), ("after", found.after)):
        floors = [
            f"{kind_name(kind)} {math.expm1(floor):.1%}" for kind, floor in side.floors.items()
        ]
        sides.append(f"{word} {', '.join(floors) or 'not measured'}")
    return "; ".join(sides)


def _tables(found: Comparison, everything: bool) -> Iterator[Table]:
    if found.changes:
        yield Table(
            title="What changed besides",
            head=["", "before", "after"],
            rows=[[change.what, change.before, change.after] for change in found.changes],
            text_columns=(0, 1, 2),
        )
    if found.overall:
        yield pair_table(OVERALL.capitalize(), found.overall)
    cells = found.cells if everything else _findings(found.cells)
    if cells:
        yield pair_table("By operation and payload", cells)
    if found.not_compared:
        parts = (line.partition(": ") for line in found.not_compared)
        rows = [[what, why] for what, _, why in parts]
        yield Table(title="Not compared", head=["", ""], rows=rows, text_columns=(0, 1))


def _findings(cells: Sequence[Pair]) -> list[Pair]:
    return [pair for pair in cells if pair.verdict in ("slower", "faster")]


def pair_table(name: str, pairs: Sequence[Pair]) -> Table:
    """The worst first."""
    ordered = sorted(pairs, key=lambda pair: -pair.effect.log_ratio)
    where = [] if pairs[0].operation == OVERALL else ["operation", "payload"]
    head = ["candidate", *where, "before", "after", f"{TIMES} (95 %)", "is"]
    rows = [_row(pair) for pair in ordered]
    text_columns = (*range(len(where) + 1), len(head) - 1)
    return Table(title=name, head=head, rows=rows, text_columns=text_columns)


def _row(pair: Pair) -> list[str]:
    is_firm = pair.verdict in ("slower", "faster")
    says = [ratio(pair), WORDS[pair.verdict]]
    where = [pair.operation, pair.payload.removeprefix("-")]
    return [
        pair.candidate,
        *([] if pair.operation == OVERALL else where),
        quantity(pair.before, pair.unit),
        quantity(pair.after, pair.unit),
        *(says if is_firm else map(Grey, says)),
    ]
