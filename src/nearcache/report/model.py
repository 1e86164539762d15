"""A report before it is drawn: sentences, tables, charts and notes. Not here: how they look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


class Grey(str):
    """The text of a cell that is not firm, or void: drawn grey, in brackets where nothing is."""

    __slots__ = ()


class Strong(str):
    """The text of a cell that stands out: the best of its column."""

    __slots__ = ()


@dataclass(frozen=True)
class Table:
    """Cells are ready to print. The first column is text, all others are right-aligned.

    A head may have several lines, except in a page that is shown by ``plain.py``.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    text_columns: Sequence[int] = (0,)  # aligned to the left
    bars: Sequence[float] = ()  # of each row, drawn beside it in a page; 1.0 is the longest


@dataclass(frozen=True)
class Line:
    """One curve: its points from left to right, in the units of the axes; None is not known."""

    name: str
    points: Sequence[tuple[float, float | None]]
    dashed: bool = False
    dots: bool = False  # points only, not joined
    family: str = ""  # chooses its colour, as in all other charts


@dataclass(frozen=True)
class Mark:
    """A vertical line with a word beside it: a threshold, a knee, "you are here"."""

    x: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Curves over one axis. Titles of axes name the unit."""

    title: str
    x_title: str
    y_title: str
    lines: Sequence[Line]
    x_log: bool = False
    y_log: bool = False
    marks: Sequence[Mark] = ()
    note: str = ""

    def drawable(self, line: Line) -> list[tuple[float, float]]:
        """The points that the axes can show: a logarithm has no place for zero."""
        return [
            (x, y)
            for x, y in line.points
            if y is not None and (x > 0 or not self.x_log) and (y > 0 or not self.y_log)
        ]


@dataclass(frozen=True, kw_only=True)
class TabledChart(Chart):
    """A chart of few points, each with a name: where it is not drawn its table is shown."""

    ticks: Sequence[tuple[float, str]]
    """Where points are, and what is written there: with its unit."""
    table: Table


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A map: a word for every pair of a column and a row, coloured by the word."""

    title: str
    x_title: str
    y_title: str
    columns: Sequence[str]
    rows: Sequence[str]
    words: Sequence[Sequence[str]]  # words[row][column]
    here: tuple[int, int] | None = None  # (row, column) of the reader
    note: str = ""


@dataclass(frozen=True)
class Sparks:
    """One line of small columns, with what is under its ends."""

    title: str
    values: Sequence[float | None]
    left: str
    right: str
    note: str = ""
    shown: Callable[[float], str] = field(default=lambda value: f"{value:,.0f}", repr=False)


@dataclass(frozen=True)
class Points:
    """Numbered paragraphs."""

    title: str
    points: Sequence[str]
    note: str = ""


Part = Table | Sparks | Points | TabledChart


@dataclass(frozen=True)
class Page:
    """One report: what it says first, its findings, its tables, and what it could not tell."""

    title: str
    sentences: Sequence[str]
    parts: Sequence[Part] = ()
    notes: Sequence[str] = ()
