"""Tables, bars, charts and maps for a terminal: what is too wide is continued below.

Every number of a measurement must be there, so nothing is left out. ``plain.py`` draws screens,
which have no room below.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap

from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from nearcache.report.model import Chart, Grey, Grid, Strong, Table
from nearcache.report.plain import cut
from nearcache.report.plots import FILLS, LETTERS, bar, plot, stacked
from nearcache.report.units import NOTHING, quantity, rate

MOST_NAME, MOST_UNWRAPPED, MOST_TEXT = 34, 24, 60
WORD_STYLES = ("cyan", "magenta", "green", "yellow", "blue", "red", "white")


def draw(part: Table | Chart | Grid, width: int, colours: bool = True) -> RenderableType:
    if isinstance(part, Table):
        return Group(draw_table(part, width, colours), "")
    if isinstance(part, Chart):
        return draw_chart(part, width)
    return draw_grid(part, width)


def print_table(table: Table, console: Console | None = None) -> None:
    """In the width of the console; on stdout, if there is none."""
    console = console or Console(highlight=False)
    console.print(draw_table(table, console.width, console.color_system is not None))


def draw_table(table: Table, width: int, colours: bool = True) -> RenderableType:
    blocks = [
        _block(table, columns, width, colours, is_first=number == 0)
        for number, columns in enumerate(_blocks(table, width))
    ]
    notes = [Text(table.note, style="dim")] if table.note else []
    return Group(*blocks, *notes)


def columns_that_fit(table: Table, width: int) -> int:
    """How many of the table's columns stand beside each other."""
    return len(next(_greedy(table, width)))


def _blocks(table: Table, width: int) -> Iterator[list[int]]:
    """Columns that fit beside each other; every block begins with the first.

    The last one does not stand alone: it takes a column of the block before along.
    """
    found = list(_greedy(table, width))
    if len(found) > 1 and len(found[-1]) == 2 and len(found[-2]) > 3:
        pair = [0, found[-2][-1], found[-1][-1]]
        if sum(_least_width(table, column) + 1 for column in pair) <= width:
            found[-2:] = [found[-2][:-1], pair]
    yield from found


def _greedy(table: Table, width: int) -> Iterator[list[int]]:
    taken, columns = _least_width(table, 0), [0]
    for column in range(1, len(table.head)):
        needed = _least_width(table, column) + 1
        if taken + needed > width and len(columns) > 1:
            yield columns
            taken, columns = _least_width(table, 0), [0]
        taken += needed
        columns.append(column)
    yield columns


def _least_width(table: Table, column: int) -> int:
    """Numbers are never broken; text wraps."""
    longest = max((len(mark(row[column])) for row in table.rows), default=0)
    if column == 0:
        return min(MOST_NAME, max(longest, _head_width(table, 0)))
    if column in table.text_columns:
        return max(min(longest, MOST_UNWRAPPED), _word_width(table, column))
    return max(longest, _head_width(table, column))


def _whole_width(table: Table, column: int) -> int:
    longest = max(map(len, table.head[column].split("\n")))
    return max(_least_width(table, column), min(MOST_NAME, longest))


def _word_width(table: Table, column: int) -> int:
    """Names are not broken inside a word, unless they are very long."""
    words = (word for row in table.rows for word in row[column].split())
    longest = max((len(word) for word in words), default=1)
    return min(MOST_NAME, max(longest, _head_width(table, column)))


def _head_width(table: Table, column: int) -> int:
    return max((len(word) for word in table.head[column].split()), default=1)


def _block(
    table: Table, columns: Sequence[int], width: int, colours: bool, *, is_first: bool
) -> RenderableType:
    title = table.title if is_first else f"{table.title} (continued)"
    drawn = RichTable(
        box=None, padding=(0, 1, 0, 0), show_header=any(table.head[column] for column in columns)
    )
    is_prose = len(table.text_columns) == len(table.head)
    # A head is wrapped only where there is no room for it.
    needed = sum(_whole_width(table, column) + 1 for column in columns) - 1
    width_of = _whole_width if needed <= width else _least_width
    for column in columns:
        is_text = column in table.text_columns
        least = width_of(table, column)
        is_name = column == 0 and not is_prose
        drawn.add_column(
            # Wrapped here: in a column whose numbers must not break rich breaks no head either.
            Text(_wrapped(table.head[column], least)),
            justify="left" if is_text else "right",
            no_wrap=not is_text or is_name,
            overflow="ellipsis" if is_name else "fold",
            vertical="top",
            min_width=least,
            max_width=MOST_NAME if column == 0 else MOST_TEXT if is_text else None,
        )
    for row in table.rows:
        drawn.add_row(*(_cell(row[column], colours) for column in columns))
    return Group(*([Text(title, style="bold")] if table.title else []), drawn)


