"""``nearcache lab run``: from the words of a command line to orders, and to their files."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from nearcache.cli.lab.common import names_option, own_aliases, require_lab_extra, show
from nearcache.cli.lab.own_values import USUAL_KEYS, Asked, own_values
from nearcache.errors import LabError

if TYPE_CHECKING:
    from nearcache.lab.base.model import Experiment
    from nearcache.lab.base.prices import Prices
    from nearcache.lab.checks.findings import Finding
    from nearcache.lab.own.replaying import Replay
    from nearcache.lab.results.sample import Sample
    from nearcache.lab.runner.driver import Order
    from nearcache.lab.runner.laboratory import RunOptions
    from nearcache.lab.runner.stopping import Stopped

REPLAY = "replay"
DIRECTORY = click.Path(file_okay=False, path_type=Path)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
# Option -> the server whose program it names.
BINARIES = {
    "redis_server": "redis",
    "memcached": "memcached",
    "postgres": "postgres",
    "s3_server": "s3",
}


def _options(*options: Callable[..., Any]) -> Callable[[Any], Any]:
    """Several options as one decorator, shown in the order in which they are given."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


how_much = _options(
    click.option("--all", "all_of_them", is_flag=True, help="Every experiment there is."),
    click.option("--quick", is_flag=True, help="The same as --plan quick."),
    click.option(
        "--plan",
        type=click.Choice(["full", "quick"]),
        help="How much is measured: minutes for each experiment, or less than one.",
    ),
    click.option(
        "--time-limit",
        type=click.FloatRange(min=1),
        metavar="SECONDS",
        help="For all experiments of this run together, instead of the plan's.",
    ),
    click.option(
        "--out",
        type=DIRECTORY,
        default=Path("results/lab"),
        show_default=True,
        help="Directory for the JSON and the HTML page; of several experiments, one below it.",
    ),
    names_option("--candidates", "Only these. See `lab list`."),
    names_option("--payloads", "Only these, for example S,H."),
    names_option("--operations", "Only these, for example get,set."),
    click.option("--seed", type=int, help="Repeat the order and the values of an earlier run."),
    click.option(
        "--strict", is_flag=True, help="Exit 1 if numbers are void, or too little was there."
    ),
)
own_case = _options(
    click.option("--settings", metavar="MODULE", help="Your settings, to measure your caches."),
    names_option("--alias", "Which of your caches; all if not given."),
    click.option("--data", type=DIRECTORY, help="Your values, one in each file, as payloads."),
    click.option("--sample", metavar="URL", help="Take values from this Redis; it is only read."),
    click.option("--match", metavar="GLOB", help="Only of keys that match, prefix included."),
    click.option(
        "--keys", type=click.IntRange(2, 100_000),
        help=f"How many to take, {USUAL_KEYS} if you do not say.",
    ),
    click.option(
        "--from-alias", metavar="NAME", help="Decode as this cache of --settings does; its server."
    ),
    click.option("--save", type=DIRECTORY, help="Keep the values taken in this new directory."),
    click.option("--pickle", is_flag=True, help="Read pickles of yours, which runs their code."),
    click.option("--replay", type=FILE, help="Replay this recording; see `lab record`."),
    click.option(
        "--speed", metavar="max|N",
        help="Replay as fast as it goes, as without this, or at N times the recorded rate.",
    ),
)  # fmt: skip
money = _options(
    click.option("--price-gb-month", type=float, help="What a GB of memory costs you a month."),
    click.option("--price-vcpu-hour", type=float, help="What a vCPU costs you an hour."),
    click.option("--requests-per-second", type=float, help="Of your site, one operation each."),
)
programs = _options(
    click.option("--redis-server", metavar="PATH", help="The redis-server to start."),
    click.option("--memcached", metavar="PATH", help="The memcached to start."),
    click.option("--postgres", metavar="PATH", help="The postgres to start."),
    click.option("--s3-server", metavar="PATH", help="The S3 server to start."),
    click.option(
        "--path", "paths", multiple=True, type=DIRECTORY, help="A directory for `disks`; repeat it."
    ),
)


