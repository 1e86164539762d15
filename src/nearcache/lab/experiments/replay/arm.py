"""A recording played to a cache alias: its calls, in their order, with their answers checked.

All candidates of a round play the same slice of the recording, as many calls as the
slowest of them can do in a phase. At ``max`` speed each call follows the last one; at a
speed of N it begins when it was due, the recorded times divided by N, and its latency
counts from then.

Values are made, names are chosen and what must be there is stored before the clock
starts; answers are compared after it has stopped.
"""

from __future__ import annotations

import json
import random
import time
from array import array
from collections.abc import Callable, Mapping
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any

from nearcache.lab.arms.alias import AliasArm
from nearcache.lab.base.arm import WrongAnswer
from nearcache.lab.base.messages import Phase, Setup, Visit, Visited
from nearcache.lab.load.open_loop import OpenLoop, drive
from nearcache.lab.own.script import MANY, Act, Playwright, Script, Values, calls_of
from nearcache.lab.proofs.companion import TIMEOUT_S
from nearcache.lab.proofs.stored import Meter
from nearcache.recording.trace import Record, read

CALLS_A_SECOND = "replayed calls a second"
LEARN_CALLS = 1000
LEAST_CALLS, MOST_CALLS = 50, 4000
MOST_SLICE_BYTES = 64 * 1024 * 1024  # of values, all made beforehand
AT_ONCE = 50
MISSING = "nearcache-lab: nothing was there"
PAYLOAD = "recording"

Doing = Callable[[], Any]


class ReplayArm(AliasArm):
    """One alias, asked what a site asked."""

    takes_own_data = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.calls: list[list[Record]] = []
        self.speed: float | None = None  # None: as fast as it goes
        self.values = Values(setup.seed)

    def begin(self) -> Mapping[str, str]:
        order = json.loads(Path(self.setup.data).read_text())
        self.speed = order["speed"]
        self.calls, _ = calls_of(read([Path(order["recording"])]))
        return super().begin()

    def visit(self, visit: Visit) -> Visited:
        script = Playwright().write(self._slice(visit))
        stage = Stage(self, f"{self.setup.namespace}:{visit.round_id}", script)
        self.demand_room(len(script.names), script.bytes_at_once)
        visited = Visited(phases=[])
        meter = None
        if visit.learning:
            meter = Meter(self.candidate, self.cache, Path(self.setup.directory))
        try:
            stage.set_up()
            if meter and script.stored_before:
                keys = [stage.key(name) for name in script.stored_before]
                sample = self.values.make(next(iter(script.stored_before.values())))
                visited.stored_bytes, visited.stored_how = meter.per_item(keys, sample)
            done = self._play(stage, visit)
            stage.check()
        finally:
            stage.clear_away()
        if visit.learning:
            took_s = sum(stage.service_ns) / 1e9
            visited.learned[CALLS_A_SECOND] = len(stage.service_ns) / took_s
        visited.phases = stage.phases(visit, done)
        return visited

    def _slice(self, visit: Visit) -> list[list[Record]]:
        """The same calls for every candidate of a round."""
        count = self._count(visit)
        rng = random.Random(f"{self.setup.seed}:{visit.draw}")
        start = rng.randrange(max(1, len(self.calls) - count + 1))
        chosen: list[list[Record]] = []
        total = 0
        for call in self.calls[start : start + count]:
            total += sum(record.size or 0 for record in call)
            if total > MOST_SLICE_BYTES and len(chosen) >= LEAST_CALLS:
                break
            chosen.append(call)
        return chosen

    def _count(self, visit: Visit) -> int:
        if visit.learning:
            return LEARN_CALLS
        rate = visit.lowest.get(CALLS_A_SECOND, 1000.0)
        if self.speed is not None:
            span_s = (self.calls[-1][0].time_ns - self.calls[0][0].time_ns) / 1e9
            rate = len(self.calls) / max(span_s, 1e-3) * self.speed
        return max(LEAST_CALLS, min(MOST_CALLS, round(rate * visit.phase_ns / 1e9)))

    def _play(self, stage: Stage, visit: Visit) -> OpenLoop | None:
        if self.speed is None or visit.learning:
            stage.play_on(visit.phase_ns if visit.learning else None)
            return None
        return stage.play_when_due(self.speed)


