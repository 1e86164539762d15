"""``nearcache lab record``: what a recording says, what recording costs, traces of others."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from nearcache.base.options import human_bytes
from nearcache.cli.lab.common import own_aliases
from nearcache.errors import LabError
from nearcache.report.model import Table
from nearcache.report.terminal import print_table
from nearcache.report.words import plural

if TYPE_CHECKING:
    from nearcache.lab.own.recordings import Group, Portrait
    from nearcache.recording.trace import Recording

FILE = click.Path(path_type=Path)
MOST_ROWS = 15
FORMS = ("twitter", "oracle", "combined")


@click.group()
def record() -> None:
    """Recordings of a site's cache: keys are hashed, values are not in them.

    To record, wrap an entry of CACHES, in production, for as long as it takes:

    \b
    from nearcache.recording.options import recorded
    CACHES["default"] = recorded(CACHES["default"], "/var/tmp/mysite.trace", share=0.01)

    `nearcache lab run replay --replay FILE` plays one to caches.
    """


# -- show ----------------------------------------------------------------------------------


@record.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=FILE)
def show(files: Sequence[Path]) -> None:
    """Sum up recordings: operations, hits, sizes, lifetimes, popularity, memory needed."""
    from nearcache.lab.own.recordings import portrait

    found = portrait(read_files(files))
    if not found.calls:
        raise LabError("this recording has no calls in it yet")
    console = Console(highlight=False)
    for line in heading(found):
        console.print(line)
    console.print()
    print_table(_groups("Operations", found.operations.values()), console)
    console.print()
    print_table(_groups("Keys named", found.prefixes.values(), by_key=True), console)
    console.print()
    for line in findings(found):
        console.print(line)
    if found.curve:
        console.print()
        print_table(_curve(found), console)


def read_files(files: Sequence[Path]) -> Recording:
    from nearcache.recording.trace import NotARecording, read

    try:
        return read(files)
    except NotARecording as error:
        raise LabError(f"{error}; give the file of a RecordingCache") from error
    except OSError as error:
        raise LabError(f"{error.filename} cannot be read: {error.strerror}") from error


def heading(found: Portrait) -> list[str]:
    recording = found.recording
    whose = ", ".join(recording.backends)
    which = "all keys" if recording.share == 1 else f"{recording.share:.3g} of the keys"
    processes = plural(recording.processes, "process", "processes")
    first = (
        f"{found.calls:,} calls of {which} of {whose}, in {recording.seconds:,.0f} s, {processes}"
    )
    problems = {
        "blocks torn": recording.torn,
        "records lost": recording.lost,
        "errors of recording": recording.errors,
        "records beyond what is read at a time": recording.cut,
    }
    said = [f"{count:,} {what}" for what, count in problems.items() if count]
    return [first, *([f"incomplete: {', '.join(said)}"] if said else [])]


def _share(part: float) -> str:
    """A percentage that says 100 only of all, and 0 only of none."""
    return f"{part:.0%}" if part in (0, 1) or 0.005 <= part < 0.995 else f"{part:.2%}"


def findings(found: Portrait) -> list[str]:
    """One sentence each."""
    keys, size = found.working_set
    lines = [f"Working set: about {keys:,.0f} keys, {human_bytes(round(size))} of values."]
    if found.one_hit_share is not None:
        lines.append(f"{_share(found.one_hit_share)} of the keys were asked for once.")
    top, skew = found.top_share(0.01), found.skew
    if top is not None:
        law = f"; Zipf's exponent {skew:.2f}" if skew is not None else ""
        lines.append(f"The most popular 1 % of the keys got {top:.0%} of the requests{law}.")
    if found.squeezed:
        middle = sorted(found.squeezed)[len(found.squeezed) // 2]
        lines.append(f"zlib leaves {middle:.0%} of the middle value.")
    whole = found.lifetimes.total()
    if whole:
        said = ", ".join(f"{name} {n / whole:.0%}" for name, n in found.lifetimes.most_common())
        lines.append(f"Lifetimes given: {said}.")
    if found.awaited:
        lines.append(f"{found.awaited / found.calls:.0%} of the calls were awaited.")
    return lines


def _groups(title: str, groups: Any, *, by_key: bool = False) -> Table:
    heads = ["calls", "share", "hits", "keys", "P50 B", "P90 B", "P50 µs", "P99 µs", "errors"]
    ordered = sorted(groups, key=lambda group: -group.calls)
    whole = sum(group.calls for group in ordered)
    nameless = "(no name)" if by_key else ""
    rows = [[group.name or nameless, *_numbers(group, whole)] for group in ordered[:MOST_ROWS]]
    more = len(ordered) - len(rows)
    return Table(title, ["", *heads], rows, note=f"{more} more" if more else "")


def _numbers(group: Group, whole: int) -> list[str]:
    from nearcache.lab.statistics.stats import at_share

    sizes, latencies = sorted(group.sizes), sorted(group.latencies_ns)
    ratio = group.hit_ratio
    return [
        f"{group.calls:,}",
        f"{group.calls / whole:.1%}",
        f"{ratio:.1%}" if ratio is not None else "-",
        f"{len(group.keys):,}",
        f"{at_share(sizes, 0.5):,}" if sizes else "-",
        f"{at_share(sizes, 0.9):,}" if sizes else "-",
        f"{at_share(latencies, 0.5) / 1000:,.1f}" if latencies[-1] else "-",
        f"{at_share(latencies, 0.99) / 1000:,.1f}" if latencies[-1] else "-",
        f"{group.errors:,}" if group.errors else "-",
    ]


def _curve(found: Portrait) -> Table:
    rows = [
        [human_bytes(round(size)), f"{part:.0%}", f"{ratio:.1%}"]
        for part, size, ratio in found.curve
    ]
    title = "Hits of an LRU by its memory for values, from reuse distances"
    return Table(title, ["memory", "of the working set", "hits"], rows, text_columns=())


# -- cost ----------------------------------------------------------------------------------


@record.command()
@click.option("--settings", metavar="MODULE", help="Your settings, to measure on a cache of yours.")
@click.option("--alias", default="default", show_default=True, help="Which of your caches.")
@click.option(
    "--share", type=click.FloatRange(0, 1), default=0.01, show_default=True,
    help="For the cost of an average call.",
)  # fmt: skip
def cost(settings: str | None, alias: str, share: float) -> None:
    """Measure what recording adds to a call: out of the sample, and in it.

    On a LocMemCache if you name no cache; of another, the difference is the same and what
    it is compared with is not.
    """
    from nearcache.lab.base.directories import private_directory
    from nearcache.lab.own.recording_cost import cost_of_recording

    entry = _entry(settings, alias)
    scratch = private_directory()
    try:
        extras = cost_of_recording(entry, f"nearcache-lab:{scratch.name}", scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    rows = []
    for extra in extras:
        average = extra.average_ns(share)
        rows.append(
            [
                extra.operation,
                f"{extra.bare_ns:,.0f}",
                _range(extra.passed_ns),
                _range(extra.noted_ns),
                f"{average:+,.0f} ({average / extra.bare_ns:+.1%})",
            ]
        )
    heads = ["bare", "key not in sample", "key in sample", f"average at {share:g}"]
    print_table(Table("ns per call", ["", *heads], rows))
    click.echo("added CPU: median and quartiles of rounds; values are a small dict")


def _range(quartiles: tuple[float, float, float]) -> str:
    low, middle, high = quartiles
    return f"{middle:+,.0f} ({low:,.0f}\N{EN DASH}{high:,.0f})"


def _entry(settings: str | None, alias: str) -> dict[str, Any]:
    """The entry of CACHES, with Django ready to make a cache of it."""
    import os

    import django
    from django.conf import settings as django_settings

    if not settings:
        if not django_settings.configured:
            django_settings.configure()
        django.setup()
        backend = "django.core.cache.backends.locmem.LocMemCache"
        return {"BACKEND": backend, "LOCATION": "nearcache lab record cost"}
    (candidate,) = own_aliases(settings, [alias])
    os.environ["DJANGO_SETTINGS_MODULE"] = settings
    django.setup()
    return dict(candidate.settings)


# -- import --------------------------------------------------------------------------------


@record.command("import")
@click.argument("source", type=FILE)
@click.option("--form", type=click.Choice(FORMS), required=True, help="What SOURCE is.")
@click.option("--out", type=FILE, required=True, help="The recording to write.")
@click.option(
    "--most", type=click.IntRange(1), default=200_000, show_default=True,
    help="Only so many requests, from the beginning.",
)  # fmt: skip
def import_(source: Path, form: str, out: Path, most: int) -> None:
    """Make a recording of another trace, to look at and to replay.

    twitter: the CSV of twitter/cache-trace. oracle: libCacheSim's oracleGeneral, unpacked.
    combined: an access log of nginx or Apache.
    """
    from nearcache.lab.own.traces import import_trace

    done = import_trace(source, form, out, most)
    left = ", ".join(f"{count:,} {what}" for what, count in done.skipped.most_common())
    click.echo(f"{out}: {done.records:,} calls" + (f"; left out: {left}" if left else ""))