@click.command()
@click.argument("names", nargs=-1, metavar="NAME...")
@how_much
@own_case
@money
@programs
def run(names: Sequence[str], **given: Any) -> None:
    """Run experiments, print the report, write one JSON file and one HTML page.

    Servers are started privately and stopped again. Ctrl-C keeps what was measured.
    Exits 2 if something is wrong with the request, or an experiment could not be run, 130 after
    Ctrl-C, and with --strict 1 if numbers are void, or if the question has no answer because
    what it is about, or all but one of the candidates, could not be measured. The files are
    written then too.
    """
    require_lab_extra()
    asked = Asked(
        data=given["data"],
        sample=given["sample"],
        match=given["match"],
        keys=given["keys"],
        from_alias=given["from_alias"],
        save=given["save"],
        pickles=given["pickle"],
        settings=given["settings"],
    )
    asked.check()
    experiments = _experiments(names, given)
    wanted = _wanted(given)
    _check_heard(experiments, wanted)
    for experiment in experiments:
        _prepared(experiment, wanted, given)  # all of the request is checked before it begins
    _writable(given["out"])
    sys.exit(_unless_stopped(lambda: _measured(experiments, wanted, asked, given)))


def _unless_stopped(work: Callable[[], int]) -> int:
    """The exit code; a signal at any time lets everything be put away first."""
    from nearcache.lab.runner.stopping import Stopped, Stopping

    with Stopping():
        try:
            return work()
        except Stopped as stopped:
            click.echo("interrupted", err=True)
            return stopped.exit_code


def _measured(
    experiments: Sequence[Experiment], wanted: RunOptions, asked: Asked, given: dict[str, Any]
) -> int:
    with own_values(asked) as (own_data, file), _replay(given) as played:
        wanted = replace(wanted, own_data=own_data, data=file)
        limits = _time_limits(experiments, wanted, given["time_limit"])
        orders = [
            _prepared(experiment, replace(wanted, time_limit_s=limit), given, played)
            for experiment, limit in zip(experiments, limits, strict=True)
        ]
        return _run_all(orders, given["out"], given["strict"])


# -- the request ---------------------------------------------------------------------------


def _experiments(names: Sequence[str], given: dict[str, Any]) -> list[Experiment]:
    from nearcache.lab.experiments.registry import EXPERIMENTS, experiment_named

    if given["all_of_them"]:
        if names:
            raise LabError("give names, or --all")
        return [each for each in EXPERIMENTS.values() if given["replay"] or each.name != REPLAY]
    if not names:
        raise LabError("which experiment? Give its name, see `nearcache lab list`, or --all")
    if given["replay"]:
        # The same candidates, asked what was recorded.
        names = [REPLAY if name == "backends" else name for name in names]
    elif REPLAY in names:
        raise LabError("replay needs --replay FILE, a recording; see `nearcache lab record --help`")
    if given["speed"] and not given["replay"]:
        raise LabError("--speed is that of a recording; give --replay FILE")
    if given["replay"] and REPLAY not in names:
        raise LabError("--replay plays a recording to caches: run replay with it, or backends")
    return [experiment_named(name) for name in dict.fromkeys(names)]


