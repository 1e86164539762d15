"""A page as one HTML file: no network, no other file, nothing that a log can smuggle in.

It shows what the terminal shows, with charts drawn and nothing cut. Names come from
whoever sent requests: all is escaped, and the file's own policy (CSP) allows its style
sheet by its hash, and, only if there are curves to draw, the scripts that do it. Without
scripts the tables of their points are open. Needs Jinja2 (``pip install "nearcache[nginx]"``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import count
from pathlib import Path
from typing import Any

from nearcache import charts
from nearcache.errors import NginxError
from nearcache.nginx.pages.model import (
    Chart,
    Page,
    Part,
    Sparks,
    Table,
)

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
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise NginxError("HTML needs: pip install 'nearcache[nginx]'") from error
    environment = Environment(
        loader=PackageLoader("nearcache.nginx.pages", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    drawn = [part for part in page.parts if isinstance(part, Chart)]
    style = "".join([*map(charts.resource, charts.STYLES if drawn else ()), _ours("page.css")])
    scripts = [*map(charts.resource, charts.SCRIPTS), _ours("page.js")] if drawn else []
    return environment.get_template("page.html.j2").render(
        page=page,
        parts=[_shown(part, drawn) for part in page.parts],
        style=Markup(style),  # noqa: S704 - ours
        scripts=[Markup(script) for script in scripts],  # noqa: S704 - ours
        data=Markup(charts.as_script(list(map(_data, drawn)))),  # noqa: S704 - escaped there
        policy=Markup(_policy(style, scripts)),  # noqa: S704 - hashes
    )


def _ours(name: str) -> str:
    return resources.files("nearcache.nginx.pages").joinpath(name).read_text("utf-8")


def _policy(style: str, scripts: Sequence[str]) -> str:
    allowed = {"script-src": scripts, "style-src": [style]}
    rules = [
        f"{what} {' '.join(map(charts.hash_source, sources))}"
        for what, sources in allowed.items()
        if sources
    ]
    return "; ".join(["default-src 'none'", *rules, "base-uri 'none'", "form-action 'none'"])


def _data(chart: Chart) -> dict[str, Any]:
    """What the script draws; its names are those of ``curves.js``."""
    return {
        "x": chart.x,
        "y": chart.y,
        "xLog": chart.x_log,
        "ticks": chart.ticks,
        "marks": chart.marks,
        "lines": [
            {"name": line.name, "dashed": line.dashed, "points": line.points, "colour": colour}
            for line, colour in zip(chart.lines, _colours(chart), strict=True)
        ],
    }


def _colours(chart: Chart) -> list[str]:
    """What is dashed belongs to another line, and is faint."""
    solid = (f"c{number % COLOURS}" for number in count())
    return ["faint" if line.dashed else next(solid) for line in chart.lines]


def _shown(part: Part, drawn: Sequence[Chart]) -> Shown:
    if isinstance(part, Table):
        return Shown("table", part)
    if isinstance(part, Chart):
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
