"""A lock under measurement: alone, contended, after a crash, and after the cache was emptied.

The worker loads Django and connects to nothing. Everything happens in forked children
(:mod:`.lock_tasks`): fresh ones in every round, which may be killed. An arm that lets two in
at once is void, unless it is the one without a lock, which has to: it shows that the
counting can see it.
"""

from __future__ import annotations

import math
import sys
import time
from array import array
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from importlib import import_module
from typing import Any

from nearcache.lab.arms.forked import Forked, Silent, Teller
from nearcache.lab.base.arm import Arm
from nearcache.lab.base.messages import Phase, Setup, Visit, Visited
from nearcache.lab.experiments.locks.lockers import Options, open_locker
from nearcache.lab.experiments.locks.rules import rules
from nearcache.lab.experiments.locks.tasks import (
    PATIENCE_S,
    LockUse,
    Room,
    alone,
    clock,
    comes_in,
    contend,
    follow,
    hold,
    nothing,
    view,
)
from nearcache.lab.statistics.fairness import jain

RECOVERY_S = 3.0  # a lock that nobody got by then counts as lost
ASKING_S = 0.03  # for somebody who asks to stand where he waits
ALONE = ("call", "view")
FIRST_REPETITION = "0:"  # how its rounds are named; what a lock does it does in all of them
LEAD_NS = 30_000_000
ATTEMPTS = 3
FAST_BATCH = 100  # of calls that two timestamps would be a large part of


class TwoInside(Exception):
    """The lock let in two at once; the message says how it was seen."""


