"""``nearcache shm``: look into a shared-memory cache, from beside the processes that use it."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from nearcache._core import Store
from nearcache.base.keys import decode_key, encode_key
from nearcache.base.options import human_bytes, human_duration
from nearcache.cli.site import cache_of_site
from nearcache.django_cache.placement.project import is_there
from nearcache.engines.contract import ScanItem
from nearcache.engines.shm import (
    LEAST_MEAN_ITEM_BYTES,
    bases_in,
    data_path,
    default_directory,
    is_used,
    location,
    open_existing,
    owners,
    remove_unused,
)
from nearcache.errors import OptionError

Command = TypeVar("Command", bound=Callable[..., Any])

SCAN_ITEMS = 1000
OF_PROJECT = re.compile(r".+-[0-9a-f]{16}\.(.+)")
"""The name of a file, with the cache's name in its project."""


def cache_options(command: Command) -> Command:
    """Which cache: by name or path, or as some Django settings name it."""
    for decorate in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines."),
        click.option("--alias", help="An alias of CACHES in the Django settings, instead of NAME."),
        click.option(
            "--settings",
            metavar="MODULE",
            help="The Django settings for --alias; else DJANGO_SETTINGS_MODULE.",
        ),
        click.argument("name", required=False),
    ):
        command = decorate(command)
    return command


@click.group()
def shm() -> None:
    """Look into a shared-memory cache.

    NAME is one of the list, or a LOCATION as in CACHES: a name ("default" if left out), if one
    project only has it, or an absolute path. --alias and --settings say which project is meant.
    All of this is safe beside live traffic, and none of it makes a file.
    """


@shm.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")
def list_caches(as_json: bool) -> None:
    """List the caches of this user: size, age, whether a process has it open, and whose it is."""
    rows = [facts for base in bases_in(default_directory()) if (facts := _file_facts(base))]
    if as_json:
        _print_json(rows)
        return
    for row in rows:
        age, used = human_duration(row["age_ms"]), "in use" if row["used"] else "unused"
        size, whose = human_bytes(row["size_bytes"]), ", ".join(row["projects"]) or "unknown"
        click.echo(f"{row['name']:<48} {size:>10}   made {age} ago, {used}; of {whose}")
    if not rows:
        click.echo(f"no caches in {default_directory()}")


@shm.command()
@click.option("--all", "also_live", is_flag=True, help="Also those whose project is still there.")
@click.option("--dry-run", is_flag=True, help="Say what would go, and remove nothing.")
def prune(also_live: bool, dry_run: bool) -> None:
    """Remove caches that no process has open and whose project is gone; their memory is free then.

    A cache that a process has open stays, whatever the options.
    """
    gone = 0
    for base in bases_in(default_directory()):
        facts = _file_facts(base)
        if facts is None or facts["used"] or (facts["there"] and not also_live):
            continue
        if dry_run or remove_unused(base):
            gone += 1
            verb = "would go" if dry_run else "removed"
            click.echo(f"{facts['name']}: {human_bytes(facts['size_bytes'])}, {verb}")
    if not gone:
        click.echo(f"nothing to remove in {default_directory()}; `nearcache shm list` shows all")


@shm.command()
@cache_options
def stats(name: str | None, settings: str | None, alias: str | None, as_json: bool) -> None:
    """Show what the cache holds and what happened to it since it was made."""
    store = _open(name, settings, alias)
    facts: dict[str, Any] = {"path": store.path, "size_bytes": store.size_bytes} | store.stats()
    reads = facts["hits"] + facts["misses"]
    facts["hit_ratio"] = round(facts["hits"] / reads, 4) if reads else None
    if as_json:
        _print_json(facts | {"better_mean_item_bytes": _better_mean_item(facts)})
        return
    width = max(map(len, facts))
    for key, value in facts.items():
        click.echo(
            f"{key.removesuffix('_bytes').removesuffix('_at_ms'):<{width}}  {_human(key, value)}"
        )
    _advise(facts)


@shm.command()
@cache_options
def check(name: str | None, settings: str | None, alias: str | None, as_json: bool) -> None:
    """Read everything and report broken invariants: exit code 0 sound, 1 not."""
    store = _open(name, settings, alias)
    faults = store.check()
    if as_json:
        _print_json({"path": store.path, "items": len(store), "faults": faults})
    else:
        for fault in faults:
            click.echo(fault)
        verdict = f"{len(faults)} faults; `nearcache shm clear` makes it new" if faults else "sound"
        click.echo(f"{store.path}: {verdict}, {len(store)} items")
        _advise(store.stats())
    if faults:
        raise SystemExit(1)