class Stage:
    """One script on one cache."""

    def __init__(self, arm: ReplayArm, prefix: str, script: Script) -> None:
        self.cache = arm.cache
        self.values = arm.values
        self.prefix = prefix
        self.script = script
        self.answers: list[Any] = []
        self.service_ns: array[int] = array("Q")
        self.generator_cpu = 0.0

    def key(self, name: str) -> str:
        return f"{self.prefix}:{name}"

    def set_up(self) -> None:
        """Store what must be there, and see that it is; make all that is to be written."""
        before = {self.key(n): self.values.make(s) for n, s in self.script.stored_before.items()}
        counters = {self.key(name): 1000 for name in self.script.counters_before}
        everything = {**before, **counters}
        for key, value in everything.items():
            self.cache.set(key, value, TIMEOUT_S)
        lost = [key for key in everything if self.cache.get(key, MISSING) == MISSING]
        if lost:
            largest = max(spec.size for spec in self.script.stored_before.values())
            raise WrongAnswer(
                f"{len(lost)} of {len(everything)} values are not there right after they were "
                f"set; the largest has {largest:,} bytes: it is too large for this cache, or all "
                "of them are"
            )
        self.doings = [self._doing(act) for act in self.script.acts]

    def play_on(self, limit_ns: int | None) -> None:
        """Each call after the last; until the time is over, if there is a limit."""
        clock, spent = time.perf_counter_ns, 0
        for doing in self.doings:
            started = clock()
            answer = doing()
            took = clock() - started
            self.answers.append(answer)
            self.service_ns.append(took)
            spent += took
            if limit_ns is not None and spent > limit_ns:
                return

    def play_when_due(self, speed: float) -> OpenLoop:
        """Each call when it was due, or right after the last one if that is late."""
        first_ns = self.script.acts[0].time_ns
        # Rising: a call that began before another may have been noted after it.
        due = list(
            accumulate((round((act.time_ns - first_ns) / speed) for act in self.script.acts), max)
        )
        load = OpenLoop(rate_per_s=len(due) / max(due[-1] / 1e9, 1e-3))

        def call(number: int) -> None:
            self.answers.append(self.doings[number]())

        self.generator_cpu = drive(load, due, call, give_up_ns=3 * due[-1] + 100_000_000)
        self.service_ns = load.service_ns
        return load

    def check(self) -> None:
        """Raises WrongAnswer at the first answer that is not the recorded one."""
        for act, answer in zip(self.script.acts, self.answers, strict=False):
            wrong = self._wrong(act, answer)
            if wrong:
                raise WrongAnswer(f"{act.operation}: {wrong}")

    def clear_away(self) -> None:
        names = [self.key(name) for name in self.script.names]
        for start in range(0, len(names), AT_ONCE):
            self.cache.delete_many(names[start : start + AT_ONCE])

    def phases(self, visit: Visit, load: OpenLoop | None) -> list[Phase]:
        """All calls together, which are the same for everybody, and those of each kind."""
        times = load.response_ns if load else self.service_ns
        whole = Phase("call", samples=times, calls=len(times))
        whole.point = fmean(times) if times else None
        whole.measures = load.measures(self.generator_cpu) if load else {}
        before = float(len(self.script.stored_before) + len(self.script.counters_before))
        if before:  # every one of them was read back in set_up
            whole.measures |= {
                "keys_sent": (before, "count"),
                "keys_stored": (before, "count"),
            }
        found = {"call": whole}
        for act, took_ns in zip(self.script.acts, self.service_ns, strict=False):
            name = kind_of(act)
            phase = found.setdefault(name, Phase(name))
            phase.samples.append(took_ns)
            phase.calls += 1
            phase.hits += name == "get"
            phase.misses += name == "miss"
        return [phase for name, phase in found.items() if name in visit.operations]

    # -- one act ---------------------------------------------------------------------------

    def _doing(self, act: Act) -> Doing:
        cache = self.cache
        keys = [self.key(name) for name in act.names]
        key = keys[0]
        values = [self.values.make(spec) if spec else None for spec in act.specs]
        simple: dict[str, Doing] = {
            "get": lambda: cache.get(key, MISSING),
            "has_key": lambda: cache.has_key(key),
            "set": lambda: cache.set(key, values[0], TIMEOUT_S),
            "add": lambda: cache.add(key, values[0], TIMEOUT_S),
            "get_or_set": lambda: cache.get_or_set(key, values[0], TIMEOUT_S),
            "touch": lambda: cache.touch(key, TIMEOUT_S),
            "delete": lambda: cache.delete(key),
            "get_many": lambda: cache.get_many(keys),
            "delete_many": lambda: cache.delete_many(keys),
            "incr": lambda: cache.incr(key),
            "decr": lambda: cache.decr(key),
        }
        if act.operation == "set_many":
            data = dict(zip(keys, values, strict=True))
            return lambda: cache.set_many(data, TIMEOUT_S)
        doing = simple[act.operation]
        return doing if act.holds else lambda: _unless_missing(doing)

    def _wrong(self, act: Act, answer: Any) -> str:
        """What is wrong with an answer; empty if nothing is."""
        if act.operation in ("get", "get_or_set"):
            return self._differs(act.specs[0], answer)
        if act.operation == "get_many":
            found = [answer.get(self.key(name), MISSING) for name in act.names]
            return next(filter(None, map(self._differs, act.specs, found)), "")
        if act.operation == "has_key" and bool(answer) != (act.specs[0] is not None):
            return f"answered {answer!r}"
        if act.operation in ("add", "touch") and bool(answer) != act.holds:
            return f"answered {answer!r}"
        if act.operation in ("incr", "decr"):
            wanted = act.number if act.holds else MISSING
            return "" if answer == wanted else f"answered {answer!r}, not {wanted!r}"
        return ""

    def _differs(self, spec: Any, answer: Any) -> str:
        if spec is None:
            return "" if answer == MISSING else "a value where nothing was stored"
        if answer == MISSING:
            return "nothing where a value was stored"
        wanted = self.values.make(spec)
        same = type(answer) is type(wanted) and answer == wanted
        return "" if same else f"another value than was stored ({spec.kind}, {spec.size} bytes)"


def kind_of(act: Act) -> str:
    """The operation of the experiment that this call is one of."""
    if act.operation == "get":
        return "miss" if act.specs[0] is None else "get"  # a miss is fast
    if act.operation == "set":
        return "set"
    return "many" if act.operation in MANY else "other"


def _unless_missing(doing: Doing) -> Any:
    """Django's counters raise where there is nothing to count with."""
    try:
        return doing()
    except ValueError:
        return MISSING
