"""``nearcache nginx inspect``: what a cache directory holds, without disturbing it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nearcache.cli.nginx.common import print_json, print_page
from nearcache.errors import NginxError

if TYPE_CHECKING:
    from nearcache.nginx.cachedir import CacheDir
    from nearcache.nginx.select import Selects

MEGABYTE = 1_000_000
DEFAULT_PACE = 50.0


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--keys", "as_keys", is_flag=True, help="List entries instead of summing them up.")
@click.option(
    "--bodies",
    is_flag=True,
    help="Read all bodies: which are stored several times, and which rule for keys"
    " would store them once.",
)
@click.option(
    "--pace",
    type=click.FloatRange(0, min_open=True),
    metavar="MB/S",
    help=f"With --bodies: read at most so much a second. [{DEFAULT_PACE:g}]",
)
@click.option("--match", metavar="GLOB", help="Only keys like this, as '*/shop/*'.")
@click.option("--regex", metavar="RE", help="Only keys in which this is found.")
@click.option("--limit", type=click.IntRange(1), help="With --keys: at most so many.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print JSON, for machines; with --keys one line for each entry.",
)
def inspect(
    directory: Path, as_keys: bool, bodies: bool, pace: float | None, match: str | None,
    regex: str | None, limit: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Show what the cache in DIRECTORY holds: entries, ages, variants, RAM, what looks personal.

    DIRECTORY is that of proxy_cache_path, uwsgi_cache_path and so on. Safe beside live traffic: it
    writes nothing, reads one page of each file, and gives back to the kernel what was not in RAM.
    Run it as the user of nginx's workers, or as root.
    """
    from nearcache.nginx.cachedir import CacheDir
    from nearcache.nginx.select import selected_by

    if as_keys and bodies:
        raise NginxError("--keys and --bodies are two questions; ask one of them")
    if pace and not bodies:
        raise NginxError("--pace is for --bodies: nothing else reads more than a page of a file")
    if limit and not as_keys:
        raise NginxError("--limit is for --keys")
    selects = selected_by(match, regex)
    with CacheDir(directory) as opened:
        if as_keys:
            _list(opened, selects, limit, as_json)
        elif bodies:
            _compare(opened, selects, pace or DEFAULT_PACE, as_json)
        else:
            _sum_up(opened, selects, as_json)


def _sum_up(directory: CacheDir, selects: Selects, as_json: bool) -> None:
    from nearcache.nginx.inspection import inspect_directory
    from nearcache.nginx.inspection_page import inspection_page

    seen = inspect_directory(directory, selects)
    if as_json:
        print_json({"verb": "inspect", "schema": 1} | seen.to_json())
    else:
        print_page(inspection_page(seen))


def _compare(directory: CacheDir, selects: Selects, pace: float, as_json: bool) -> None:
    from nearcache.nginx.bodies import compare_bodies
    from nearcache.nginx.inspection_page import bodies_page

    bodies = compare_bodies(directory, selects, bytes_per_second=pace * MEGABYTE)
    if as_json:
        print_json({"verb": "inspect", "schema": 1, "bodies": bodies.to_json()})
    else:
        print_page(bodies_page(bodies))


def _list(directory: CacheDir, selects: Selects, limit: int | None, as_json: bool) -> None:
    from nearcache.nginx.cachedir import Census
    from nearcache.nginx.inspection import list_keys
    from nearcache.nginx.text import duration, size

    if not as_json:
        click.echo(f"{'age':>13} {'left':>13} {'size':>8} status  key")
    shown = 0
    for facts in list_keys(directory, selects, Census(), time.time()):
        if limit is not None and shown == limit:
            click.echo(f"... and more; --limit shows more than {limit}", err=True)
            return
        shown += 1
        if as_json:
            print_json(facts, one_line=True)
            continue
        left = duration(facts["left_s"]) if facts["left_s"] >= 0 else "expired"
        vary = f"  Vary: {facts['vary']}{' (variant)' * facts['variant']}" if facts["vary"] else ""
        click.echo(
            f"{duration(facts['age_s']):>13} {left:>13} {size(facts['size']):>8} "
            f"{facts['status'] or '?':>6}  {facts['key']}{vary}"
        )