class LockArm(Arm):
    """One way to lock, in as many processes as the payload says."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.options = {**self.candidate.options, "directory": setup.directory}
        self.locks = self.options["locker"] != "none"

    def begin(self) -> Mapping[str, str]:
        configure(self.setup)
        name = f"{self.setup.namespace}:proof"
        with Forked(prove(self.options, name), self.setup.cpu) as child:
            proof, modules = child.hear(PATIENCE_S)
        preload(modules)
        self._prove_exclusion()
        kept_out = "a second one is kept out" if self.locks else "a second one gets in, as it must"
        return {**proof, "exclusion": kept_out, "server": self.setup.server_version}

    def visit(self, visit: Visit) -> Visited:
        steps = {
            "call": self._call,
            "view": self._view,
            "turn": self._turns,
            "wait": self._turns,
            "recover": self._recover,
        }
        phases: dict[str, Phase] = {}
        for name in visit.operations:
            if visit.learning and name not in ALONE:
                continue  # every round has fresh processes: nothing to warm up
            if name not in phases:
                phases |= {phase.operation: phase for phase in steps[name](visit)}
        found = Visited([phases[name] for name in visit.operations if name in phases])
        if visit.learning and self.locks and visit.round_id.startswith(FIRST_REPETITION):
            found.facts = rules(self, visit.round_id)
        return found

    # -- alone ---------------------------------------------------------------------------------

    def _call(self, visit: Visit) -> list[Phase]:
        batch = FAST_BATCH if visit.batch.get("call", 1) > 1 else 1
        task = alone(self.options, self.name(visit, "call"), visit.phase_ns // 4, batch)
        return [self._samples("call", task, batch)]

    def _view(self, visit: Visit) -> list[Phase]:
        task = view(self.options, self.name(visit, "view"), visit.phase_ns // 4)
        return [self._samples("view", task, 1)]

    def _samples(
        self, operation: str, task: Callable[[Teller], tuple[array[int], int]], batch: int
    ) -> Phase:
        with Forked(task, self.setup.cpu) as child:
            samples, calls = child.hear(PATIENCE_S)
        return Phase(operation, batch=batch, samples=samples, calls=calls, hits=calls)

    # -- contended -----------------------------------------------------------------------------

    def _turns(self, visit: Visit) -> list[Phase]:
        processes, threads = shape(visit.payload)
        room = Room(processes * threads)
        name = self.name(visit, f"turn:{visit.payload}")
        with ExitStack() as stack:
            children = []
            for first in range(0, room.contenders, threads):
                task = contend(self.options, name, room, range(first, first + threads))
                children.append(stack.enter_context(Forked(task, self.setup.cpu)))
            for child in children:
                child.hear(PATIENCE_S)
            begins_ns = clock() + LEAD_NS
            ends_ns = begins_ns + visit.phase_ns
            for child in children:
                child.say((begins_ns, ends_ns))
            found = [child.hear(PATIENCE_S) for child in children]
        turns = {number: each for one in found for number, each in one["turns"].items()}
        cpu_ns = sum(one["cpu_ns"] for one in found)
        self._demand_turns(turns, room)
        return phases_of(turns, begins_ns, ends_ns, cpu_ns)

    def _demand_turns(self, turns: Mapping[int, Mapping[str, Any]], room: Room) -> None:
        if not self.locks:
            return
        crowded = sum(each["crowded"] for each in turns.values())
        most = most_at_once(turns)
        stays = sum(len(each["entered"]) for each in turns.values())
        if crowded or most > 1 or room.counter != stays:
            raise TwoInside(
                f"two were inside at once: seen by {crowded} of {stays}, {most} at a time, and a "
                f"counter that each raised by one came to {room.counter}: its numbers are void"
            )

    # -- crashed -------------------------------------------------------------------------------

    def _recover(self, visit: Visit) -> list[Phase]:
        if not self.locks:
            return []  # nobody has to wait
        phase = Phase("recover", calls=1)
        use = LockUse(self.options, self.name(visit, "recover"))
        with Forked(hold(use), self.setup.cpu) as holder:
            holder.hear(PATIENCE_S)
            with Forked(follow(use), self.setup.cpu) as follower:
                follower.hear(PATIENCE_S)
                time.sleep(ASKING_S)
                killed_at = clock()
                holder.kill()
                try:
                    came_in_at = follower.hear(RECOVERY_S)
                except Silent:
                    phase.outcomes[f"never within {RECOVERY_S:g} s"] = 1
                    return [phase]
        if came_in_at < killed_at:
            raise TwoInside("a second one came in while the first was inside: numbers are void")
        phase.samples.append(came_in_at - killed_at)
        phase.hits = 1
        return [phase]

    # -- for all of them -----------------------------------------------------------------------

    def name(self, visit: Visit, what: str) -> str:
        """Of a lock: new in every round, so that what one round leaves behind is not met again."""
        return f"{self.setup.namespace}:{visit.round_id}:{what}"

    def _prove_exclusion(self) -> None:
        """Beside a holder nobody comes in; but where there is no lock, everybody does.

        Who is broken at once is broken. Only if the host stopped this machine for longer than
        the lock's timeout may it have run out under its holder, as it promises: then once more.
        """
        for attempt in range(ATTEMPTS):
            began = time.monotonic()
            found = self._broken_exclusion(f"{self.setup.namespace}:canary:{attempt}")
            if not found:
                return
            if time.monotonic() - began < (self.options.get("timeout_s") or math.inf):
                break
        raise TwoInside(found)

    def _broken_exclusion(self, name: str) -> str:
        """What is wrong with two at one use; empty if nothing is."""
        use = LockUse(self.options, name)
        with Forked(hold(use), self.setup.cpu) as holder:
            holder.hear(PATIENCE_S)
            with Forked(follow(use), self.setup.cpu) as follower:
                came_in = comes_in(follower)
                holder.say("leave")
                told = holder.hear(PATIENCE_S)
                if not came_in and self.locks:
                    follower.hear(PATIENCE_S)
        if came_in and self.locks:
            return "a second one came in while the first was inside"
        if not came_in and not self.locks:
            return "one was kept out where there is no lock: counting is broken"
        return f"a holder that nobody disturbed was told {told}" if told else ""


def prove(options: Options, name: str) -> Callable[[Teller], tuple[dict[str, str], list[str]]]:
    """What the locker is, and all modules that it takes to use it."""

    def task(_teller: Teller) -> tuple[dict[str, str], list[str]]:
        locker = open_locker(options)
        proof = locker.proof()
        locker.decorate(nothing, name)()
        return proof, list(sys.modules)

    return task


def preload(modules: Iterable[str]) -> None:
    """Import what children will need, once, here; importing connects to nothing."""
    for name in modules:
        if name not in sys.modules:
            with suppress(ImportError):  # names that are no files, as in six
                import_module(name)


def shape(payload: str) -> tuple[int, int]:
    """Processes, and threads in each: ``4x1`` is four processes, ``1x8`` eight threads."""
    processes, _, threads = payload.partition("x")
    return int(processes), int(threads)


def most_at_once(turns: Mapping[int, Mapping[str, Any]]) -> int:
    """From the times of entries and exits: how many were inside together."""
    events = [(at, 1) for each in turns.values() for at in each["entered"]]
    events += [(at, -1) for each in turns.values() for at in each["exited"]]
    inside = most = 0
    # At the same nanosecond whoever leaves goes first.
    for _, change in sorted(events):
        inside += change
        most = max(most, inside)
    return most


def phases_of(
    turns: Mapping[int, Mapping[str, Any]], begins_ns: int, ends_ns: int, cpu_ns: int
) -> list[Phase]:
    """What counts is what was entered and left within the measured time."""
    whole_ns = ends_ns - begins_ns
    counts, stays, waits = [], [], []
    for each in turns.values():
        spans = zip(each["entered"], each["exited"], each["waited"], strict=True)
        # A wait counts if it began in time, however long it was: the longest end too late.
        kept = [(entered, exited) for entered, exited, _ in spans if exited <= ends_ns]
        counts.append(len(kept))
        stays += kept
        waits += [
            (entered - waited, max(1, waited))
            for entered, waited in zip(each["entered"], each["waited"], strict=True)
        ]
    turn = Phase("turn", calls=sum(counts), hits=sum(counts))
    everyone = sum(len(each["entered"]) for each in turns.values())
    crowded = sum(each["crowded"] for each in turns.values())
    turn.measures = {
        "fairness": (jain(counts), ""),
        "went without": (counts.count(0) / len(counts), "share"),
        "inside at once": (most_at_once(turns), "count"),
        "saw another inside": (crowded / everyone if everyone else 0.0, "share"),
        "nobody inside": (1 - covered(stays) / whole_ns, "share"),
    }
    if stays:
        turn.point = whole_ns / len(stays)
        turn.measures["CPU of a turn"] = (cpu_ns / everyone, "ns")
    # In the order in which they began to wait, whoever it was.
    samples = array("Q", (waited for _, waited in sorted(waits)))
    return [turn, Phase("wait", samples=samples, calls=len(waits), hits=len(waits))]


def covered(stays: list[tuple[int, int]]) -> int:
    """How many ns of these spans somebody was inside."""
    total, until = 0, 0
    for entered, exited in sorted(stays):
        total += max(0, exited - max(entered, until))
        until = max(until, exited)
    return total


def configure(setup: Setup) -> None:
    """Django with the candidate's alias, if it has one; no database, no middleware."""
    import django
    from django.conf import settings

    dummy = {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}
    settings.configure(
        CACHES={"default": dict(setup.candidate.settings) or dummy}, MIDDLEWARE=[], USE_TZ=True
    )
    django.setup()