@shm.command()
@cache_options
@click.option("--match", metavar="GLOB", help='Only keys like this, for example ":1:user:*".')
@click.option("--limit", type=click.IntRange(1), default=1000, help="At most so many. [1000]")
def keys(
    name: str | None,
    settings: str | None,
    alias: str | None,
    as_json: bool,
    match: str | None,
    limit: int,
) -> None:
    """List keys as they are stored (prefix:version:key), with size and time left."""
    store = _open(name, settings, alias)
    items = _items(store, match)
    found = [item for item, _ in zip(items, range(limit), strict=False)]
    now_ms = time.time_ns() // 1_000_000
    if as_json:
        _print_json([_key_facts(item, now_ms) for item in found])
        return
    for item in found:
        key, size, expires_at_ms, _ = item
        left = "never" if expires_at_ms is None else human_duration(max(0, expires_at_ms - now_ms))
        click.echo(f"{human_bytes(size):>10}  {left:>14}  {decode_key(key)}")
    if next(items, None):
        click.echo(f"... and more; --limit shows more than {limit}", err=True)


@shm.command()
@cache_options
@click.option("--match", metavar="GLOB", help='Only keys like this, for example ":1:user:*".')
def clear(
    name: str | None, settings: str | None, alias: str | None, as_json: bool, match: str | None
) -> None:
    """Empty the cache, or remove the keys that match."""
    store = _open(name, settings, alias)
    removed = len(store)
    if match is None:
        store.clear()
    else:
        removed = store.clear_matching(glob=encode_key(match))
    if as_json:
        _print_json({"path": store.path, "removed": removed})
    else:
        click.echo(f"{store.path}: {removed} items removed")


def _open(name: str | None, settings: str | None, alias: str | None) -> Store:
    return open_existing(_base(name, settings, alias))


def _base(name: str | None, settings: str | None, alias: str | None) -> str:
    if name is not None and (settings or alias):
        raise click.UsageError("give NAME, or --settings and --alias, not both")
    if settings or alias:
        return _location_of(settings, alias or "default")
    try:
        wanted = location(name or "default")
    except ValueError as error:
        raise click.UsageError(f"NAME {error}") from error
    return wanted if os.path.isabs(wanted) else _named(wanted)


def _named(name: str) -> str:
    """A cache by its name in the list, or by its name in a project if there is but one."""
    bases = [each for each in bases_in(default_directory()) if data_path(each).exists()]
    names = {os.path.basename(each): each for each in bases}
    if name in names:
        return names[name]
    meant = [each for each in names if (of := OF_PROJECT.fullmatch(each)) and of[1] == name]
    if len(meant) > 1:
        raise click.UsageError(f"{name} is several caches: {', '.join(sorted(meant))}")
    return names[meant[0]] if meant else str(default_directory() / name)


def _location_of(settings: str | None, alias: str) -> str:
    path = getattr(cache_of_site(settings, alias), "path", None)
    if not isinstance(path, str):
        raise OptionError("CACHES", alias, "is not a SharedMemoryCache")
    return path


def _items(store: Store, match: str | None) -> Iterator[ScanItem]:
    glob = None if match is None else encode_key(match)
    cursor = 0
    while True:
        cursor, items = store.scan(cursor, SCAN_ITEMS, glob=glob)
        yield from items
        if cursor == 0:
            return


def _file_facts(base: str) -> dict[str, Any] | None:
    """None if it was removed since it was listed."""
    sizes, made = 0, 0.0
    for path in Path(base).parent.glob(f"{glob.escape(os.path.basename(base))}.v*.seg"):
        with contextlib.suppress(FileNotFoundError):
            sizes, made = sizes + path.stat().st_size, path.stat().st_mtime
    if not made:
        return None
    projects = sorted({each.get("project", "") for each in owners(base)} - {""})
    return {
        "name": os.path.basename(base),
        "path": str(data_path(base)),
        "size_bytes": sizes,
        "age_ms": max(0, round((time.time() - made) * 1000)),
        "used": is_used(base),
        "projects": projects,
        "there": any(map(is_there, projects)),
    }


def _better_mean_item(facts: dict[str, Any]) -> int | None:
    """What to set `mean_item` to, in bytes; None if the index has not been the limit."""
    if not facts["index_full"] or not facts["items"]:
        return None
    return max(LEAST_MEAN_ITEM_BYTES, int(facts["live_bytes"]) // int(facts["items"]))


def _advise(facts: dict[str, Any]) -> None:
    mean = _better_mean_item(facts)
    if mean is not None:
        click.echo(
            f"The index was full {facts['index_full']:,} times while the log had room: items take"
            f' {mean} bytes on average. Set "mean_item": {mean} in OPTIONS for a cache that holds'
            " more of them; its file is made anew then."
        )


def _key_facts(item: ScanItem, now_ms: int) -> dict[str, Any]:
    key, size, expires_at_ms, version = item
    left_ms = None if expires_at_ms is None else max(0, expires_at_ms - now_ms)
    return {"key": decode_key(key), "size_bytes": size, "left_ms": left_ms, "version": version}


def _human(key: str, value: Any) -> str:
    if key.endswith("_bytes"):
        return human_bytes(value)
    if key.endswith("_at_ms"):
        return f"{human_duration(max(0, time.time_ns() // 1_000_000 - value))} ago"
    if key.endswith("_ms"):
        return human_duration(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))
