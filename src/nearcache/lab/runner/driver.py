"""Runs an experiment: starts servers and workers, asks in random order, collects.

    for each repetition (fresh processes)
        start one worker per candidate; each proves itself or is out
        one unrecorded visit per payload: warms up, decides batches, weighs items
        for each round
            visit all (candidate, payload) pairs, in an order drawn anew
            keep what they answered, unless much of the time was stolen
        write the file

Why rounds of everything, and not one candidate after the other: the machine drifts,
and whoever came first would be measured on another machine than who came last.
A wrong answer voids all numbers of its candidate, in every repetition.
"""

from __future__ import annotations

import hashlib
import math
import random
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Protocol

from nearcache.lab.arms.candidates import fill
from nearcache.lab.base.directories import private_directory
from nearcache.lab.base.messages import AGAIN, Failed, Missing, Ready, Setup, Visit, Visited
from nearcache.lab.base.model import NO_PAYLOAD, Candidate, Experiment, Operation, Plan
from nearcache.lab.base.redact import redact
from nearcache.lab.own.alias import plain, with_place
from nearcache.lab.results.machine import describe_versions, measuring_cpu, pressure
from nearcache.lab.results.sample import Sample
from nearcache.lab.runner.crew import WorkerProcess, end_all
from nearcache.lab.runner.interleaving import Interleaving
from nearcache.lab.runner.stopping import Stopped, Stopping
from nearcache.lab.servers import ServerMissing, Servers
from nearcache.lab.timers.stolen import Pressure, StolenTime
from nearcache.lab.timers.timed import BATCH, calibrate

# What may not differ between the processes of one candidate; paths and ports may.
STEADY_PROOFS = frozenset({"backend", "client", "server", "parser", "hiredis"})


