"""From what a user asks for to an order, and from a run to its files.

This is what the command line calls; tests call it too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from nearcache.errors import LabError
from nearcache.lab.candidates import EXAMPLE_PLACES, choose, fill, twin, unknown_name
from nearcache.lab.driver import Order, Progress, measure
from nearcache.lab.machine import describe_machine, describe_versions, measuring_cpu
from nearcache.lab.model import Candidate, Experiment
from nearcache.lab.sample import Entry, Sample
from nearcache.lab.stopping import Stopped


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the user asked for; empty means all of the experiment's own."""

    plan: str = "full"
    candidates: Sequence[str] = ()
    payloads: Sequence[str] = ()
    operations: Sequence[str] = ()
    seed: int = 0
    binaries: dict[str, str] = field(default_factory=dict)
    extra: Sequence[Candidate] = ()  # aliases of the user's own settings
    command: str = ""


def prepare(experiment: Experiment, wish: Wish) -> Order:
    """The order for this wish. Raises LabError for anything unknown."""
    plan = experiment.plans[wish.plan]
    chosen = list(experiment.candidates)
    if wish.candidates:
        chosen = choose(experiment.candidates, wish.candidates)
    elif wish.extra:
        chosen = []
    elif plan.candidates:
        chosen = choose(experiment.candidates, plan.candidates)
    baseline = choose(experiment.candidates, [experiment.baseline])
    chosen = [*baseline, *(c for c in chosen if c.name != experiment.baseline), *wish.extra]
    operations = [operation.name for operation in experiment.operations]
    asked = _known("operation", wish.operations, operations, operations)
    return Order(
        experiment=experiment,
        plan=plan,
        candidates=_with_twins(experiment, chosen),
        payloads=_known(
            "payload",
            wish.payloads,
            list(experiment.payloads),
            plan.payloads or experiment.default_payloads or list(experiment.payloads),
        ),
        operations=[operation for operation in experiment.operations if operation.name in asked],
        seed=wish.seed,
        binaries=wish.binaries,
    )


def run(
    order: Order, command: str, progress: Progress, directory: Path
) -> tuple[Sample, Path | None, Stopped | None]:
    """Measure, and keep the JSON in ``directory``; None if nothing was measured."""
    sample = new_sample(order, command)
    stem = f"{order.experiment.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    path = directory / f"{stem}.json"
    interruption = measure(order, sample, progress, _writer(path))
    if not sample.has_numbers and interruption:
        return sample, None, interruption
    _writer(path)(sample)
    return sample, path, interruption


def new_sample(order: Order, command: str) -> Sample:
    experiment = order.experiment
    about = {
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
    return Sample(about, {c.name: _entry(c) for c in order.candidates})


def _with_twins(experiment: Experiment, chosen: Sequence[Candidate]) -> list[Candidate]:
    """Add one A/A twin for what runs in the process, and one for what asks a server."""
    by_name = {candidate.name: candidate for candidate in chosen}
    preferred = [by_name[name] for name in experiment.twins if name in by_name]
    pool = [*preferred, *(c for c in chosen if c.server)]
    local = next((c for c in pool if not c.server), None)
    remote = next((c for c in pool if c.server), None)
    return [*chosen, *(twin(c) for c in (local, remote) if c)]


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


def _writer(path: Path) -> Callable[[Sample], None]:
    def write(sample: Sample) -> None:
        if sample.has_numbers or sample.about["state"] == "complete":
            path.parent.mkdir(parents=True, exist_ok=True)
            sample.write(path)

    return write