@contextmanager
def _replay(given: dict[str, Any]) -> Iterator[Replay | None]:
    """The recording, made ready in a private directory that is gone afterwards."""
    from nearcache.cli.lab.record import read_files
    from nearcache.lab.base.directories import private_directory
    from nearcache.lab.own.replaying import make_ready, speed_of

    speed = speed_of(given["speed"] or "max")
    if not given["replay"]:
        yield None
        return
    recording = read_files([given["replay"]])
    scratch = private_directory()
    try:
        yield make_ready(recording, speed, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _wanted(given: dict[str, Any]) -> RunOptions:
    from nearcache.lab.runner.laboratory import RunOptions

    if given["alias"] and not given["settings"]:
        raise LabError("--alias needs --settings MODULE, the settings that define it")
    if given["quick"] and given["plan"] == "full":
        raise LabError("give --quick or --plan full, not both")
    seed = random.randrange(10**6) if given["seed"] is None else given["seed"]
    named = {server: given[option] for option, server in BINARIES.items()}
    return RunOptions(
        plan="quick" if given["quick"] else given["plan"] or "full",
        candidates=given["candidates"],
        payloads=given["payloads"],
        operations=given["operations"],
        seed=seed,
        binaries={name: path for name, path in named.items() if path},
        extra=own_aliases(given["settings"], given["alias"]) if _measures_own(given) else (),
        command=_command(seed),
        prices=_prices(given),
        paths=given["paths"],
    )


def _check_heard(experiments: Sequence[Experiment], wanted: RunOptions) -> None:
    """What no experiment of this run listens to was meant for another."""
    from nearcache.lab.runner.laboratory import takes

    if wanted.paths and not any("path" in c.options for e in experiments for c in e.candidates):
        raise LabError("--path names directories for disks; run disks with it")
    if wanted.prices and not any(takes(each, "takes_own_data") for each in experiments):
        names = ", ".join(_able("takes_own_data"))
        raise LabError(f"prices are applied to what a cache stores and does: run {names}")


def _measures_own(given: dict[str, Any]) -> bool:
    """--settings may be there for --from-alias only."""
    return bool(given["settings"]) and (bool(given["alias"]) or not given["from_alias"])


def _prices(given: dict[str, Any]) -> Prices | None:
    from nearcache.lab.base.prices import Prices

    prices = Prices(
        gb_month=given["price_gb_month"],
        vcpu_hour=given["price_vcpu_hour"],
        requests_per_second=given["requests_per_second"],
        given_on=f"{datetime.now(UTC):%Y-%m-%d}",
    )
    return prices or None


def _prepared(
    experiment: Experiment, wanted: RunOptions, given: dict[str, Any], played: Replay | None = None
) -> tuple[Order, RunOptions]:
    """The order, of an experiment that can do what was asked.

    By name, one that cannot is an error; of --all, it runs without that.
    """
    from nearcache.lab.runner.laboratory import prepare, takes

    for option, what, ability in (
        ("--settings", "none of your caches", "takes_own_aliases"),
        ("--data and --sample", "no values of yours", "takes_own_data"),
    ):
        of_aliases = ability == "takes_own_aliases"
        is_asked = wanted.extra if of_aliases else _wants_values(wanted, given)
        if not is_asked or takes(experiment, ability):
            continue
        if not given["all_of_them"]:
            raise LabError(
                f"{experiment.name} measures {what}; leave {option} out, or run "
                f"{', '.join(_able(ability))}"
            )
        wanted = replace(wanted, extra=()) if of_aliases else _plain(wanted)
    if played and experiment.name == REPLAY:
        wanted = replace(wanted, own_data=None, data=played.order, recording=played.description)
    return prepare(experiment, wanted), wanted


def _wants_values(wanted: RunOptions, given: dict[str, Any]) -> bool:
    return bool(wanted.own_data or given["data"] or given["sample"] or given["from_alias"])


def _plain(wanted: RunOptions) -> RunOptions:
    return replace(wanted, own_data=None, data="")


def _able(ability: str) -> list[str]:
    from nearcache.lab.experiments.registry import EXPERIMENTS
    from nearcache.lab.runner.laboratory import takes

    return [experiment.name for experiment in EXPERIMENTS.values() if takes(experiment, ability)]


def _time_limits(
    experiments: Sequence[Experiment], wanted: RunOptions, limit_s: float | None
) -> list[float | None]:
    """The user's time, divided as the plans would divide theirs."""
    if limit_s is None:
        return [None] * len(experiments)
    planned = [experiment.plans[wanted.plan].time_limit_s for experiment in experiments]
    return [limit_s * each / sum(planned) for each in planned]


def _writable(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"cannot write to {directory}: {error.strerror}; give --out DIR") from error
    if not os.access(directory, os.W_OK):
        raise LabError(f"cannot write to {directory}; give --out DIR")


def _command(seed: int) -> str:
    """The command line, with the seed that was drawn, so that it can be repeated."""
    from nearcache.lab.base.redact import redact

    after_noun = sys.argv.index("lab") + 1 if "lab" in sys.argv else 1
    words = ["nearcache", "lab", *(redact(word) for word in sys.argv[after_noun:])]
    return shlex.join(words if "--seed" in words else [*words, "--seed", str(seed)])


# -- the run -------------------------------------------------------------------------------


@dataclass
class Done:
    """What became of one experiment."""

    name: str
    state: str
    seconds: float = 0.0
    path: Path | None = None
    broken: Sequence[Finding] = ()  # rules that void what breaks them
    unanswered: str = ""  # why the question has no answer, though something was measured


def _run_all(orders: Sequence[tuple[Order, RunOptions]], out: Path, strict: bool) -> int:
    """One after the other; what fails takes no other with it. Returns the exit code."""
    from nearcache.lab.runner.stopping import Stopped, Stopping

    done: list[Done] = []
    if len(orders) == 1:
        (only,) = orders
        stopped = _run_one(*only, only[0].experiment.name, out, done)
        return stopped.exit_code if stopped else _exit_code(done, strict)
    directory = _new_directory(out, orders[0][1].seed)
    interruption: Stopped | None = None
    with Stopping() as stopping:
        try:
            for order, wanted in orders:
                title = f"{order.experiment.name} ({len(done) + 1} of {len(orders)})"
                click.echo(f"\n=== {title} ===\n")
                interruption = _forgiving(order, wanted, title, directory, done)
                if interruption:
                    break
        except Stopped as between:
            interruption = between.forgetful()
        stopping.disarm()
        done += [Done(order.experiment.name, "not run") for order, _ in orders[len(done) :]]
        _summary(done, directory)
    if interruption:
        return interruption.exit_code
    return _exit_code(done, strict)


def _exit_code(done: Sequence[Done], strict: bool) -> int:
    """2 if something could not be run, which includes: nothing of it was measured."""
    failed = any(each.state.startswith("failed") for each in done)
    return 2 if failed else _strictly(done, strict)


def _strictly(done: Sequence[Done], strict: bool) -> int:
    """The exit code of runs that ended well: 1 if asked to be strict and something is amiss."""
    amiss = [f"{each.name}: {f.rule} is broken: {f}" for each in done for f in each.broken]
    amiss += [f"{each.name}: {each.unanswered}" for each in done if each.unanswered]
    if not strict or not amiss:
        return 0
    more = f", and {len(amiss) - 1} more" if len(amiss) > 1 else ""
    click.echo(f"strict: {amiss[0]}{more}", err=True)
    return 1


def _forgiving(
    order: Order, wanted: RunOptions, title: str, out: Path, done: list[Done]
) -> Stopped | None:
    began = time.monotonic()
    try:
        return _run_one(order, wanted, title, out, done)
    except LabError as error:
        click.echo(f"{order.experiment.name} failed: {error}", err=True)
        seconds = time.monotonic() - began
        done.append(Done(order.experiment.name, f"failed: {error}", seconds))
        return None


def _run_one(
    order: Order, wanted: RunOptions, title: str, out: Path, done: list[Done]
) -> Stopped | None:
    from nearcache.lab.advice.unmeasured import unanswered
    from nearcache.lab.checks.rules import voided
    from nearcache.lab.reports.progress import TerminalProgress
    from nearcache.lab.runner.laboratory import run as run_order

    console = Console(stderr=True, highlight=False)
    with TerminalProgress(console, title, order.plan.time_limit_s) as progress:
        sample, path, interruption = run_order(order, wanted, progress, out)
    seconds = sample.about["seconds"]
    if path is None:
        click.echo("interrupted before anything was measured; nothing was written", err=True)
        done.append(Done(order.experiment.name, "interrupted, nothing measured", seconds))
        return interruption
    # Before the report: whatever becomes of that, the numbers are there.
    state = sample.about["state"] if sample.has_numbers else f"failed: {_why_nothing(sample)}"
    lacking = unanswered(sample) if sample.has_numbers else ""
    done.append(Done(order.experiment.name, state, seconds, path, voided(sample), lacking))
    if path.parent != out:
        click.echo(f"{out} cannot be written to any more; the run is in {path.parent}", err=True)
    page = _shown(sample, path)
    click.echo(f"\nraw data  {path}\npage      {page}")
    if why := lacking if sample.has_numbers else _why_nothing(sample):
        click.echo(f"nearcache: {order.experiment.name}: {why}", err=True)
    return interruption


def _why_nothing(sample: Sample) -> str:
    """In a line, why a run has no number at all."""
    reasons = dict.fromkeys(entry.reason for entry in sample.candidates.values() if entry.reason)
    return f"nothing was measured: {'; '.join(reasons) or 'no round was complete'}"


def _shown(sample: Sample, path: Path) -> str:
    """Print the report and write the page; where the page went, or why not."""
    from nearcache.lab.runner.stopping import Stopped

    page = path.with_suffix(".html")
    again = f"`nearcache lab report {path} --html {page}` writes it"
    try:
        show(sample, page)
    except Stopped:
        click.echo(f"\nraw data  {path}\npage      not written; {again}")
        raise
    except OSError as error:
        return f"not written ({error.strerror}); `nearcache lab report {path}` prints it again"
    return str(page)


def _new_directory(out: Path, seed: int) -> Path:
    """One for this run, whoever else began in the same second."""
    stem = f"run-{datetime.now(UTC):%Y%m%d-%H%M%S}-seed{seed}"
    for name in _numbered(stem):
        try:
            (out / name).mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise LabError(f"cannot write to {out}: {error.strerror}; give --out DIR") from error
        return out / name
    raise AssertionError("there is always another number")


def _numbered(stem: str) -> Iterator[str]:
    yield stem
    number = 2
    while True:
        yield f"{stem}-{number}"
        number += 1


def _summary(done: Sequence[Done], directory: Path) -> None:
    click.echo(f"\n=== {len(done)} experiments, {sum(each.seconds for each in done):.0f} s ===\n")
    width = max(len(each.name) for each in done)
    for each in done:
        where = f"  {each.path}" if each.path else ""
        click.echo(f"{each.name:<{width}}  {each.seconds:4.0f} s  {each.state}{where}")
    if not any(directory.iterdir()):
        directory.rmdir()
