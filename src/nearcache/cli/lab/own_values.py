"""``lab run --data`` and ``--sample``: the user's own values, and a word on what they are."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from nearcache.base.options import human_bytes, human_duration
from nearcache.errors import LabError
from nearcache.report.model import Strong, Table
from nearcache.report.terminal import print_table

if TYPE_CHECKING:
    from nearcache.lab.own.data import OwnData
    from nearcache.lab.own.sampling import LiveSample, Taken

MOST_ROWS = 20
RANKS = (0.5, 0.9, 1.0)
ANY = "*"
USUAL_KEYS = 500


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The options that say where values come from."""

    data: Path | None = None
    sample: str | None = None
    match: str | None = None
    keys: int | None = None
    from_alias: str | None = None
    save: Path | None = None
    pickles: bool = False
    settings: str | None = None

    def check(self) -> None:
        if self.data and (self.sample or self.from_alias):
            raise LabError("give --data, or --sample and --from-alias, not both")
        if self.from_alias and not self.settings:
            raise LabError("--from-alias needs --settings MODULE, the settings that define it")
        if self.save and not (self.sample or self.from_alias):
            raise LabError("--save keeps what --sample takes; give --sample redis://...")
        for option, given in (("--match", self.match), ("--keys", self.keys)):
            if given is not None and not (self.sample or self.from_alias):
                raise LabError(f"{option} says what --sample takes; give --sample redis://...")
        if self.pickles and not (self.data or self.sample or self.from_alias):
            raise LabError("--pickle is about the values of --data or --sample; give one of them")

    @property
    def wanted(self) -> bool:
        return bool(self.data or self.sample or self.from_alias)


@contextmanager
def own_values(asked: Asked) -> Iterator[tuple[OwnData | None, str]]:
    """The values, and the file that workers read them from; nothing is left behind."""
    asked.check()
    if not asked.wanted:
        yield None, ""
        return
    from nearcache.lab.base.directories import private_directory
    from nearcache.lab.own.data import read_directory

    scratch = private_directory()
    try:
        if asked.data:
            if not asked.data.is_dir():
                raise LabError(f"{asked.data} is no directory; --data wants one value in each file")
            found = read_directory(asked.data, pickles=asked.pickles)
        else:
            found = _sampled(asked, scratch / "sample")
        click.echo(found.describe(), err=True)
        file = scratch / "values"
        found.write(file)
        yield found, str(file)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _sampled(asked: Asked, scratch: Path) -> OwnData:
    from nearcache.lab.own.data import read_directory
    from nearcache.lab.own.live_values import decoder_of, new_directory, write_values
    from nearcache.lab.own.sampling import sample_redis

    url, options, entry = _source(asked)
    decode = decoder_of(entry, pickles=asked.pickles)
    directory = new_directory(asked.save or scratch)
    live = sample_redis(
        url, match=asked.match or ANY, keys=asked.keys or USUAL_KEYS, options=options
    )
    kinds, why = write_values(live, decode, directory)
    print_table(table_of(live), Console(stderr=True, highlight=False))
    for line in remarks(live):
        click.echo(line, err=True)
    if not kinds:
        raise LabError(_nothing(asked.match or ANY))
    click.echo(_kinds(kinds, why, asked.pickles), err=True)
    if asked.save:
        click.echo(f"kept in {directory}; measure with them again: --data {directory}", err=True)
    # All pickles there are our own, of values that were decoded as the user allowed.
    return read_directory(directory, pickles=True, source=live.source)


def _source(asked: Asked) -> tuple[str, dict[str, Any], Mapping[str, Any] | None]:
    """(URL, what else connecting takes, the entry of CACHES that says how to decode)."""
    if not asked.from_alias:
        assert asked.sample
        return asked.sample, {}, None
    from nearcache.cli.lab.common import own_aliases

    assert asked.settings
    (candidate,) = own_aliases(asked.settings, [asked.from_alias])
    entry = candidate.settings
    if asked.sample:
        return asked.sample, {}, entry
    location = entry.get("LOCATION") or ""
    first = location if isinstance(location, str) else next(iter(location), "")
    url = str(first).split(",")[0]
    if not url.startswith(("redis://", "rediss://", "unix://")):
        raise LabError(
            f"{asked.from_alias} is not on a Redis with an address; give --sample redis://..."
        )
    given = {str(name).lower(): value for name, value in (entry.get("OPTIONS") or {}).items()}
    return url, {name: given[name] for name in ("username", "password") if name in given}, entry


