"""Samples without a run, of every shape an experiment may have; for tests of reports.

crowd     many candidates, one unit, parts and measures: as codecs and backends
rates     throughput as time per success, shown as a rate; some calls time out
bytes     points in bytes without samples, and a time beside them: as hashes
endings   nothing but outcomes: as the drill
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from nearcache.lab.base.messages import Phase
from nearcache.lab.base.model import Candidate, Claim, Experiment, Operation, Plan
from nearcache.lab.results.sample import Sample
from nearcache.lab.runner.laboratory import RunOptions, new_sample, prepare

PLAN = Plan(repetitions=3, rounds=4, phase_ms=1, time_limit_s=10)
HOSTILE = "</script><script>alert(1)</script>'\"&<b>[red]"


def experiment(name: str, candidates: Sequence[Candidate], **fields: Any) -> Experiment:
    return Experiment(
        **{
            "name": name,
            "question": f"What about {name}?",
            "candidates": candidates,
            "payloads": {"S": "small dict", "F": "list of floats"},
            "operations": (Operation(name="get"), Operation(name="set")),
            "baseline": candidates[0].name,
            "twins": [candidates[0].name],
            "plans": {"full": PLAN},
        }
        | fields
    )


def candidate(name: str, family: str = "some", **fields: Any) -> Candidate:
    return Candidate(name=name, title=f"the {name}", family=family, **fields)


def measured(asked: Experiment, seed: int = 3) -> Sample:
    """A sample of this experiment in which everybody is present, still without numbers."""
    sample = new_sample(prepare(asked, RunOptions(seed=seed)), f"nearcache lab run {asked.name}")
    sample.about |= {"seconds": 12.0, "state": "complete", "servers": {"redis": "7.0.15"}}
    for entry in sample.candidates.values():
        entry.state = "measured"
        entry.proof = {"backend": f"{entry.name}.Cache", "socket": "tcp 127.0.0.1:1"}
    return sample


def fill(
    sample: Sample,
    costs_ns: Mapping[str, float],
    operation: str = "get",
    payload: str = "S",
    noise: float = 0.01,
    **seen: Any,
) -> None:
    """Rounds of this operation; a twin costs what its original does. ``seen``: see Phase."""
    rng = random.Random(f"{operation}{payload}")
    for name, entry in sample.candidates.items():
        cost_ns = costs_ns.get(entry.twin_of or name)
        if cost_ns is None:
            continue
        cell = sample.cell(name, operation, payload)
        for repetition in range(PLAN.repetitions):
            for number in range(PLAN.rounds):
                middle = cost_ns * (1 + rng.uniform(-noise, noise))
                phase = Phase(operation=operation, calls=60, hits=60, **seen)
                for place in range(60):
                    slow = 4 if place < 10 else 1  # so that there is a warm-up to find
                    phase.samples.append(int(middle * slow * rng.lognormvariate(0, 0.1)) + 1)
                cell.add_phase(repetition, number, phase)


def crowd(count: int = 40, seed: int = 3, **fields: Any) -> Sample:
    """Many candidates in several families, with parts, measures, a mix and claims."""
    names = [f"serializer{number // 4}-compressor{number % 4}" for number in range(count)]
    everybody = [
        candidate(name, f"serializer{number // 4}", servers=("redis",) if number % 2 else ())
        for number, name in enumerate(names)
    ]
    claim = Claim(
        article="001", text="the second takes 16.7 times as long", ratio=16.7, slow=names[1],
        fast=names[0], operation="get", payload="S", why="both run the same code now",
    )  # fmt: skip
    asked = experiment(
        "made-up-crowd",
        everybody,
        **{
            "mix": {"get": 0.9, "set": 0.1},
            "claims": [claim],
            "contrasts": {"one or the other": [(names[0], names[1])]},
            "cannot_answer": ["What a network would add."],
        }
        | fields,
    )
    sample = measured(asked, seed)
    for entry in sample.candidates.values():
        entry.stored = {"S": (120.0 + len(entry.name), "STRLEN"), "F": (9000.0, "STRLEN")}
    for operation, factor in (("get", 1.0), ("set", 2.5)):
        for payload, size in (("S", 1.0), ("F", 20.0)):
            costs = {
                name: 3000 * factor * size * (1 + 0.2 * max(0, number - 1))
                for number, name in enumerate(names)
            }
            for name, cost_ns in costs.items():
                parts = {"encode": 0.2 * cost_ns, "wait": 0.5 * cost_ns, "decode": 0.3 * cost_ns}
                measures = {"client CPU": (0.4, "share"), "round trips": (1.0, "count")}
                fill(sample, {name: cost_ns}, operation, payload, parts=parts, measures=measures)
    return sample


def rates() -> Sample:
    """Success and time-outs of crowds, in operations a second."""
    pools = [candidate(f"pool-{size}", "pools", servers=("redis",)) for size in (1, 10, 100)]
    operation = Operation(name="ping", title="PING by 5,000 greenlets", as_rate=True)
    payloads = {"5k": "5,000 greenlets"}
    sample = measured(
        experiment("made-up-rates", pools, operations=(operation,), payloads=payloads)
    )
    for number, pool in enumerate(pools):
        fill(
            sample, {pool.name: 50_000 / (number + 1)}, "ping", "5k",
            point=60_000 / (number + 1), outcomes={"timeout": 20 - number},
            measures={"wait P99": (4e6, "ns"), "fairness": (0.93, "")},
        )  # fmt: skip
    return sample


def sizes() -> Sample:
    """Bytes per item, which have no distribution, and the time of a read."""
    buckets = [candidate(f"hash-{size}", "buckets") for size in (10, 100, 1000, 5000)]
    operations = (Operation(name="bytes per key", unit="bytes"), Operation(name="read"))
    payloads = {"M": "a million keys"}
    sample = measured(
        experiment("made-up-sizes", buckets, operations=operations, payloads=payloads)
    )
    for number, bucket in enumerate(buckets):
        fill(sample, {bucket.name: 9000 + 900 * number}, "read", "M")
        for name in (bucket.name, f"{bucket.name} (twin)"):
            if name in sample.candidates:
                cell = sample.cell(name, "bytes per key", "M")
                cell.unit = "bytes"
                for repetition in range(PLAN.repetitions):
                    phase = Phase(operation="bytes per key", calls=1, point=90.0 - 15 * number)
                    cell.add_phase(repetition, 0, phase)
    return sample


def endings() -> Sample:
    """What became of calls, and nothing to rank."""
    backends = [candidate(name, "backends") for name in ("redis", "memcached", "files")]
    operations = (Operation(name="stopped", title="get, server stopped"), Operation(name="full"))
    sample = measured(
        experiment("made-up-endings", backends, operations=operations, payloads={"S": "small dict"})
    )
    says = {"redis": "raises ConnectionError", "memcached": "answers None", "files": "answers"}
    for name, entry in sample.candidates.items():
        for operation in ("stopped", "full"):
            phase = Phase(operation=operation, calls=10, errors=9)
            phase.outcomes = {says[entry.twin_of or name]: 9, "blocks": 1}
            sample.cell(name, operation, "S").add_phase(0, 0, phase)
    return sample
