"""Any experiment, really run, for a moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nearcache.lab.base.model import Candidate, Experiment, Plan
from nearcache.lab.results.sample import Sample
from nearcache.lab.runner.driver import measure
from nearcache.lab.runner.laboratory import RunOptions, new_sample, prepare

from .conftest import Silent

TINY = Plan(repetitions=1, rounds=2, phase_ms=0.3, time_limit_s=30)


def run_of(
    experiment: Experiment,
    names: Sequence[str],
    more: Sequence[Candidate] = (),
    plan: Plan = TINY,
    **wished: Any,
) -> Sample:
    """A sample of the candidates of these names, and of ``more`` that the experiment lacks."""
    known = [*experiment.candidates, *more]
    asked = replace(experiment, candidates=known, plans={"tiny": plan})
    names = [*names, *(candidate.name for candidate in more)]
    order = prepare(asked, RunOptions(plan="tiny", candidates=names, seed=7, **wished))
    sample = new_sample(order, "a test")
    measure(order, sample, Silent(), lambda sample: None)
    return sample


def candidate_of(experiment: Experiment, name: str, called: str, **options: Any) -> Candidate:
    """A copy of a candidate under another name, with some of its options changed."""
    (found,) = (c for c in experiment.candidates if c.name == name)
    return replace(found, name=called, options={**found.options, **options})


def assert_failed(sample: Sample, name: str, reason: str) -> None:
    entry = sample.candidates[name]
    assert entry.state == "failed", entry
    assert reason in entry.reason
    assert not [cell for cell in sample.cells if cell[0] == name], "its numbers are void"
