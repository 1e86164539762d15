"""A page as lines that fit a width: tables, bars and sparklines, as plain text.

What is too wide for a table is left out, from the right: a screen that is drawn every second
has no room below. ``terminal.py`` leaves nothing out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from textwrap import wrap

from rich.cells import cell_len, set_cell_size

from nearcache.report.model import Page, Points, Sparks, Table, TabledChart
from nearcache.report.plots import bar, resampled, sparkline

MOST_WIDTH = 100
LEAST_WIDTH = 30
LEAST_NAME = 14
BAR_ROOM = 24
LEAST_BAR = 4


def lines_of(page: Page, width: int) -> list[str]:
    """The page as lines of at most ``width`` columns."""
    width = max(LEAST_WIDTH, min(width, MOST_WIDTH))
    lines: list[str] = []
    for sentence in page.sentences:
        lines += _paragraph(sentence, width)
    for part in page.parts:
        shown = part.table if isinstance(part, TabledChart) else part
        lines += ["", part.title, *_drawn(shown, width)]
    if page.notes:
        lines += ["", *(line for note in page.notes for line in _item("- ", note, width))]
    return lines


def _drawn(part: Table | Sparks | Points, width: int) -> list[str]:
    if isinstance(part, Points):
        return [
            line
            for number, text in enumerate(part.points, 1)
            for line in _item(f"{number}. ", text, width)
        ]
    drawn = table_lines(part, width) if isinstance(part, Table) else _sparks(part, width)
    return [*drawn, *_paragraph(part.note, width)]


def _paragraph(text: str, width: int) -> list[str]:
    return wrap(text, width, break_on_hyphens=False)


def _item(sign: str, text: str, width: int) -> list[str]:
    return hanging(sign, text, width, break_words=True)


def hanging(
    head: str,
    text: str,
    width: int = MOST_WIDTH,
    *,
    below: str | None = None,
    break_words: bool = False,
) -> list[str]:
    """``head`` and ``text``, its further lines below its first, or behind ``below``.

    A word that is longer than a line stays whole, unless told otherwise.
    """
    lines = wrap(
        text,
        width,
        initial_indent=head,
        subsequent_indent=" " * len(head) if below is None else below,
        break_long_words=break_words,
        break_on_hyphens=False,
    )
    return lines or [head]


def cut(text: str, width: int) -> str:
    """With a mark at its end, if it is too wide."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…"


def _with_bars(table: Table, width: int) -> Table:
    """Bars get what the columns leave: a word that is cut says less than a bar that is short."""
    taken = sum(widest + 2 for widest in _widths(table))
    room = min(BAR_ROOM, width - taken)
    if room < LEAST_BAR:
        return replace(table, bars=())
    drawn = [bar(share, room) for share in table.bars]
    return replace(
        table,
        head=[*table.head, ""],
        rows=[[*row, each] for row, each in zip(table.rows, drawn, strict=True)],
        text_columns=(*table.text_columns, len(table.head)),
        bars=(),
    )


def _widths(table: Table) -> list[int]:
    return [
        max(cell_len(row[column]) for row in (table.head, *table.rows))
        for column in range(len(table.head))
    ]


def table_lines(table: Table, width: int) -> list[str]:
    """The head and the rows, in at most so many columns."""
    if table.bars:
        table = _with_bars(table, width)
    widths = _widths(table)
    least = min(widths[0], LEAST_NAME)
    while len(widths) > 2 and least + sum(widths[1:]) + 2 * (len(widths) - 1) > width:
        widths.pop()
    if len(widths) > 1 and 1 in table.text_columns:
        widths[1] = min(widths[1], max(width // 2, width - 2 - widths[0]))
    widths[0] = max(4, min(widths[0], width - sum(widths[1:]) - 2 * (len(widths) - 1)))
    return [_row(row, widths, table.text_columns) for row in (table.head, *table.rows)]


def _row(cells: Sequence[str], widths: Sequence[int], text_columns: Sequence[int]) -> str:
    shown = []
    for column, wide in enumerate(widths):
        text = cut(cells[column], wide)
        room = " " * (wide - cell_len(text))
        shown.append(text + room if column in text_columns else room + text)
    return "  ".join(shown).rstrip()


def _sparks(sparks: Sparks, width: int) -> list[str]:
    values = resampled(sparks.values, width, _mean)
    gap = max(1, len(values) - len(sparks.left) - len(sparks.right))
    return [sparkline(values), f"{sparks.left}{' ' * gap}{sparks.right}"]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