class Progress(Protocol):
    """Told what happens; the terminal draws it."""

    def repetition(self, number: int, of: int) -> None: ...
    def round(self, number: int, of: int, visits: int) -> None: ...
    def step(self, what: str) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is to be measured. ``candidates`` hold baseline and twins already."""

    experiment: Experiment
    plan: Plan
    candidates: Sequence[Candidate]
    payloads: Sequence[str]
    operations: Sequence[Operation]
    seed: int
    binaries: Mapping[str, str] = field(default_factory=dict)
    data: str = ""  # file of the user's own values


def measure(
    order: Order,
    sample: Sample,
    progress: Progress,
    checkpoint: Callable[[Sample], None],
    look: Callable[[], Pressure] | None = None,
) -> Stopped | None:
    """Fill ``sample``. Returns who asked the run to end, if anybody did.

    Whoever asks while things are put away finds a complete sample. Servers, workers and files
    are gone when this returns or raises. ``look`` says how busy the machine is with others;
    unless given, the kernel does.
    """
    look = look or pressure
    started = time.monotonic()
    before = look()
    sample.about |= {"load_before": before["load"], "overhead": calibrate()}
    interruption: Stopped | None = None
    with Stopping() as stopping:
        driver = Driver(order, sample, progress, checkpoint, stopping, look)
        try:
            driver.run()
        except Stopped as stopped:
            interruption = stopped.forgetful()
        finally:
            stopping.disarm()
            driver.put_away()
    after = look()
    sample.about |= {
        **driver.stolen.close(),
        "seconds": round(time.monotonic() - started, 1),
        "swapped_pages": int(after["swapped_pages"] - before["swapped_pages"]),
        "versions_after": describe_versions(),
        "order": driver.interleaving.summary(),
        "state": "interrupted" if interruption else "complete",
    }
    return interruption or stopping.asked()


class Driver:
    def __init__(
        self,
        order: Order,
        sample: Sample,
        progress: Progress,
        checkpoint: Callable[[Sample], None],
        stopping: Stopping,
        look: Callable[[], Pressure],
    ) -> None:
        self.order = order
        self.sample = sample
        self.progress = progress
        self.checkpoint = checkpoint
        self.stopping = stopping
        self.interleaving = Interleaving(random.Random(order.seed))
        self.stolen = StolenTime(self._record, look)
        self.cpu = measuring_cpu()
        self.batches: dict[tuple[str, str, str], int] = {}
        self.lowest: dict[str, float] = {}
        # After the first repetition: all processes of a run must bear the same load.
        self.settled = False
        self.crew: list[WorkerProcess] = []
        self.started = time.monotonic()
        self.deadline = math.inf
        with stopping.deferred():
            self.directory = private_directory()
            self.servers = Servers(self.directory, self.cpu, order.binaries)

    def run(self) -> None:
        self._start_servers()
        plan = self.order.plan
        for repetition in range(plan.repetitions):
            self.progress.repetition(repetition + 1, plan.repetitions)
            self._repeat(repetition)
            with self.stopping.deferred():
                self.checkpoint(self.sample)

    def put_away(self) -> None:
        self._dismiss()
        self.servers.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _start_servers(self) -> None:
        for candidate in self.order.candidates:
            for name in candidate.servers:
                self.progress.step(f"starting {name}")
                try:
                    with self.stopping.deferred():
                        server = self.servers.start(name)
                except ServerMissing as missing:
                    self._out(candidate.name, Missing(str(missing), missing.install))
                    break
                self.sample.about["servers"][server.name] = server.version

    def _repeat(self, repetition: int) -> None:
        plan = self.order.plan
        share_s = plan.time_limit_s * (repetition + 1) / plan.repetitions
        self.deadline = math.inf  # one round is measured, whatever the clock says
        try:
            self._assemble(repetition)
            self._visit_all(f"{repetition}:warm", None)
            self.settled = True
            for number in range(plan.rounds):
                began = time.monotonic()
                self.progress.round(number + 1, plan.rounds, self._visits_per_round())
                self._visit_all(f"{repetition}:{number}", (repetition, number))
                took_s = time.monotonic() - began
                self.deadline = self.started + share_s
                if time.monotonic() + took_s > self.deadline:
                    break
        finally:
            self._dismiss()

    def _assemble(self, repetition: int) -> None:
        """Start all workers, then hear from each: they load in parallel."""
        for candidate in self.order.candidates:
            if self.sample.candidates[candidate.name].state in ("missing", "failed"):
                continue
            self.progress.step(f"starting {candidate.name}")
            setup = self._setup(candidate, repetition)
            with self.stopping.deferred():
                self.crew.append(WorkerProcess(setup))
        for member in list(self.crew):
            answer = member.begun()
            if isinstance(answer, Ready):
                name = member.candidate.name
                proof = {k: self._without_secrets(name, v) for k, v in answer.proof.items()}
                self._prove(name, proof)
            else:
                self._expel(member, answer)

    def _prove(self, name: str, proof: dict[str, str]) -> None:
        """Keep what a worker proved, and whether another one of its name proved otherwise."""
        entry = self.sample.candidates[name]
        for what in entry.proof.keys() & proof.keys() & STEADY_PROOFS:
            if entry.proof[what] != proof[what]:
                text = f"{what} was {entry.proof[what]} in one process, {proof[what]} in another"
                self.sample.about.setdefault("changed", {})[name] = text
        entry.proof = proof

    def _setup(self, candidate: Candidate, repetition: int) -> Setup:
        directory = self.directory / f"{repetition}-{_digest(candidate.name)}"
        directory.mkdir(mode=0o700)  # SharedMemoryCache trusts no other
        places = {**self.servers.places(), "dir": str(directory), "shm_path": f"{directory}/cache"}
        server = self.servers.running.get(candidate.server) if candidate.server else None
        identity = f"{self.order.seed}:{self.directory.name}:{repetition}:{candidate.name}"
        return Setup(
            candidate=replace(
                candidate,
                settings=(
                    plain(candidate.settings)
                    if candidate.settings_module
                    else fill(candidate.settings, places)
                ),
                options=fill(candidate.options, places),
            ),
            arm=self.order.experiment.arm,
            places=places,
            directory=str(directory),
            namespace=f"nearcache-lab:{_digest(identity)}",
            seed=self.order.seed,
            server_version=f"{candidate.server} {server.version}" if server else "",
            cpu=self.cpu,
            binaries=self.order.binaries,
            data=self.order.data,
        )

    def _visits_per_round(self) -> int:
        return len(self.crew) * len(self.order.payloads)

    def _visit_all(self, round_id: str, record: tuple[int, int] | None) -> None:
        visits = [(member, payload) for member in self.crew for payload in self.order.payloads]
        for place, (member, payload) in enumerate(self.interleaving.shuffled(visits)):
            if member not in self.crew:
                continue  # expelled earlier in this round
            if time.monotonic() > self.deadline:
                return  # the pairs of this round that are complete count
            self.progress.step(f"{member.candidate.name}, payload {payload}")
            answer, stolen = self._ask(member, payload, round_id, record is None)
            if isinstance(answer, Failed):
                self._expel(member, answer)
            elif record is None:
                self._learn(member.candidate, payload, answer)
            else:
                name = member.candidate.name
                self.interleaving.visited(name, payload, place / max(1, len(visits) - 1))
                self.stolen.take((name, payload, answer, record), stolen)

    def _ask(
        self, member: WorkerProcess, payload: str, round_id: str, learning: bool
    ) -> tuple[Visited | Failed, float]:
        """What it answered, and the share of its time that was stolen."""

        def ask(attempt: int) -> Visited | Failed:
            own = round_id + attempt * AGAIN
            answer: Visited | Failed = member.ask(
                self._visit(member.candidate, payload, own, learning)
            )
            return answer

        if learning or not any(operation.ranked for operation in self.order.operations):
            return ask(0), 0.0  # how a call ended is so, however long the CPU was away
        return self.stolen.ask(member.candidate.name, ask)

    def _visit(self, candidate: Candidate, payload: str, round_id: str, learning: bool) -> Visit:
        # What does not depend on the payload is measured with the first one only.
        first = payload == self.order.payloads[0]
        operations = [o.name for o in self.order.operations if first or not o.payload_free]
        base = candidate.twin_of or candidate.name
        known = {o: self.batches.get((base, o, payload), 1) for o in operations}
        return Visit(
            payload=payload,
            operations=operations,
            round_id=round_id,
            phase_ns=int(self.order.plan.phase_ms * 1e6) // (2 if learning else 1),
            batch=known,
            learning=learning,
            lowest=self.lowest,
        )

    def _learn(self, candidate: Candidate, payload: str, visited: Visited) -> None:
        """From the unrecorded visit: batches, the bytes of an item, what all can serve."""
        entry = self.sample.candidates[candidate.name]
        entry.facts |= visited.facts
        if visited.stored_bytes is not None:
            entry.stored[payload] = (visited.stored_bytes, visited.stored_how)
        if not self.settled:
            for name, value in visited.learned.items():
                self.lowest[name] = min(value, self.lowest.get(name, math.inf))
        for phase in visited.phases:
            # Twins and later repetitions keep the first decision, or they could not be compared.
            key = (candidate.twin_of or candidate.name, phase.operation, payload)
            if phase.samples and key not in self.batches:
                fast = median(phase.samples) < self.sample.about["overhead"]["batch_below_ns"]
                self.batches[key] = BATCH if fast else 1

    def _record(self, name: str, payload: str, visited: Visited, record: tuple[int, int]) -> None:
        entry = self.sample.candidates[name]
        if entry.state == "failed":
            return  # later in this round
        entry.state = "measured"
        entry.facts |= visited.facts
        asked = {operation.name: operation for operation in self.order.operations}
        for phase in visited.phases:
            if phase.operation in asked:
                where = NO_PAYLOAD if asked[phase.operation].payload_free else payload
                cell = self.sample.cell(name, phase.operation, where)
                cell.unit = asked[phase.operation].unit
                cell.add_phase(*record, phase, refused=visited.refused)

    def _expel(self, member: WorkerProcess, answer: Failed | Missing) -> None:
        self.crew.remove(member)
        with self.stopping.deferred():
            member.end()
        self._out(member.candidate.name, answer)

    def _out(self, name: str, answer: Failed | Missing) -> None:
        entry = self.sample.candidates[name]
        entry.state = "missing" if isinstance(answer, Missing) else "failed"
        candidate = self._ordered(name)
        own = candidate.settings_module is not None
        reason = with_place(answer.reason, candidate.settings) if own else answer.reason
        entry.reason = self._without_secrets(name, reason)
        entry.install = answer.install if isinstance(answer, Missing) else ""
        self.sample.drop(name)

    def _without_secrets(self, name: str, text: str) -> str:
        """What is printed and stored of a candidate: its settings may be the user's own."""
        return redact(text, self._ordered(name).settings)

    def _ordered(self, name: str) -> Candidate:
        return next(c for c in self.order.candidates if c.name == name)

    def _dismiss(self) -> None:
        end_all(self.crew)
        self.crew.clear()


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
