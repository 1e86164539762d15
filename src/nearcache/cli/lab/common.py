"""What several verbs need: options, the user's aliases, showing a sample."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.console import Console

from nearcache.errors import LabError

if TYPE_CHECKING:
    from nearcache.lab.base.model import Candidate
    from nearcache.lab.results.sample import Sample

Command = TypeVar("Command", bound=Callable[..., Any])


def names_option(flag: str, help_text: str) -> Callable[[Command], Command]:
    """An option that takes names separated by commas."""

    def split(_ctx: click.Context, _param: click.Parameter, value: str) -> list[str]:
        return [name.strip() for name in value.split(",") if name.strip()]

    return click.option(flag, metavar="A,B", default="", callback=split, help=help_text)


def show(
    sample: Sample, page: Path | None, operation: str | None = None, payload: str | None = None
) -> None:
    from nearcache.lab.judging.analysis import Analysis
    from nearcache.lab.reports.html import write_page
    from nearcache.lab.reports.terminal import print_report

    analysis = Analysis(sample)
    _check_detail(analysis.cell_names, operation, payload)
    print_report(analysis, Console(highlight=False), operation, payload)
    if page:
        write_page(analysis, page)


def _check_detail(
    names: Sequence[tuple[str, str]], operation: str | None, payload: str | None
) -> None:
    from nearcache.lab.arms.candidates import unknown_name

    for kind, wanted, known in (
        ("operation", operation, dict.fromkeys(name[0] for name in names)),
        ("payload", payload, dict.fromkeys(name[1] for name in names)),
    ):
        if wanted is not None and wanted not in known:
            raise LabError(unknown_name(kind, wanted, known))


def own_aliases(module: str, wanted: Sequence[str]) -> list[Candidate]:
    """Candidates for the caches of a user's settings module."""
    from django.conf import Settings

    from nearcache.lab.arms.candidates import unknown_name
    from nearcache.lab.base.redact import redact
    from nearcache.lab.own.alias import own_alias

    sys.path.insert(0, os.getcwd())
    try:
        found = vars(Settings(module))
        configured: dict[str, Any] = found.get("CACHES", {})
    except (Exception, SystemExit) as error:
        lines = redact(str(error)).splitlines()
        said = f"{type(error).__name__}: {lines[0] if lines else ''}"
        raise LabError(
            f"settings module {module!r} does not import ({said}); run from the directory "
            "of manage.py, or set PYTHONPATH"
        ) from error
    for name in wanted:
        if name not in configured:
            raise LabError(unknown_name("alias in CACHES", name, configured))
    databases = found.get("DATABASES")
    chosen = {name: configured[name] for name in wanted or configured}
    for name, entry in chosen.items():
        if not isinstance(entry, dict) or not isinstance(entry.get("BACKEND"), str):
            raise LabError(f"CACHES[{name!r}] of {module} is no dict with a BACKEND in it")
    return [own_alias(module, name, entry, databases) for name, entry in chosen.items()]


def require_lab_extra() -> None:
    try:
        import hdrh  # noqa: F401
        import jinja2  # noqa: F401
    except ImportError as error:
        raise LabError(f"{error.name} is not installed; pip install 'nearcache[lab]'") from error
