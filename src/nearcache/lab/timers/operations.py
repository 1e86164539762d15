"""The timed loops: one visit stores a payload, reads it, deletes it, and checks it all.

    set        fill with new keys, then overwrite them with newer versions
    get        one key at a time; every answer is compared with what was stored
    get_many   20 keys a call
    get_fresh  half of the keys once, after another process has written it anew
    get_at_50  one key at a time, when it is due: at half of the lowest capacity of all
    delete     every key once; afterwards none may answer
    miss       keys that were never set
    incr       one counter; every answer must be the next number

Only the calls are timed (timed.py). Building and checking values happens between
timestamps, for fixed rates after the loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import fmean
from typing import Any

from nearcache.lab.base.arm import WrongAnswer
from nearcache.lab.base.messages import Phase, Visit, Visited
from nearcache.lab.load.fixed_rate import CAPACITY, measure_at, share_of
from nearcache.lab.proofs.companion import TIMEOUT_S, Companion
from nearcache.lab.proofs.stored import Meter
from nearcache.lab.timers.timed import Budget, time_calls
from nearcache.lab.workloads.payload import Payload

MANY = 20
MOST_CALLS = 4000  # of one phase; checking answers takes longer than the fastest calls
REFUSABLE_BYTES = 900_000  # below this no store has an excuse to refuse a value
RATE_PHASES = 2  # a fixed rate lasts this many phases: below its capacity little happens
COUNTER_START = 1000  # four digits and up: always the same length in the store


@dataclass(frozen=True)
class VisitTools:
    """What a visit works on."""

    cache: Any
    companion: Companion
    namespace: str
    meter: Meter | None  # only when bytes are to be weighed


class Visitor:
    """Does one visit to one cache. Versions rise, so that a stale answer shows."""

    def __init__(self, tools: VisitTools, payload: Payload, visit: Visit) -> None:
        self.cache = tools.cache
        self.companion = tools.companion
        self.meter = tools.meter
        self.payload = payload
        self.visit = visit
        self.prefix = f"{tools.namespace}:{visit.round_id}"
        self.versions = {f"{self.prefix}:{i:04d}": 0 for i in range(payload.key_count)}
        self.keys = list(self.versions)
        self.result = Visited(phases=[])

    def run(self) -> Visited:
        if self._is_refused():
            refused = Phase("set", refused=len(self.keys))
            self.result = Visited(phases=[refused], refused=True)
            return self.result
        self._set()
        self._demand_everything_is_stored()
        self._measure_stored()
        steps = {
            "get": self._get,
            "get_many": self._get_many,
            "get_fresh": self._get_fresh,
            "miss": self._miss,
        }
        for name, step in steps.items():
            if name in self.visit.operations:
                step()
        self._at_fixed_rates()
        self._delete()
        if "incr" in self.visit.operations:
            self._incr()
        self._refuse_losses()
        return self.result

    def _set(self) -> None:
        phase = self._phase("set")
        set_ = self.cache.set

        def store(key: str, value: Any) -> None:
            set_(key, value, TIMEOUT_S)

        self._time(phase, store, self._values(), at_least=len(self.keys))

    def _values(self) -> Iterator[tuple[str, Any]]:
        for key in cycle(self.keys):
            self.versions[key] += 1
            yield key, self.payload.make(key, self.versions[key])

    def _get(self) -> None:
        phase = self._phase("get")
        calls = ((key,) for key in cycle(self.keys))
        # At least all keys once: "keys stored == keys sent", seen through get itself.
        self._time(phase, self.cache.get, calls, self._check_get, at_least=len(self.keys))

    def _check_get(self, phase: Phase, arguments: tuple[Any, ...], value: Any) -> None:
        key = arguments[0]
        if value is None:
            phase.misses += 1
            return
        self._verify(phase, key, value)
        phase.hits += 1

    def _at_fixed_rates(self) -> None:
        asked = {name: share for name in self.visit.operations if (share := share_of(name))}
        if asked and self.visit.learning:
            self._learn_capacity()
        capacity = self.visit.lowest.get(CAPACITY)
        if capacity is None or self.visit.learning:
            return
        for name, share in asked.items():
            # The same arrivals for all candidates of a round.
            seed = f"{self.payload.seed}:{self.visit.draw}:{name}"
            phase_ns = RATE_PHASES * self.visit.phase_ns
            rate = share * capacity
            phase, answers = measure_at(name, rate, phase_ns, self.cache.get, self.keys, seed)
            self.result.phases.append(phase)
            for key, value in answers:
                self._check_get(phase, (key,), value)

    def _learn_capacity(self) -> None:
        if not any(phase.operation == "get" for phase in self.result.phases):
            self._get()
        gets = next(phase for phase in self.result.phases if phase.operation == "get")
        # Of the mean, not of the median: slow answers fill a queue too. Without the slowest few,
        # or one interruption of this process would decide the load of all.
        usual = sorted(gets.samples)[: max(1, len(gets.samples) * 19 // 20)]
        self.result.learned[CAPACITY] = 1e9 / max(1.0, fmean(usual))

    def _get_many(self) -> None:
        phase = self._phase("get_many")
        endless = cycle(self.keys)
        calls = ((list(islice(endless, MANY)),) for _ in cycle((0,)))
        self._time(phase, self.cache.get_many, calls, self._check_get_many, at_least=2)

    def _check_get_many(self, phase: Phase, arguments: tuple[Any, ...], found: Any) -> None:
        for key in arguments[0]:
            if key in found:
                self._verify(phase, key, found[key])
                phase.hits += 1
            else:
                phase.misses += 1

    def _get_fresh(self) -> None:
        # What a process has kept for itself is of no use here; a stale copy is caught.
        half = len(self.keys) // 2
        fresh = self.keys if self.payload.values_differ else self.keys[:half]
        for key in fresh:
            self.versions[key] += 1
            self.companion.set(key, self.payload.make(key, self.versions[key]))
        phase = self._phase("get_fresh")
        self._time(phase, self.cache.get, ((key,) for key in fresh), self._check_get)

    def _miss(self) -> None:
        phase = self._phase("miss")
        calls = ((f"{self.prefix}:none:{i % 1000:03d}",) for i in _count())
        self._time(phase, self.cache.get, calls, self._check_miss, at_least=50)

    def _check_miss(self, phase: Phase, arguments: tuple[Any, ...], value: Any) -> None:
        if value is not None:
            phase.errors += 1
            raise WrongAnswer(f"get of a key that was never set returned a {type(value).__name__}")
        phase.misses += 1

    def _delete(self) -> None:
        phase = self._phase("delete")
        self._time(phase, self.cache.delete, ((key,) for key in self.keys))
        if self._found(self.keys):
            raise WrongAnswer("keys still answer after they were deleted")

    def _incr(self) -> None:
        phase = self._phase("incr")
        key = f"{self.prefix}:counter"
        self.cache.set(key, COUNTER_START, TIMEOUT_S)
        expected = _count(COUNTER_START + 1)

        def check(phase: Phase, _arguments: tuple[Any, ...], value: Any) -> None:
            if value != next(expected):
                phase.errors += 1
                raise WrongAnswer(f"incr returned {value!r}, which is not the next number")
            phase.hits += 1

        self._time(phase, self.cache.incr, cycle(((key,),)), check, at_least=50)
        self.cache.delete(key)

    def _is_refused(self) -> bool:
        """Does the store keep nothing of this size? Some raise then, others are silent."""
        key = self.keys[0]
        value = self.payload.make(key, 0)
        if len(str(value)) < REFUSABLE_BYTES:
            return False
        try:
            self.cache.set(key, value, TIMEOUT_S)
        except Exception:  # noqa: BLE001 - every client has its own
            return True
        return self.cache.get(key) is None

    def _demand_everything_is_stored(self) -> None:
        missing = len(self.keys) - len(self._found(self.keys))
        self.result.phases[0].measures |= {
            "keys_sent": (len(self.keys), "count"),
            "keys_stored": (len(self.keys) - missing, "count"),
        }
        if missing:
            raise WrongAnswer(
                f"{missing} of {len(self.keys)} keys of payload {self.payload.letter} are not "
                "there right after they were set: sets are dropped, or the cache is too small"
            )

    def _refuse_losses(self) -> None:
        # A miss is fast. Were it allowed among gets, the worst cache would win.
        for phase in self.result.phases:
            if phase.misses and phase.operation != "miss":
                raise WrongAnswer(
                    f"{phase.misses} of {phase.misses + phase.hits} answers to {phase.operation} "
                    f"of payload {self.payload.letter} were misses, of keys that were there"
                )

    def _found(self, keys: Sequence[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for start in range(0, len(keys), MANY):
            found.update(self.cache.get_many(list(keys[start : start + MANY])))
        return found

    def _measure_stored(self) -> None:
        if self.meter:
            keys = self.keys if self.payload.values_differ else self.keys[:1]
            values = [self.payload.make(key, 1) for key in keys]
            self.result.stored_bytes, self.result.stored_how = self.meter.per_item(
                self.keys, *values
            )

    def _verify(self, phase: Phase, key: str, value: Any) -> None:
        problem = self.payload.check(value, key, self.versions[key])
        if problem:
            phase.errors += 1
            raise WrongAnswer(f"{phase.operation} of payload {self.payload.letter}: {problem}")

    def _phase(self, operation: str) -> Phase:
        batch = self.visit.batch.get(operation, 1)
        phase = Phase(operation, batch)
        self.result.phases.append(phase)
        return phase

    def _time(
        self,
        phase: Phase,
        operation: Callable[..., Any],
        calls: Iterable[tuple[Any, ...]],
        check: Callable[[Phase, tuple[Any, ...], Any], None] | None = None,
        at_least: int = 0,
    ) -> None:
        """Call until the time of this phase is used up, and ``at_least`` so often.

        An endless ``calls`` ends with the budget; a finite one is always used up.
        """
        whole = math.lcm(phase.batch, self._calls_of_a_pass(phase.operation))
        budget = Budget(self.visit.phase_ns, MOST_CALLS, at_least, whole)

        def look(arguments: tuple[Any, ...], answer: Any) -> None:
            if check:
                check(phase, arguments, answer)

        samples, made = time_calls(operation, calls, phase.batch, budget, look)
        phase.samples, phase.calls = samples, made

    def _calls_of_a_pass(self, operation: str) -> int:
        """How many calls see all values equally often, where these differ."""
        if not self.payload.values_differ or operation not in ("set", "get", "get_many"):
            return 1
        keys = len(self.keys)
        return keys // math.gcd(keys, MANY) if operation == "get_many" else keys


def _count(start: int = 0) -> Iterator[int]:
    while True:
        yield start
        start += 1
