"""Samples without a run: experiments and numbers that a test makes up."""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Callable, Mapping

from nearcache.lab.arms.candidates import LOCMEM
from nearcache.lab.base.messages import Phase
from nearcache.lab.base.model import NO_PAYLOAD, Candidate, Claim, Experiment, Operation, Plan
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.results.sample import Sample
from nearcache.lab.runner.laboratory import RunOptions, new_sample, prepare

PLAN = Plan(repetitions=5, rounds=4, phase_ms=1, time_limit_s=10)


class Quiet(Analysis):
    """A real run, judged as if the machine had been good: it may be busy while tests run."""

    def void(self, candidate: str, operation: str = "", payload: str = "") -> str:
        return ""


# What one phase is, for a candidate in a repetition and a round.
PhaseOf = Callable[[str, int, int], Phase]


def arm(name: str, **more: object) -> Candidate:
    """A candidate of which nothing but the name matters."""
    return Candidate(name=name, title=name, family="made up", settings=LOCMEM.settings, **more)  # type: ignore[arg-type]


def experiment(*names: str, operations: tuple[Operation, ...] = (), **more: object) -> Experiment:
    return Experiment(
        name="made-up",
        question="Which?",
        candidates=[arm(name) for name in names],
        payloads={"S": "small thing"},
        operations=operations or (Operation(name="get"),),
        baseline=names[0],
        twins=names[:1],
        plans={"full": PLAN},
        cannot_answer=("Anything that is real.",),
        **more,  # type: ignore[arg-type]
    )


def sample_of(asked: Experiment, phase_of: PhaseOf, operation: str = "get") -> Sample:
    """Five repetitions of four rounds of one operation; a twin as its original."""
    sample = new_sample(prepare(asked, RunOptions(seed=1)), "made up")
    sample.about |= {"state": "complete", "seconds": 1.0}
    free = next(o for o in asked.operations if o.name == operation).payload_free
    for name, entry in sample.candidates.items():
        entry.state = "measured"
        cell = sample.cell(name, operation, NO_PAYLOAD if free else "S")
        for repetition in range(PLAN.repetitions):
            for number in range(PLAN.rounds):
                cell.add_phase(
                    repetition, number, phase_of(entry.twin_of or name, repetition, number)
                )
    return sample


def phase(cost: float, rng: random.Random, noise: float = 0.01, **more: object) -> Phase:
    """Sixty samples around ``cost``, all of them answered and accounted for."""
    found = array("Q", (int(cost * math.exp(rng.gauss(0, noise))) for _ in range(60)))
    return Phase("get", samples=found, calls=60, hits=60, **more)  # type: ignore[arg-type]


def steady(costs: Mapping[str, float], noise: float = 0.01) -> PhaseOf:
    """Everybody has a cost of their own, the same in all rounds."""
    rng = random.Random(2)
    return lambda name, _repetition, _number: phase(costs[name], rng, noise)


def claim(slow: str, fast: str, ratio: float) -> Claim:
    return Claim(
        article="000", text=f"{fast} beats {slow}", ratio=ratio, slow=slow, fast=fast,
        operation="get", payload="S", why="as it was",
    )  # fmt: skip
