"""``nearcache nginx inspect``: what a cache directory holds, without disturbing it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nearcache.cli.nginx.common import print_json, print_page
from nearcache.errors import NginxError

if TYPE_CHECKING:
    from nearcache.nginx.cachedir.directory import CacheDir, Census
    from nearcache.nginx.cachedir.select import Selects

MEGABYTE = 1_000_000
DEFAULT_PACE = 50.0
INCOMPLETE = 1
HEAD = f"{'age':>13} {'left':>13} {'size':>8} status  key"


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

    Exits 0, 1 if some of it could not be read, 2 if it is no cache or nothing could be read.
    """
    from nearcache.nginx.cachedir.directory import CacheDir
    from nearcache.nginx.cachedir.select import selected_by

    if as_keys and bodies:
        raise NginxError("--keys and --bodies are two questions; ask one of them")
    if pace and not bodies:
        raise NginxError("--pace is for --bodies: nothing else reads more than a page of a file")
    if limit and not as_keys:
        raise NginxError("--limit is for --keys")
    selects = selected_by(match, regex)
    with CacheDir(directory) as opened:
        if as_keys:
            census = _list(opened, selects, limit, as_json)
        elif bodies:
            census = _compare(opened, selects, pace or DEFAULT_PACE, as_json)
        else:
            census = _sum_up(opened, selects, as_json)
    if census.unreadable:
        click.echo(
            f"nearcache: {census.unreadable} files or directories may not be read by this user, "
            "and are not in this; run it as that of nginx's workers, or as root",
            err=True,
        )
        raise SystemExit(INCOMPLETE)


def _sum_up(directory: CacheDir, selects: Selects, as_json: bool) -> Census:
    from nearcache.nginx.inspect.inspection import inspect_directory
    from nearcache.nginx.inspect.page import inspection_page
    from nearcache.nginx.purge.targets import holds_entries

    seen = inspect_directory(directory, selects)
    holds_entries(directory, seen.census)
    if as_json:
        print_json({"verb": "inspect", "schema": 1} | seen.to_json())
    else:
        print_page(inspection_page(seen))
    return seen.census


def _compare(directory: CacheDir, selects: Selects, pace: float, as_json: bool) -> Census:
    from nearcache.nginx.inspect.bodies import compare_bodies
    from nearcache.nginx.inspect.page import bodies_page
    from nearcache.nginx.purge.targets import holds_entries

    bodies = compare_bodies(directory, selects, bytes_per_second=pace * MEGABYTE)
    holds_entries(directory, bodies.census)
    if as_json:
        print_json({"verb": "inspect", "schema": 1, "bodies": bodies.to_json()})
    else:
        print_page(bodies_page(bodies))
    return bodies.census


def _list(directory: CacheDir, selects: Selects, limit: int | None, as_json: bool) -> Census:
    from nearcache.nginx.cachedir.directory import Census
    from nearcache.nginx.inspect.inspection import list_keys
    from nearcache.nginx.purge.targets import holds_entries

    census = Census()
    shown = 0
    for facts in list_keys(directory, selects, census, time.time()):
        if shown == limit:
            click.echo(f"... and more; --limit shows more than {limit}", err=True)
            return census
        if as_json:
            print_json(facts, one_line=True)
        else:
            click.echo(_line(facts) if shown else f"{HEAD}\n{_line(facts)}")
        shown += 1
    if not shown:
        any_other = holds_entries(directory, census)
        click.echo("no key is like that" if any_other else f"{directory.root} is empty", err=True)
    return census


def _line(facts: Mapping[str, Any]) -> str:
    from nearcache.report.words import duration, size

    left = duration(facts["left_s"]) if facts["left_s"] >= 0 else "expired"
    vary = f"  Vary: {facts['vary']}{' (variant)' * facts['variant']}" if facts["vary"] else ""
    return (
        f"{duration(facts['age_s']):>13} {left:>13} {size(facts['size']):>8} "
        f"{facts['status'] or '?':>6}  {facts['key']}{vary}"
    )
