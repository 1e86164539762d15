"""``nearcache lab run``: from the words of a command line to orders, and to their files."""

from __future__ import annotations

import os
import random
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from nearcache.cli.lab.common import names_option, own_aliases, require_lab_extra, show
from nearcache.errors import LabError


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--quick", is_flag=True, help="Less precise, under a minute.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("results/lab"),
    show_default=True,
    help="Directory for the JSON and the HTML page.",
)
@names_option("--candidates", "Only these. See `lab list`.")
@names_option("--payloads", "Only these, for example S,H.")
@names_option("--operations", "Only these, for example get,set.")
@click.option("--seed", type=int, help="Repeat the order and the values of an earlier run.")
@click.option("--settings", metavar="MODULE", help="Your settings module, to measure your caches.")
@names_option("--alias", "Which of your caches; all if not given.")
@click.option("--redis-server", metavar="PATH", help="The redis-server to start.")
@click.option("--memcached", metavar="PATH", help="The memcached to start.")
def run(
    names: Sequence[str],
    quick: bool,
    out: Path,
    candidates: list[str],
    payloads: list[str],
    operations: list[str],
    seed: int | None,
    settings: str | None,
    alias: list[str],
    redis_server: str | None,
    memcached: str | None,
) -> None:
    """Run experiments, print the report, write one JSON file and one HTML page.

    Servers are started privately and stopped again. Ctrl-C keeps what was measured.
    Exits 2 if something is wrong with the request and 130 after Ctrl-C.
    """
    require_lab_extra()
    from nearcache.lab.experiments import experiment_named
    from nearcache.lab.laboratory import Wish, prepare

    if alias and not settings:
        raise LabError("--alias needs --settings MODULE, the settings that define it")
    binaries = {"redis": redis_server, "memcached": memcached}
    wish = Wish(
        plan="quick" if quick else "full",
        candidates=candidates,
        payloads=payloads,
        operations=operations,
        seed=random.randrange(10**6) if seed is None else seed,
        binaries={name: path for name, path in binaries.items() if path},
        extra=own_aliases(settings, alias) if settings else (),
    )
    # All of the request is checked before anything is started.
    orders = [prepare(experiment_named(name), wish) for name in names]
    _writable(out)
    for number, order in enumerate(orders, 1):
        title = order.experiment.name + (f" ({number} of {len(orders)})" if len(orders) > 1 else "")
        _run_one(order, title, out, wish.seed)


def _run_one(order: Any, title: str, out: Path, seed: int) -> None:
    from nearcache.lab.laboratory import run as run_order
    from nearcache.lab.reports.progress import TerminalProgress

    console = Console(stderr=True, highlight=False)
    with TerminalProgress(console, title, order.plan.time_limit_s) as progress:
        sample, path, interruption = run_order(order, _command(seed), progress, out)
    if path is None:
        click.echo("interrupted before anything was measured; nothing was written", err=True)
    else:
        page = path.with_suffix(".html")
        show(sample, page)
        click.echo(f"\nraw data  {path}\npage      {page}")
    if interruption:
        sys.exit(interruption.exit_code)


def _writable(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"cannot write to {directory}: {error.strerror}; give --out DIR") from error
    if not os.access(directory, os.W_OK):
        raise LabError(f"cannot write to {directory}; give --out DIR")


def _command(seed: int) -> str:
    """The command line, with the seed that was drawn, so that it can be repeated."""
    after_noun = sys.argv.index("lab") + 1 if "lab" in sys.argv else 1
    words = ["nearcache", "lab", *sys.argv[after_noun:]]
    return shlex.join(words if "--seed" in words else [*words, "--seed", str(seed)])
