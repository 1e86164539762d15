"""``nearcache nginx report``: the savings ledger."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nearcache.cli.nginx.common import (
    Reading,
    Request,
    log_options,
    read_logs,
    show_found,
)

if TYPE_CHECKING:
    from nearcache.nginx.inspect.inspection import Inspection


@click.command()
@log_options
@click.option(
    "--cache",
    "directory",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Also say what this cache directory holds, on the disk and in RAM.",
)
@click.option("--top", type=click.IntRange(0), default=10, show_default=True,
              help="Show so many locations and URL groups.")  # fmt: skip
def report(top: int, directory: Path | None, **given: Any) -> None:
    """Say what the cache saves and what it costs: in time, requests and bytes.

    FILE: access logs, plain or packed, directories of rotated ones, or - for standard input.
    Without any: those of --config, or of /var/log/nginx.

    Exits 0, 1 if a file could not be read to its end, 2 if nothing can be said.
    """
    request = Request(**given)
    seen = _inspected(directory) if directory else None
    read_logs(request, lambda reading: _show(reading, request, top, seen))


def _inspected(directory: Path) -> Inspection:
    from nearcache.nginx.cachedir.directory import CacheDir
    from nearcache.nginx.inspect.inspection import inspect_directory
    from nearcache.nginx.purge.targets import holds_entries

    with CacheDir(directory) as opened:
        seen = inspect_directory(opened)
        holds_entries(opened, seen.census)
        return seen


def _show(reading: Reading, request: Request, top: int, seen: Inspection | None) -> None:
    from nearcache.nginx.report.ledger import ledger
    from nearcache.nginx.report.page import answer, held, page

    result = reading.result
    found = ledger(result)
    sentence = answer(found, reading.site.cache_name)
    about = {"verb": "report", "schema": 1, "sentence": sentence, "log": reading.about(result)}
    holds = {"cache": seen.to_json() if seen else None, "per_day": found.per_day}
    shown = page(found, reading.site.cache_name, top)
    if seen:
        shown = replace(shown, parts=[*shown.parts, held(seen)])
    show_found(reading.finished(shown, result), about | found.as_json() | holds, request)