def _wrapped(head: str, width: int) -> str:
    lines = [wrap(line, max(width, 1), break_long_words=False) for line in head.split("\n")]
    return "\n".join(words for line in lines for words in line)


def _cell(text: str, colours: bool) -> Text:
    if isinstance(text, Grey):
        return Text(text if colours else mark(text), style="dim")
    return Text(text, style="bold" if isinstance(text, Strong) else "")


def mark(text: str) -> str:
    """A grey number where there are no colours: in brackets. Words explain themselves."""
    is_number = isinstance(text, Grey) and text[:1].isdigit() and text[-1:].isdigit()
    return f"({text})" if is_number else text


def draw_chart(chart: Chart, width: int) -> RenderableType:
    lines = [Text(line) for line in plot(chart, width)]
    notes = [Text(chart.note, style="dim")] if chart.note else []
    return Group(Text(chart.title, style="bold"), *lines, *notes, "")


def draw_grid(grid: Grid, width: int) -> RenderableType:
    """Whole words if they fit, else a letter for each."""
    words = list(dict.fromkeys(word for row in grid.words for word in row))
    names = max((len(name) for name in grid.rows), default=0)
    longest = max((len(word) for word in [*words, *grid.columns]), default=1)
    fits = names + 1 + len(grid.columns) * (longest + 3) <= width
    codes = {word: word if fits else code_of(words, word) for word in words}
    drawn = RichTable(box=None, padding=(0, 1, 0, 0))
    drawn.add_column("", no_wrap=True)
    for column in grid.columns:
        drawn.add_column(Text(column), justify="center")
    for number, (name, row) in enumerate(zip(grid.rows, grid.words, strict=True)):
        cells = []
        for place, word in enumerate(row):
            is_here = grid.here == (number, place)
            text = f"[{codes[word]}]" if is_here else codes[word]
            style = "dim" if word == NOTHING else WORD_STYLES[words.index(word) % len(WORD_STYLES)]
            cells.append(Text(text, style=f"{style} reverse" if is_here else style))
        drawn.add_row(Text(name), *cells)
    notes = [f"across: {grid.x_title}; down: {grid.y_title}"]
    notes += [] if fits else [", ".join(f"{codes[word]} {word}" for word in words)]
    notes += ["[ ]: you are here"] if grid.here else []
    notes += [grid.note] if grid.note else []
    lines = [Text(note, style="dim") for note in notes]
    return Group(Text(grid.title, style="bold"), drawn, *lines, "")


def code_of(words: Sequence[str], word: str) -> str:
    return LETTERS[words.index(word) % len(LETTERS)].upper() if word != NOTHING else NOTHING


def draw_bars(
    title: str, costs: Mapping[str, float], unit: str, width: int, as_rate: bool = False
) -> RenderableType:
    """ "Shorter better", all from zero, as the articles drew them; with a scale."""
    longest = max(costs.values())
    names = min(MOST_NAME, max(map(len, costs)))
    room = width - names - (24 if as_rate else 12)
    lines = [Text(title, style="bold"), Text("#" * width, style="dim")]
    for name, cost in costs.items():
        text = quantity(cost, unit) + (f" = {rate(cost)}" if as_rate else "")
        drawn = bar(cost / longest if longest else 0, room)
        line = Text(f"{cut(name, names):<{names}} ").append(drawn, style="cyan")
        lines.append(line.append(f" {text}"))
    lines.append(Text(f"linear from 0; one █ is {quantity(longest / room, unit)}", style="dim"))
    return Group(*lines, "")


def draw_stacks(
    title: str, stacks: Mapping[str, Mapping[str, float]], order: Sequence[str], width: int
) -> RenderableType:
    """Where the time goes: all bars on one scale, what is short is fast."""
    longest = max(sum(parts.values()) for parts in stacks.values())
    names = min(MOST_NAME, max(map(len, stacks)))
    lines = [Text(title, style="bold")]
    for name, parts in stacks.items():
        drawn = stacked(parts, longest, width - names - 12, order)
        total = quantity(sum(parts.values()), "ns")
        lines.append(Text(f"{cut(name, names):<{names}} {drawn} {total}"))
    legend = "  ".join(f"{FILLS[i % len(FILLS)]} {name}" for i, name in enumerate(order))
    return Group(*lines, Text(legend, style="dim"), "")
