"""The frame of a page that is one file: no network, no other file, nothing a name can smuggle in.

Names come from anywhere: from who sent requests, from who measured. So everything is escaped,
and the page's own policy (CSP) allows its scripts and its style sheet by their hashes. Curves
are drawn by uPlot and ``charts/curves.js``. Who has no scripts reads tables, so every page must
hold its numbers as text, too. Needs Jinja2.

Not here: what is in a page. The lab and the doctor each have a folder with a template, which
extends ``page/frame.html.j2``. The pages of a site (``nearcache/web``) do without Jinja2, and
take the hashes alone.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearcache.report.model import Chart

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = Path(__file__).parent
FRAME = HERE / "page"
CURVES = (HERE / "charts/uplot/uPlot.iife.min.js", HERE / "charts/curves.js")
CURVES_STYLE = HERE / "charts/uplot/uPlot.min.css"
DIGITS = 4


def render(
    folder: Path,
    template: str,
    *,
    title: str,
    style: str,
    scripts: Iterable[str] = (),
    data: Any = None,
    styled_inside: bool = False,
    filters: Mapping[str, Callable[..., Any]] | None = None,
    **shown: Any,
) -> str:
    """A page of ``folder``: its template, style sheet and scripts, by name.

    With ``data``, which its scripts read, it has the scripts that draw curves, too; without
    it has none. ``styled_inside``: its elements have styles of their own, which no hash allows.
    """
    from markupsafe import Markup

    drawn = data is not None
    sheets = [*([CURVES_STYLE] if drawn else []), FRAME / "frame.css", folder / style]
    style = "".join(map(_read, sheets))
    sources = [_read(path) for path in (*CURVES, *(folder / name for name in scripts))]
    sources = sources if drawn else []
    environment = _environment(folder)
    environment.filters.update(filters or {})
    return environment.get_template(template).render(
        title=title,
        policy=Markup(_policy(sources, None if styled_inside else style)),  # noqa: S704 - hashes
        style=Markup(style),  # noqa: S704 - ours
        scripts=[Markup(source) for source in sources],  # noqa: S704 - ours
        data=Markup(as_script(data)),  # noqa: S704 - escaped there
        **shown,
    )


@cache
def _environment(folder: Path) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader([folder, FRAME]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _policy(scripts: Sequence[str], style: str | None) -> str:
    rules = ["default-src 'none'"]
    if scripts:
        rules.append(f"script-src {' '.join(map(hash_source, scripts))}")
    allowed = "'unsafe-inline'" if style is None else hash_source(style)
    return "; ".join([*rules, f"style-src {allowed}", "base-uri 'none'", "form-action 'none'"])


def hash_source(text: str) -> str:
    """As a policy (CSP) names a script or a style sheet that it allows."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def curve_data(chart: Chart, colours: Sequence[str | None]) -> dict[str, Any]:
    """What ``charts/curves.js`` draws, one colour for each line; the names are its own."""
    return {
        "x": chart.x_title,
        "y": chart.y_title,
        "xLog": chart.x_log,
        "yLog": chart.y_log,
        "marks": [[mark.x, mark.text] for mark in chart.marks],
        "lines": [
            {
                "name": line.name,
                "colour": colour,
                "dashed": line.dashed,
                "dots": line.dots,
                "points": sorted(line.points, key=lambda point: point[0]),
            }
            for line, colour in zip(chart.lines, colours, strict=True)
        ],
    }


def as_script(data: Any) -> str:
    """JSON that cannot end the ``<script>`` it stands in, whatever names are in it."""
    text = json.dumps(_rounded(data), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _rounded(value: Any) -> Any:
    """Four digits are more than any pixel shows, and JSON knows no infinity."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        short = float(f"{value:.{DIGITS}g}")
        return int(short) if short.is_integer() else short
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value
