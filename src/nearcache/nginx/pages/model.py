"""A report before it is drawn: sentences, tables, charts and notes. Not here: how they look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Table:
    """Cells are ready to print. The first column is text and shrinks; the others are numbers.

    Where it is too narrow, columns are left out from the right.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    text_columns: Sequence[int] = (0,)  # aligned to the left
    bars: Sequence[float] = ()  # of each row, drawn beside it; 1.0 is the longest


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


@dataclass(frozen=True)
class Line:
    """One curve: (x, y), of which None is not known."""

    name: str
    points: Sequence[tuple[float, float | None]]
    dashed: bool = False


@dataclass(frozen=True)
class Chart:
    """Curves over one axis: drawn in HTML, in a terminal the table of their points."""

    title: str
    x: str
    y: str
    lines: Sequence[Line]
    ticks: Sequence[tuple[float, str]]
    """Where points are, and what is written there: with its unit."""
    table: Table
    marks: Sequence[tuple[float, str]] = ()
    x_log: bool = False
    note: str = ""


Part = Table | Sparks | Points | Chart


@dataclass(frozen=True)
class Page:
    """One report: what it says first, its findings, its tables, and what it could not tell."""

    title: str
    sentences: Sequence[str]
    parts: Sequence[Part] = ()
    notes: Sequence[str] = ()
