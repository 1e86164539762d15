"""``nearcache lab``: measure caches, and read what was measured."""

from __future__ import annotations

import os
import random
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.console import Console

from nearcache.errors import LabError

if TYPE_CHECKING:
    from nearcache.lab.model import Candidate
    from nearcache.lab.sample import Sample

Command = TypeVar("Command", bound=Callable[..., Any])


def names_option(flag: str, help_text: str) -> Callable[[Command], Command]:
    """An option that takes names separated by commas."""

    def split(_ctx: click.Context, _param: click.Parameter, value: str) -> list[str]:
        return [name.strip() for name in value.split(",") if name.strip()]

    return click.option(flag, metavar="A,B", default="", callback=split, help=help_text)


class OneLine(click.Group):
    """Says what is wrong with a command line in one line; click would print a paragraph."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if type(error).__name__ == "NoArgsIsHelpError":  # since click 8.2
                raise
            where = error.ctx.command_path if error.ctx else ctx.command_path
            text = error.format_message().rstrip(".")
            raise LabError(f"{text}; see `{where} --help`") from error


@click.group(cls=OneLine)
def lab() -> None:
    """Find out which cache is fastest: measure, compare, read the report."""


@lab.command("list")
def list_() -> None:
    """Show the experiments and what they compare."""
    from nearcache.lab.experiments import EXPERIMENTS

    for experiment in EXPERIMENTS.values():
        click.echo(f"{experiment.name}: {experiment.question}")
        click.echo(f"  operations  {', '.join(experiment.operations)}")
        click.echo(f"  payloads    {', '.join(experiment.payloads)}")
        for candidate in experiment.candidates:
            click.echo(f"  {candidate.name:<26} {candidate.title}")


@lab.command()
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
    _require_lab_extra()
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
        extra=_own_aliases(settings, alias) if settings else (),
    )
    # All of the request is checked before anything is started.
    orders = [prepare(experiment_named(name), wish) for name in names]
    _writable(out)
    for order in orders:
        _run_one(order, out, wish.seed)


@lab.command()
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path)
)
@click.option("--operation", help="Which operation to show in detail.")
@click.option("--payload", help="Which payload to show in detail.")
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), help="Write the page here."
)
def report(
    files: Sequence[Path], operation: str | None, payload: str | None, html: Path | None
) -> None:
    """Show what an earlier run measured. Several runs of one machine are put together."""
    _require_lab_extra()
    from nearcache.lab.sample import merge, read_sample

    _show(merge([read_sample(path) for path in files]), html, operation, payload)


def _run_one(order: Any, out: Path, seed: int) -> None:
    from nearcache.lab.laboratory import run as run_order
    from nearcache.lab.reports.progress import TerminalProgress

    with TerminalProgress(Console(stderr=True, highlight=False)) as progress:
        sample, path, interruption = run_order(order, _command(seed), progress, out)
    if path is None:
        click.echo("interrupted before anything was measured; nothing was written", err=True)
    else:
        page = path.with_suffix(".html")
        _show(sample, page)
        click.echo(f"\nraw data  {path}\npage      {page}")
    if interruption:
        sys.exit(interruption.exit_code)


def _show(
    sample: Sample, page: Path | None, operation: str | None = None, payload: str | None = None
) -> None:
    from nearcache.lab.analysis import Analysis
    from nearcache.lab.reports.html import write_page
    from nearcache.lab.reports.terminal import print_report

    analysis = Analysis(sample)
    _check_detail(analysis.cell_names, operation, payload)
    print_report(analysis, Console(highlight=False), operation, payload)
    if page:
        write_page(analysis, page)


def _check_detail(
    names: Sequence[tuple[str, str]], operation: str | None, payload: str | None
) -> None:
    from nearcache.lab.candidates import unknown_name

    for kind, wanted, known in (
        ("operation", operation, dict.fromkeys(name[0] for name in names)),
        ("payload", payload, dict.fromkeys(name[1] for name in names)),
    ):
        if wanted is not None and wanted not in known:
            raise LabError(unknown_name(kind, wanted, known))


def _own_aliases(module: str, wanted: Sequence[str]) -> list[Candidate]:
    """Candidates for the caches of a user's settings module."""
    from django.conf import Settings

    from nearcache.lab.candidates import own_alias, unknown_name

    sys.path.insert(0, os.getcwd())
    try:
        configured: dict[str, Any] = vars(Settings(module)).get("CACHES", {})
    except Exception as error:
        lines = str(error).splitlines()
        said = f"{type(error).__name__}: {lines[0] if lines else ''}"
        raise LabError(
            f"settings module {module!r} does not import ({said}); run from the directory "
            "of manage.py, or set PYTHONPATH"
        ) from error
    for name in wanted:
        if name not in configured:
            raise LabError(unknown_name("alias in CACHES", name, configured))
    return [own_alias(module, name, configured[name]) for name in wanted or configured]


def _writable(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"cannot write to {directory}: {error.strerror}; give --out DIR") from error
    if not os.access(directory, os.W_OK):
        raise LabError(f"cannot write to {directory}; give --out DIR")


def _require_lab_extra() -> None:
    try:
        import hdrh  # noqa: F401
        import jinja2  # noqa: F401
    except ImportError as error:
        raise LabError(f"{error.name} is not installed; pip install 'nearcache[lab]'") from error


def _command(seed: int) -> str:
    """The command line, with the seed that was drawn, so that it can be repeated."""
    after_noun = sys.argv.index("lab") + 1 if "lab" in sys.argv else 1
    words = ["nearcache", "lab", *sys.argv[after_noun:]]
    return shlex.join(words if "--seed" in words else [*words, "--seed", str(seed)])
