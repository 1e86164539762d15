"""A sample as Markdown, for an issue, a wiki or a page of docs; the same tables as elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from nearcache.lab.advice.verdict import describe_mix, opening, recommend
from nearcache.lab.checks.firm import legend
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.judging.words import beside
from nearcache.lab.reports import tables
from nearcache.lab.reports.parts import views_of
from nearcache.lab.reports.terminal import counts_line
from nearcache.report.model import Chart, Grey, Grid, Strong, Table
from nearcache.report.plots import plot
from nearcache.report.units import quantity

CHART_WIDTH = 92
# What Markdown or the HTML it becomes would read as more than text.
SPECIAL = re.compile(r"([\\`*\[\]<>|#~&]|(?<!\w)_|_(?!\w))")


def render(analysis: Analysis) -> str:
    return "\n".join(_lines(analysis)).rstrip() + "\n"


def _lines(analysis: Analysis) -> Iterator[str]:
    about, machine = analysis.sample.about, analysis.sample.about["machine"]
    yield f"# {escape(about['question'])}"
    yield ""
    for sentence in opening(analysis):
        yield from (f"**{escape(sentence)}**", "")
    yield escape(
        f"{about['experiment']}, {about['started']}: {machine['cpu_model']}, "
        f"{machine['cpus_usable']} CPUs, {machine['python']}, kernel {machine['kernel']}; "
        f"{tables.rounds_line(analysis)}, {about['seconds']:.0f} s, {about['state']}."
    )
    yield ""
    if data := tables.data_line(analysis):
        yield from (escape(data), "")
    yield from answer_lines(analysis)
    views = views_of(analysis)
    for sentence in views.sentences:
        yield f"- {escape(sentence)}"
    for table in _tables(analysis):
        yield ""
        yield from table_lines(table)
    for part in views.parts:
        yield ""
        yield from view_lines(part)
    yield ""
    yield from _notes(analysis)


def answer_lines(analysis: Analysis) -> Iterator[str]:
    """Warnings, and the verdict where there is an order to have one of."""
    advice = recommend(analysis)
    yield escape(tables.badge_line(analysis)) + "."
    for check in tables.failures(analysis):
        word = "**Void**" if check.voids else "Not kept"
        yield f"- {word}: {escape(check.name)}: {escape(check.text)}"
    yield ""
    for line in advice.warnings:
        yield f"> {escape(line)}"
    if advice.sentences:
        yield ""
        yield from (escape(sentence) for sentence in advice.sentences)
        if advice.caches_block:
            yield from ("", "```python", advice.caches_block, "```")
    yield ""


def _tables(analysis: Analysis) -> Iterator[Table]:
    sheets = tables.sheets(analysis)
    found = [tables.claims(analysis), ranking_table(analysis), contrast_table(analysis)]
    if len(sheets) > 1:
        found.append(tables.overview(analysis, sheets))
    for sheet in sheets:
        found += [tables.cell_table(sheet), tables.parts(sheet), tables.measures(sheet)]
    found += [tables.outcomes(analysis), tables.absent(analysis), tables.checks(analysis)]
    yield from (table for table in found if table)


def ranking_table(analysis: Analysis) -> Table | None:
    """The order, in groups; within a group there is none."""
    if not analysis.ranking:
        return None
    group_of = {
        name: number
        for number, names in enumerate(tables.rank_groups(analysis), 1)
        for name in names
    }
    rows = []
    for rank in analysis.ranking:
        says = beside(rank.effect, rank.verdict, analysis.baseline) if rank.effect else "baseline"
        takes = quantity(rank.cost_ns, "ns")
        rows.append([str(group_of[rank.entry.name]), rank.entry.name, takes, says])
    return Table(
        title="An average operation",
        head=["group", "candidate", "takes", ""],
        rows=rows,
        text_columns=(1, 3),
        note=f"{describe_mix(analysis)}. Within a group this run has seen no order.",
    )


def contrast_table(analysis: Analysis) -> Table | None:
    rows = [
        [title, each.a.name, beside(each.effect, each.verdict, each.b.name)]
        for title, pairs in analysis.contrasts.items()
        for each in pairs
    ]
    if not rows:
        return None
    head = ["question", "candidate", "is"]
    return Table(title="Side by side", head=head, rows=rows, text_columns=(0, 1, 2))


def _notes(analysis: Analysis) -> Iterator[str]:
    if floors := tables.floors_line(analysis):
        yield f"Noise floor (A/A twins): {floors}. Smaller differences are called same."
    yield escape(legend(analysis.sample.cells.values()))
    yield escape(counts_line(analysis))
    for line in analysis.sample.about["cannot_answer"]:
        yield f"- Not answered: {escape(line)}"
    yield ""
    yield f"Again: `{analysis.sample.about['command'].replace('`', '')}`"


def view_lines(part: Table | Chart | Grid) -> Iterator[str]:
    if isinstance(part, Table):
        yield from table_lines(part)
    elif isinstance(part, Chart):
        yield from (f"### {escape(part.title)}", "", "```text", *plot(part, CHART_WIDTH), "```")
        yield from ("", escape(part.note)) if part.note else ()
    else:
        yield from grid_lines(part)


def table_lines(table: Table) -> Iterator[str]:
    yield from (f"### {escape(table.title)}", "")
    yield _row([escape(head.replace("\n", " ")) for head in table.head])
    columns = range(len(table.head))
    yield _row(["---" if column in table.text_columns else "---:" for column in columns])
    for row in table.rows:
        yield _row([cell(text) for text in row])
    if table.note:
        yield from ("", escape(table.note))


def grid_lines(grid: Grid) -> Iterator[str]:
    yield from (f"### {escape(grid.title)}", "")
    yield _row([escape(f"{grid.y_title} \\ {grid.x_title}"), *map(escape, grid.columns)])
    yield _row(["---"] * (len(grid.columns) + 1))
    for number, (name, words) in enumerate(zip(grid.rows, grid.words, strict=True)):
        marked = [
            f"**{escape(word)}**" if grid.here == (number, place) else escape(word)
            for place, word in enumerate(words)
        ]
        yield _row([escape(name), *marked])
    yield from ("", "Bold: you are here.") if grid.here else ()
    yield from ("", escape(grid.note)) if grid.note else ()


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def cell(text: str) -> str:
    """Grey has no place in Markdown: numbers that are not firm stand in brackets."""
    if isinstance(text, Strong):
        return f"**{escape(text)}**"
    is_number = isinstance(text, Grey) and text[:1].isdigit() and text[-1:].isdigit()
    return f"({escape(text)})" if is_number else escape(text)


def escape(text: str) -> str:
    return SPECIAL.sub(r"\\\1", " ".join(text.split()))
