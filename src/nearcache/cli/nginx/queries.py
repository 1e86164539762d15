"""``nearcache nginx queries``: how long the values of an argument are."""

from __future__ import annotations

from dataclasses import replace
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
from nearcache.errors import NginxError

LONGEST = 1024  # characters; the pass counts longer values as so long


def _points(_ctx: click.Context, _param: click.Parameter, value: str) -> list[int]:
    """``7-12`` or ``5,9,20``."""
    points: list[int] = []
    for part in value.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isdecimal() and (not dash or last.isdecimal())):
            raise click.BadParameter(f"{part!r} is no length; write 7-12 or 5,9,20")
        end = int(last if dash else first)
        if not int(first) <= end <= LONGEST:
            raise click.BadParameter(f"{part!r}: lengths go from 0 to {LONGEST}, upwards")
        points += range(int(first), end + 1)
    return points


@click.command()
@log_options
@click.option("--more", is_flag=True, help="Also say what a rule of length would bring.")
@click.option("--points", default="7-12", callback=_points, show_default=True, metavar="N-M",
              help="The lengths to report: a range, or several with commas.")  # fmt: skip
@click.option("--under", metavar="PATH", help="Only paths that begin so.")
@click.option("--path-part", type=click.IntRange(1), metavar="N",
              help="Or the lengths of the Nth part of the path.")  # fmt: skip
@click.option("--arg", "argument", metavar="NAME", help="The argument to look at. [q]")
def queries(
    argument: str | None,
    path_part: int | None,
    under: str | None,
    points: list[int],
    more: bool,
    **given: Any,
) -> None:
    """Report how long the values of an argument, or of a part of the path, are.

    Of the requests that have it: how many have at most so many characters ("show"), and how
    many have more ("rest"). Characters are counted after decoding %XX and UTF-8.

    Exits 0, 1 if a file could not be read to its end, 2 if nothing can be said.
    """
    if argument and path_part:
        raise click.UsageError("give --arg or --path-part, not both")
    what = f"part {path_part} of its path" if path_part else f"an argument {argument or 'q'}"
    of_core = {"path_part": path_part} if path_part else {"argument": argument or "q"}
    what += f" under {under}" if under else ""
    request = Request(**given, more=of_core | ({"under": under} if under else {}))
    read_logs(request, lambda reading: _show(reading, request, what, points, more))


def _show(reading: Reading, request: Request, what: str, points: list[int], more: bool) -> None:
    from nearcache.nginx.pages.html import write_page
    from nearcache.nginx.report.queries import chart, page, queries, seed_report

    result = reading.result
    assert result["lengths"] is not None
    found = queries(result["lengths"], what, points)
    nothing = f"none of {result['lines']:,} lines has {what}"
    if not found.requests and not request.follow:
        raise NginxError(f"{nothing}; see --arg, --path-part and --under")
    says = result["says"]
    shown = page(found, has_times=says["upstream_time"], has_status=says["cache_status"])
    shown = replace(shown, notes=[*shown.notes, *reading.notes(result)])
    if request.as_json:
        about = {"verb": "queries", "schema": 1, "log": reading.about(result)}
        print_json(about | found.as_json(), one_line=request.follow)
    elif not found.requests:
        click.echo(f"{nothing} yet")
    else:
        click.echo(seed_report(found))
        if more:
            click.echo()
            print_page(shown)
    if request.html:
        drawn = chart(found, says["cache_status"])
        write_page(replace(shown, parts=[*drawn, *shown.parts]), request.html)
