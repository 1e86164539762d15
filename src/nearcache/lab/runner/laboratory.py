"""From what a user asks for to an order, and from a run to its files.

This is what the command line calls; tests call it too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nearcache.errors import LabError
from nearcache.lab.arms.candidates import EXAMPLE_PLACES, choose, fill, twin, unknown_name
from nearcache.lab.base.model import Candidate, Experiment, Plan
from nearcache.lab.base.prices import Prices
from nearcache.lab.own.alias import asks_server
from nearcache.lab.own.data import OwnData, payload_bytes
from nearcache.lab.results.machine import describe_machine, describe_versions, measuring_cpu
from nearcache.lab.results.sample import Entry, Sample
from nearcache.lab.runner.driver import Order, Progress, measure
from nearcache.lab.runner.run_file import RunFile
from nearcache.lab.runner.stopping import Stopped
from nearcache.lab.servers import is_installed


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What the user asked for; empty means all of the experiment's own."""

    plan: str = "full"
    candidates: Sequence[str] = ()
    payloads: Sequence[str] = ()
    operations: Sequence[str] = ()
    seed: int = 0
    binaries: dict[str, str] = field(default_factory=dict)
    extra: Sequence[Candidate] = ()  # aliases of the user's own settings
    command: str = ""
    time_limit_s: float | None = None  # instead of the plan's
    own_data: OwnData | None = None  # values of the user's own, instead of payloads
    data: str = ""  # the file that workers read them from
    recording: str = ""  # what is played, in words; the file is in ``data``
    prices: Prices | None = None
    paths: Sequence[Path] = ()  # directories, for experiments that measure some


def prepare(experiment: Experiment, wanted: RunOptions) -> Order:
    """The order for this wanted. Raises LabError for anything unknown."""
    experiment = _on_paths(_with_own_data(experiment, wanted), wanted.paths)
    plan = planned(experiment, wanted)
    extra = _own_aliases(experiment, wanted.extra)
    chosen = list(experiment.candidates)
    if wanted.candidates:
        chosen = choose(experiment.candidates, wanted.candidates)
    elif wanted.extra:
        chosen = []
    elif plan.candidates:
        chosen = choose(experiment.candidates, plan.candidates)
    baseline = choose(experiment.candidates, [experiment.baseline])
    chosen = [*baseline, *(c for c in chosen if c.name != experiment.baseline), *extra]
    operations = [operation.name for operation in experiment.operations]
    asked = _known("operation", wanted.operations, operations, plan.operations or operations)
    return Order(
        experiment=experiment,
        plan=plan,
        candidates=_with_twins(experiment, chosen, wanted.binaries),
        payloads=_known(
            "payload",
            wanted.payloads,
            list(experiment.payloads),
            plan.payloads or experiment.default_payloads or list(experiment.payloads),
        ),
        operations=[operation for operation in experiment.operations if operation.name in asked],
        seed=wanted.seed,
        binaries=wanted.binaries,
        data=wanted.data,
    )


def planned(experiment: Experiment, wanted: RunOptions) -> Plan:
    """The plan of this name, made to fit the time the user has for it."""
    plan = experiment.plans[wanted.plan]
    if wanted.own_data is not None:
        plan = replace(plan, payloads=())  # those it names are the experiment's own
    if wanted.time_limit_s is None:
        return plan
    factor = wanted.time_limit_s / plan.time_limit_s
    return replace(
        plan,
        time_limit_s=wanted.time_limit_s,
        # Starting processes takes its time: where there is little, fewer are started.
        repetitions=max(1, min(plan.repetitions, round(plan.repetitions * factor))),
        rounds=max(1, round(plan.rounds * max(1.0, factor))),
    )


def takes(experiment: Experiment, what: str) -> bool:
    """Whether its arm has this ability: "takes_own_aliases", "takes_own_data"."""
    module, _, name = experiment.arm.rpartition(".")
    return bool(getattr(getattr(import_module(module), name), what))


def _with_own_data(experiment: Experiment, wanted: RunOptions) -> Experiment:
    """The experiment with the user's values as its payloads."""
    if wanted.own_data is None:
        return experiment
    titles = wanted.own_data.titles
    return replace(
        experiment,
        payloads={**experiment.payloads, **titles},
        default_payloads=tuple(titles),
        cannot_answer=(*experiment.cannot_answer, NO_SEAL.format(len(wanted.own_data.values))),
    )


NO_SEAL = (
    "Your own values carry no key, version and checksum, which would change what they are. "
    "Which of the {} a key holds at a version is fixed, and an answer is compared with that "
    "one as a whole: a mix-up of two that happen to be the same would not be seen."
)


def _own_aliases(experiment: Experiment, extra: Sequence[Candidate]) -> list[Candidate]:
    """Under names that no candidate of the experiment has."""
    taken = {candidate.name for candidate in experiment.candidates}
    return [replace(c, name=f"your {c.name}") if c.name in taken else c for c in extra]


