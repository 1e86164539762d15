"""``nearcache nginx misses``: why, which, and what to change."""

from __future__ import annotations

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
    from nearcache.nginx.misses.misses import Replayer


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
    from nearcache.nginx.misses.misses import KEY_RULES

    request = Request(**given, replayed_keys=";".join(KEY_RULES.values()))
    read_logs(request, lambda reading: _show(reading, request, top))


def replayer_of(reading: Reading) -> Replayer | None:
    """What tells the gains of changes, if the log was kept for it and can be replayed."""
    from nearcache.nginx.misses.gains import gains

    trace, today = reading.trace, reading.today
    if trace is None or today is None or not trace.facts()["requests"]:
        return None
    return lambda changes: gains(trace, today, changes)


def _show(reading: Reading, request: Request, top: int) -> None:
    from nearcache.nginx.misses.misses import misses as find
    from nearcache.nginx.misses.page import page

    result = reading.result
    found = find(result, reading.site, replayer_of(reading))
    about = {"verb": "misses", "schema": 1, "log": reading.about(result)}
    shown = reading.finished(page(found, top), result)
    show_found(shown, about | found.as_json(), request)
