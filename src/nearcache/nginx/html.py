"""A page as one HTML file: no script, no network, nothing that a log can smuggle in.

It shows what the terminal shows, with charts drawn and nothing cut. Names come from
whoever sent requests: all is escaped, and the file's own policy (CSP) allows nothing but
its style sheet. Needs Jinja2 (``pip install "nearcache[nginx]"``).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from pathlib import Path

from nearcache.errors import NginxError
from nearcache.nginx.text import Page, Part, Sparks, Table

HEIGHT = 110
STEP = 10  # from one column to the next, in the drawing's own unit


@dataclass(frozen=True)
class Shown:
    """A part, ready for the template."""

    kind: str
    view: Part
    columns: Sequence[tuple[float, float, str]] = ()  # x, height, what the pointer shows
    width: float = 0
    step: float = STEP - 1


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
        loader=PackageLoader("nearcache.nginx", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = resources.files("nearcache.nginx").joinpath("page.css").read_text("utf-8")
    return environment.get_template("page.html.j2").render(
        page=page,
        parts=[_shown(part) for part in page.parts],
        style=Markup(style),  # noqa: S704 - ours
        style_hash=b64encode(sha256(style.encode()).digest()).decode(),
    )


def _shown(part: Part) -> Shown:
    if isinstance(part, Table):
        return Shown("table", part)
    if not isinstance(part, Sparks):
        return Shown("points", part)
    top = max((value for value in part.values if value is not None), default=0) or 1
    columns = [
        (STEP * place, round(HEIGHT * value / top, 1), part.shown(value))
        for place, value in enumerate(part.values)
        if value is not None
    ]
    return Shown("columns", part, columns, STEP * max(1, len(part.values)))