def run(
    order: Order, wanted: RunOptions, progress: Progress, directory: Path
) -> tuple[Sample, Path | None, Stopped | None]:
    """Measure, and keep the JSON in ``directory``; None if nothing was measured.

    The file may be elsewhere than in ``directory`` when that could not be written to at the
    end: a measurement that took minutes is not thrown away because a disk is full.
    """
    sample = new_sample(order, wanted.command, wanted)
    keeper = RunFile(directory, f"{order.experiment.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}")
    try:
        interruption = measure(order, sample, progress, keeper.checkpoint)
        if interruption and not sample.has_numbers:
            return sample, None, interruption
        return sample, keeper.keep(sample), interruption
    finally:
        keeper.release()


def new_sample(order: Order, command: str, wanted: RunOptions | None = None) -> Sample:
    experiment = order.experiment
    about: dict[str, Any] = {
        "experiment": experiment.name,
        "question": experiment.question,
        "started": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC",
        "seconds": 0.0,
        "command": command,
        "seed": order.seed,
        "state": "running",
        "machine": describe_machine(),
        "versions": describe_versions(),
        "servers": {},
        "cpu": measuring_cpu(),
        "steal_share": 0.0,
        "load_before": 0.0,
        "plan": vars(order.plan),
        "mix": dict(experiment.mix),
        "baseline": experiment.baseline,
        "operations": {operation.name: vars(operation) for operation in order.operations},
        "payloads": {name: experiment.payloads[name] for name in order.payloads},
        "contrasts": {title: list(pairs) for title, pairs in experiment.contrasts.items()},
        "claims": [vars(claim) for claim in experiment.claims],
        "cannot_answer": list(experiment.cannot_answer),
    }
    if wanted and wanted.recording:
        about["recording"] = wanted.recording
    if wanted and wanted.own_data:
        about["own_data"] = wanted.own_data.describe()
        about["undecoded"] = wanted.own_data.undecoded
    if wanted and wanted.prices and takes(experiment, "takes_own_data"):
        about["prices"] = asdict(wanted.prices)
        about["payload_bytes"] = payload_bytes(order.payloads, order.seed, order.data)
    return Sample(about, {c.name: _entry(c) for c in order.candidates})


def _on_paths(experiment: Experiment, paths: Sequence[Path]) -> Experiment:
    """The experiment on the user's own directories, if it is one that measures directories."""
    pattern = next((c for c in experiment.candidates if "path" in c.options), None)
    if pattern is None or not paths:
        return experiment
    for path in paths:
        if not path.is_dir():
            raise LabError(f"{path} is not a directory; make it, or give another to --path")
    names = list(dict.fromkeys(str(path.resolve()) for path in paths))
    candidates = [
        replace(pattern, name=name, title=name, options={**pattern.options, "path": name})
        for name in names
    ]
    return replace(experiment, candidates=candidates, baseline=names[0], twins=names[::-1])


def _with_twins(
    experiment: Experiment, chosen: Sequence[Candidate], binaries: Mapping[str, str]
) -> list[Candidate]:
    """Add one A/A twin for what runs in the process, and one for what asks a server.

    Of those that are there: the twin of who is missing would be missing as well.
    """
    by_name = {candidate.name: candidate for candidate in chosen}
    preferred = [by_name[name] for name in experiment.twins if name in by_name]
    own = [c for c in chosen if c.settings_module and c.reach != "process"]
    own.sort(key=asks_server, reverse=True)
    remotes = [*(c for c in (*preferred, *chosen) if c.server), *own]
    local = next((c for c in preferred if not c.server and _is_there(c, binaries)), None)
    remote = next((c for c in remotes if _is_there(c, binaries)), None)
    return [*chosen, *(twin(c) for c in (local, remote) if c)]


def _is_there(candidate: Candidate, binaries: Mapping[str, str]) -> bool:
    """As far as can be said without starting it."""
    return all(find_spec(need.module) for need in candidate.needs) and all(
        is_installed(server, binaries) for server in candidate.servers
    )


def _entry(candidate: Candidate) -> Entry:
    return Entry(
        name=candidate.name,
        title=candidate.title,
        family=candidate.family,
        reach=candidate.reach,
        note=candidate.note,
        twin_of=candidate.twin_of,
        server=candidate.server,
        options=dict(candidate.options),
        needs=[requirement.install for requirement in candidate.needs],
        recommendable=candidate.recommendable,
        # A user's own settings may hold a password, and the user has them already.
        recommended={} if candidate.settings_module else fill(candidate.settings, EXAMPLE_PLACES),
    )


def _known(
    kind: str, wanted: Sequence[str], known: Sequence[str], default: Sequence[str]
) -> list[str]:
    for name in wanted:
        if name not in known:
            raise LabError(unknown_name(kind, name, known))
    return [name for name in known if name in (wanted or default)]
