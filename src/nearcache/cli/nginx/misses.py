"""``nearcache nginx misses``: why, which, and what to change."""

from __future__ import annotations

from typing import Any

import click

from nearcache.cli.nginx.common import (
    Reading,
    Request,
    log_options,
    read_logs,
    show_found,
)


@click.command()
@log_options
@click.option("--top", type=click.IntRange(0), default=20, show_default=True,
              help="Show so many URLs.")  # fmt: skip
def misses(top: int, **given: Any) -> None:
    """Say why requests were not served from the cache, which, and what would buy most.

    FILE: access logs, plain or packed, directories of rotated ones, or - for standard input.
    Without any: those of --config, or of /var/log/nginx.

    Exits 0, 1 if a file could not be read to its end, 2 if nothing can be said.
    """
    request = Request(**given)
    read_logs(request, lambda reading: _show(reading, request, top))


def _show(reading: Reading, request: Request, top: int) -> None:
    from nearcache.nginx.answers.misses import misses as find
    from nearcache.nginx.answers.misses import page

    result = reading.result
    found = find(result, reading.site)
    about = {"verb": "misses", "schema": 1, "log": reading.about(result)}
    shown = reading.finished(page(found, top), result)
    show_found(shown, about | found.as_json(), request)
