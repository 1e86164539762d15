"""What only one experiment shows: its tables, charts and sentences, made from a sample.

An experiment that needs more than the common report names a module here in its
``views``. The module has one function, ``views(analysis) -> Views``. Terminal, HTML and
Markdown all draw the same objects, so they cannot disagree; and nothing here measures.
``lab/units.py`` writes numbers with their unit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nearcache.lab.judging.analysis import Analysis


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


EVERYWHERE = ("nearcache.lab.advice.costs",)  # what any experiment's report may show


def views_of(analysis: Analysis) -> Views:
    """What the experiment of this sample shows beside the common report, and the costs.

    A view that fails takes nothing else with it: it may meet a sample that was interrupted,
    or one of another version. The report says that it is missing, and why.
    """
    from nearcache.lab.experiments import EXPERIMENTS

    name = analysis.sample.about["experiment"]
    if not analysis.sample.has_numbers or analysis.void_run:
        return Views()  # the head of the report says why nothing is answered
    experiment = EXPERIMENTS.get(name)
    own = (experiment.views,) if experiment and experiment.views else ()
    found = [_views_of(module, name, analysis) for module in (*own, *EVERYWHERE)]
    return Views(
        sentences=tuple(sentence for views in found for sentence in views.sentences),
        parts=tuple(part for views in found for part in views.parts),
    )


def charted(experiment: str) -> re.Pattern[str] | None:
    """Names of secondary numbers that the charts of an experiment have, and tables need not."""
    from nearcache.lab.experiments import EXPERIMENTS

    known = EXPERIMENTS.get(experiment)
    if known and known.views:
        with suppress(Exception):  # views_of says that it fails, and why
            return getattr(import_module(known.views), "CHARTED", None)
    return None


def _views_of(module: str, name: str, analysis: Analysis) -> Views:
    try:
        found = import_module(module).views(analysis)
        assert isinstance(found, Views)
    except Exception as error:  # noqa: BLE001
        said = f"{type(error).__name__}: {error}"
        return Views(sentences=(f"What only {name} shows cannot be drawn: {said}.",))
    return found
