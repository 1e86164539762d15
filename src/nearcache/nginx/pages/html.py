"""A page as one HTML file: what the terminal shows, with charts drawn and nothing cut.

Only where there are curves to draw it has scripts. Without scripts the tables of their points
are open. Needs Jinja2 (``pip install "nearcache[nginx]"``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from nearcache.errors import NginxError
from nearcache.report import html
from nearcache.report.model import Page, Part, Sparks, Table, TabledChart

FOLDER = Path(__file__).parent
HEIGHT = 110
COLOURS = 4  # --c0 to --c3 of the style sheet
STEP = 10  # from one column to the next, in the drawing's own unit


@dataclass(frozen=True)
class Shown:
    """A part, ready for the template."""

    kind: str
    view: Part
    columns: Sequence[tuple[float, float, str]] = ()  # x, height, what the pointer shows
    width: float = 0
    step: float = STEP - 1
    top: str = ""  # what the highest column stands for
    number: int = 0  # of a chart, among the charts
    colours: Sequence[str] = ()  # of its lines, as the style sheet names them


def write_page(page: Page, path: Path) -> None:
    """Writes the page. Raises NginxError if that is not possible."""
    try:
        path.write_text(render(page), encoding="utf-8")
    except OSError as error:
        raise NginxError(f"{path} cannot be written: {error.strerror}") from error


def render(page: Page) -> str:
    drawn = [part for part in page.parts if isinstance(part, TabledChart)]
    curves = [html.curve_data(each, _colours(each)) | {"ticks": each.ticks} for each in drawn]
    try:
        return html.render(
            FOLDER,
            "page.html.j2",
            title=f"nginx cache: {page.title.lower()}",
            style="page.css",
            scripts=("page.js",),
            data=curves or None,
            page=page,
            parts=[_shown(part, drawn) for part in page.parts],
        )
    except ImportError as error:
        raise NginxError("HTML needs: pip install 'nearcache[nginx]'") from error


def _colours(chart: TabledChart) -> list[str]:
    """What is dashed belongs to another line, and is faint."""
    solid = (f"c{number % COLOURS}" for number in count())
    return ["faint" if line.dashed else next(solid) for line in chart.lines]


def _shown(part: Part, drawn: Sequence[TabledChart]) -> Shown:
    if isinstance(part, Table):
        return Shown("table", part)
    if isinstance(part, TabledChart):
        return Shown("chart", part, number=drawn.index(part), colours=_colours(part))
    if not isinstance(part, Sparks):
        return Shown("points", part)
    top = max((value for value in part.values if value is not None), default=0) or 1
    columns = [
        (STEP * place, round(HEIGHT * value / top, 1), part.shown(value))
        for place, value in enumerate(part.values)
        if value is not None
    ]
    width = STEP * max(1, len(part.values))
    return Shown("columns", part, columns, width, top=part.shown(top) if columns else "")
