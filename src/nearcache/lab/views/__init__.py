"""What only one experiment shows: its tables, charts and sentences, made from a sample.

An experiment that needs more than the common report names a module here in its
``views``. The module has one function, ``views(analysis) -> Views``; reports/parts.py
calls it. Terminal, HTML and Markdown all draw the same objects, so they cannot disagree;
and nothing here measures.
``lab/base/units.py`` writes numbers with their unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


class Grey(str):
    """The text of a cell that is not firm, or void: drawn grey, in brackets where nothing is."""

    __slots__ = ()


class Strong(str):
    """The text of a cell that stands out: the best of its column."""

    __slots__ = ()


@dataclass(frozen=True, kw_only=True)
class Table:
    """Cells are ready to print. The first column is text, all others are right-aligned.

    A head may have several lines. A terminal continues below what is too wide.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    text_columns: Sequence[int] = (0,)  # aligned to the left
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One curve: its points from left to right, in the units of the axes."""

    name: str
    points: Sequence[tuple[float, float]]
    family: str = ""  # chooses its colour, as in all other charts
    dashed: bool = False
    dots: bool = False  # points only, not joined


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
class Views:
    """Everything one experiment adds to its report, in the order in which it is shown."""

    sentences: Sequence[str] = ()  # generated from the data, one finding each
    parts: Sequence[Table | Chart | Grid] = field(default_factory=tuple)
