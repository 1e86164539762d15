"""``nearcache lab recommend``: from samples to one CACHES entry, with its reasons."""

from __future__ import annotations

import json
import random
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from nearcache.cli.lab import links
from nearcache.cli.lab.common import require_lab_extra
from nearcache.errors import LabError

if TYPE_CHECKING:
    from nearcache.lab.advice.admission import Needs
    from nearcache.lab.advice.gathering import Gathered
    from nearcache.lab.advice.recommend import Advice, Evidence

KEPT = Path("results/lab")
MEASURED = ("backends", "codecs")
WIDTH = 96
MOST_REFUSED = 12  # groups of candidates that are shown


@click.command()
@click.argument("samples", nargs=-1, metavar="[FILE|DIRECTORY]...", type=click.Path(path_type=Path))
@click.option(
    "--reach",
    type=click.Choice(["host", "network"]),
    default="host",
    show_default=True,
    help="Who shares the cache: the processes of one host, or several hosts.",
)
@click.option(
    "--rtt", "rtt_ns", callback=links.duration_ns, help="Round trip to the server, like 0.5ms."
)
@click.option(
    "--bandwidth",
    "bytes_per_s",
    callback=links.bytes_per_s,
    help="To the server, like 1Gbit. As measured, if not given.",
)
@click.option(
    "--size", "size_bytes", callback=links.size_bytes, help="Of a usual value, like 20KB."
)
@click.option("--need-json", is_flag=True, help="Other programs read the values as JSON.")
@click.option("--need-portable", is_flag=True, help="Other languages read the values.")
@click.option("--no-pickle", is_flag=True, help="Nothing that is read may run code.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--quick", is_flag=True, help="Measure what is missing first: about two minutes.")
def recommend(
    samples: Sequence[Path],
    need_json: bool,
    need_portable: bool,
    as_json: bool,
    quick: bool,
    **needed: Any,
) -> None:
    """Say which cache to run, from what was measured, and print its CACHES block.

    Takes the samples that are named, or the newest of this machine below results/lab. Exits 1
    if nothing that was measured may be recommended, 2 if something is wrong with the request.
    """
    require_lab_extra()
    from nearcache.lab.advice.admission import Needs
    from nearcache.lab.advice.recommend import advise

    gathered = _gathered(samples, quick)
    needs = Needs(json=need_json, portable=need_portable, **needed)
    advice = advise(_evidence(gathered), needs)
    advice.warnings += gathered.notes
    if as_json:
        click.echo(json.dumps(_as_json(advice, needs, gathered), indent=1))
    else:
        _print(advice, gathered)
    if not advice.block:
        raise SystemExit(1)


def _gathered(samples: Sequence[Path], quick: bool) -> Gathered:
    from nearcache.lab.advice.gathering import gather

    for place in samples:
        if not place.exists():
            raise LabError(f"{place} does not exist; give JSON files of `nearcache lab run`")
    places = list(samples) or [KEPT]
    found = gather([place for place in places if place.exists()])
    missing = [name for name in MEASURED if name not in found.samples]
    if quick and missing:
        for name in missing:
            _measure(name)
        found = gather([*(place for place in places if place.exists()), KEPT])
    if not set(MEASURED) & found.samples.keys():
        where = ", ".join(map(str, places))
        for line in found.notes:
            click.echo(f"! {line}", err=True)
        raise LabError(
            f"no sample of backends or codecs of this machine in {where}; "
            "`nearcache lab recommend --quick` measures them first"
        )
    return found


def _measure(name: str) -> None:
    """A quick run, kept where the next recommendation looks for it."""
    from nearcache.lab.experiments.registry import experiment_named
    from nearcache.lab.reports.progress import TerminalProgress
    from nearcache.lab.runner.laboratory import RunOptions, prepare, run

    seed = random.randrange(10**6)
    command = f"nearcache lab run {name} --quick --seed {seed}"
    wanted = RunOptions(plan="quick", seed=seed, command=command)
    order = prepare(experiment_named(name), wanted)
    console = Console(stderr=True, highlight=False)
    with TerminalProgress(console, name, order.plan.time_limit_s) as progress:
        _, _, interruption = run(order, wanted, progress, KEPT)
    if interruption:
        raise SystemExit(interruption.exit_code)


def _evidence(gathered: Gathered) -> Evidence:
    from nearcache.lab.advice.recommend import Evidence
    from nearcache.lab.judging.analysis import Analysis

    known = gathered.samples
    return Evidence(
        backends=Analysis(known["backends"]) if "backends" in known else None,
        codecs=Analysis(known["codecs"]) if "codecs" in known else None,
        drill=known.get("drill"),
    )


def _as_json(advice: Advice, needs: Needs, gathered: Gathered) -> dict[str, Any]:
    return {
        **advice.to_json(),
        "needs": asdict(needs),
        "evidence": {name: str(path) for name, path in gathered.paths.items()},
    }


def _print(advice: Advice, gathered: Gathered) -> None:
    for line in advice.warnings:
        _say(f"! {line}")
    for name, path in gathered.paths.items():
        _say(f"{name}: {path}, {gathered.samples[name].about['started']}")
    missing = [name for name in (*MEASURED, "drill") if name not in gathered.paths]
    if missing:
        _say(f"not measured yet: {', '.join(missing)} (nearcache lab run {' '.join(missing)})")
    if advice.block:
        click.echo(f"\n{advice.block}")
    for title, lines in (
        ("Why", advice.reasons),
        ("What would change this", advice.changes),
        ("Not recommended", _refused(advice)),
    ):
        if lines:
            click.echo(f"\n{title}")
            for line in lines:
                _say(line, "- ")


def _refused(advice: Advice) -> list[str]:
    """Candidates by what is against them; twenty that change types are one line."""
    by_reason: dict[str, list[str]] = {}
    for name, why in advice.refused.items():
        by_reason.setdefault(why, []).append(name)
    lines = [f"{', '.join(names)}: {why}" for why, names in by_reason.items()]
    if len(lines) > MOST_REFUSED:
        lines[MOST_REFUSED:] = [f"and {len(lines) - MOST_REFUSED} more; --json has all"]
    return lines


def _say(text: str, bullet: str = "") -> None:
    indent = " " * len(bullet)
    click.echo(textwrap.fill(text, WIDTH, initial_indent=bullet, subsequent_indent=indent))
