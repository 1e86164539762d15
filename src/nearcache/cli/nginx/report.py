"""``nearcache nginx report``: the savings ledger."""

from __future__ import annotations

from typing import Any

import click

from nearcache.cli.nginx.common import (
    Reading,
    Request,
    log_options,
    print_json,
    print_page,
    read_logs,
)


@click.command()
@log_options
@click.option("--top", type=click.IntRange(0), default=10, show_default=True,
              help="Show so many locations and URL groups.")  # fmt: skip
def report(top: int, **given: Any) -> None:
    """Say what the cache saves and what it costs: in time, requests and bytes.

    FILE: access logs, plain or packed, directories of rotated ones, or - for standard input.
    Without any: those of --config, or of /var/log/nginx.

    Exits 0, 1 if a file could not be read to its end, 2 if nothing can be said.
    """
    request = Request(**given)
    read_logs(request, lambda reading: _show(reading, request, top))


def _show(reading: Reading, request: Request, top: int) -> None:
    from nearcache.nginx.ledger import ledger
    from nearcache.nginx.ledger_page import answer, page

    result = reading.result
    found = ledger(result)
    if request.as_json:
        sentence = answer(found, reading.site.cache_name)
        about = {"verb": "report", "schema": 1, "sentence": sentence, "log": reading.about(result)}
        print_json(about | found.as_json(), one_line=request.follow)
        return
    shown = page(found, reading.site.cache_name, top)
    print_page(reading.finished(shown, result), request.html)
