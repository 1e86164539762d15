"""What recording costs a cache: the same calls on it bare, wrapped, and wrapped and noted.

Blocks of calls of all three are timed in turns, in an order drawn anew every round, and
compared round by round, so that a machine that drifts does so for all of them. What is
compared is the thread's CPU time: recording never waits, and a busy machine or a far
server would bury it. What a bare call takes is its time on the clock.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from nearcache.errors import LabError
from nearcache.lab.own.alias import moved
from nearcache.lab.own.guard import OwnCache
from nearcache.lab.own.room import demand_room
from nearcache.lab.workloads.small_dict import SmallDict

CALLS = 100
ROUNDS = 40
TIMEOUT_S = 600
VALUE_BYTES = 1000  # of one, at most
SALT = "nearcache lab record cost"  # of a recording that is deleted at once


@dataclass(frozen=True)
class Extra:
    """What wrapping adds to one call, in ns: the median over rounds, and its quartiles."""

    operation: str
    bare_ns: float  # on the clock; all that follows is CPU
    passed_ns: tuple[float, float, float]  # the key is not in the sample
    noted_ns: tuple[float, float, float]  # it is

    def average_ns(self, share: float) -> float:
        return (1 - share) * self.passed_ns[1] + share * self.noted_ns[1]


def cost_of_recording(entry: Mapping[str, Any], namespace: str, scratch: Path) -> list[Extra]:
    """Measure on the cache of this entry of ``CACHES``; its keys are deleted again."""
    entry = moved(entry, str(scratch / "cache"))
    made = {
        "bare": _made(entry),
        "passed": _recorded(entry, scratch / "passed", 0),
        "noted": _recorded(entry, scratch / "noted", 1),
    }
    demand_room(made["bare"], CALLS, CALLS * VALUE_BYTES)
    caches = {name: OwnCache(cache, namespace) for name, cache in made.items()}
    payload = SmallDict(seed=0)
    values = {f"{namespace}:{i:03d}": payload.make(f"k:{i}", 1) for i in range(CALLS)}
    try:
        return [_set(caches, values), _get(caches, values)]
    finally:
        caches["bare"].delete_many(list(values))
        for name in ("passed", "noted"):
            made[name].recorder.flush()  # before its file goes


def _set(caches: Mapping[str, Any], values: Mapping[str, Any]) -> Extra:
    def block(cache: Any) -> None:
        for key, value in values.items():
            cache.set(key, value, TIMEOUT_S)

    return _compared("set", caches, block)


def _get(caches: Mapping[str, Any], values: Mapping[str, Any]) -> Extra:
    def block(cache: Any) -> None:
        for key in values:
            cache.get(key)

    for cache in caches.values():
        if any(cache.get(key) != value for key, value in values.items()):
            raise LabError("this cache does not give back what was just set; nothing to measure")
    return _compared("get", caches, block)


def _compared(operation: str, caches: Mapping[str, Any], block: Callable[[Any], None]) -> Extra:
    rng = random.Random(0)
    times: dict[str, list[float]] = {name: [] for name in caches}
    bare: list[float] = []
    for number in range(ROUNDS + 1):
        for name in rng.sample(list(caches), len(caches)):
            started_ns, began_ns = time.perf_counter_ns(), time.thread_time_ns()
            block(caches[name])
            ended_ns, done_ns = time.thread_time_ns(), time.perf_counter_ns()
            if number:  # the first round warms up
                times[name].append((ended_ns - began_ns) / CALLS)
            if number and name == "bare":
                bare.append((done_ns - started_ns) / CALLS)
    return Extra(
        operation,
        median(bare),
        _more(times["passed"], times["bare"]),
        _more(times["noted"], times["bare"]),
    )


def _more(longer: list[float], shorter: list[float]) -> tuple[float, float, float]:
    differences = [a - b for a, b in zip(longer, shorter, strict=True)]
    low, middle, high = quantiles(differences, n=4)
    return low, middle, high


def _made(entry: Mapping[str, Any]) -> Any:
    from django.utils.module_loading import import_string

    params = dict(entry)
    return import_string(params.pop("BACKEND"))(params.pop("LOCATION", ""), params)


def _recorded(entry: Mapping[str, Any], file: Path, share: float) -> Any:
    from nearcache.recording.options import recorded

    return _made(recorded(entry, str(file), share=share, salt=SALT))