def remarks(live: LiveSample) -> list[str]:
    """What was done to the server, and what was left out."""
    looked = f"looked at {live.scanned:,} of {live.keys_in_database:,} keys in {live.wall_s:.1f} s"
    lines = [f"{looked}; used at most {live.server_share:.1%} of the server's time"]
    if not live.untouched:
        lines.append(
            "this server has no CLIENT NO-TOUCH: the keys that were read look freshly used to it"
        )
    if live.skipped:
        reasons = ", ".join(f"{count} {why}" for why, count in live.skipped.most_common())
        lines.append(f"without a value: {reasons}")
    if live.stopped:
        lines.append(f"{live.stopped}; a narrower --match or fewer --keys would end sooner")
    return lines


def _nothing(match: str) -> str:
    text = f"no key that matches {match!r} has a value that could be taken"
    if match.startswith("*"):
        return text
    return f"{text}; Django's keys begin with KEY_PREFIX and version: try --match '*:{match}'"


def _kinds(kinds: Mapping[str, int], why: Mapping[str, int], pickles: bool) -> str:
    words = {
        "json": "decoded, JSON holds them",
        "pickle": "decoded to Python objects",
        "stored": "kept as the bytes that are stored",
    }
    said = ", ".join(f"{count} {words[kind]}" for kind, count in sorted(kinds.items()))
    if not kinds.get("stored"):
        return f"values: {said}"
    if not pickles:
        return f"values: {said}; --pickle decodes pickles, which runs their code"
    reasons = ", ".join(f"{count} {name}" for name, count in sorted(why.items()))
    # Rows of models need their apps, which no worker of the lab has.
    return f"values: {said} ({reasons}): of their size and compressibility, their types unknown"


def table_of(live: LiveSample) -> Table:
    """Sizes, lifetimes and compressibility, by type and first word of the key."""
    groups: dict[tuple[str, str], list[Taken]] = {}
    for each in live.taken:
        kind = (each.prefix or "-", f"{each.type}/{each.encoding}")
        groups.setdefault(kind, []).append(each)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    rows = [[*words, *_numbers(members)] for words, members in ordered[:MOST_ROWS]]
    if len(ordered) > MOST_ROWS:
        rest = [each for _, members in ordered[MOST_ROWS:] for each in members]
        rows.append([f"{len(ordered) - MOST_ROWS} more", "", *_numbers(rest)])
    if len(ordered) > 1:
        rows.append([*map(Strong, ["all", "", *_numbers(live.taken)])])
    heads = ["keys", "P50", "P90", "max", "memory", "TTL", "left", "zlib"]
    return Table(
        f"Sample of {live.source}", ["keys named", "type", *heads], rows, text_columns=(0, 1)
    )


def _numbers(members: Sequence[Taken]) -> list[str]:
    from nearcache.lab.statistics.stats import at_share

    sizes = sorted(each.size_bytes for each in members)
    memory = [each.memory for each in members if each.memory is not None]
    lives = sorted(each.ttl_ms for each in members if each.ttl_ms is not None)
    squeezed = sorted(each.squeezed for each in members if each.squeezed is not None)
    return [
        f"{len(members):,}",
        *(human_bytes(at_share(sizes, rank)) for rank in RANKS),
        human_bytes(sum(memory) // len(memory)) if memory else "-",
        f"{len(lives) / len(members):.0%}",
        _roughly(at_share(lives, 0.5)) if lives else "-",
        f"{at_share(squeezed, 0.5):.0%}" if squeezed else "-",
    ]


def _roughly(milliseconds: int) -> str:
    """The larger unit only: ``59 min`` of 59 min 50 s."""
    return " ".join(human_duration(milliseconds).split()[:2])
