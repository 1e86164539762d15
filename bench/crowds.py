"""Many callers: crowds in one process (bench.crowd), and eight processes at one lock."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from bench.processes import in_children

ROUNDS = 3
SECONDS = {"greenlets": 6.0, "pings": 6.0, "tasks": 3.0, "threads": 3.0}
PAUSES_S = (0.010, 0.002, 0.0)
AT_LEAST = {"greenlets": 12, "pings": 12, "tasks": 12, "threads": 3}
HOLDERS = 8
CONTENDED_S = 3.0
HOLD_S = 0.0005


@dataclass(frozen=True)
class Crowd:
    """Answers per second, medians of rounds; a peer that fails calls has fewer of them."""

    crowd: str
    one_core: bool
    """Whether server and callers share one core, or all may use every core."""
    ours: float
    peer: float
    ours_answered: float
    """Calls answered, of all that ended: 1 is all of them."""
    peer_answered: float
    at_least: float

    @property
    def ratio(self) -> float:
        return self.ours / self.peer


def crowd(name: str, redis_path: str, cores: Collection[int]) -> Crowd:
    """Ours and redis-py in turns, in random order, on these cores."""
    rates: dict[str, list[float]] = {"ours": [], "peer": []}
    shares: dict[str, list[float]] = {"ours": [], "peer": []}
    for number in range(ROUNDS):
        for who in random.Random(number).sample(sorted(rates), 2):
            tally = _run(name, who, redis_path, cores)
            rates[who].append(tally["answered"] / tally["seconds"])
            shares[who].append(tally["answered"] / (tally["answered"] + tally["failed"]))
    return Crowd(
        crowd=name,
        one_core=len(cores) == 1,
        ours=median(rates["ours"]),
        peer=median(rates["peer"]),
        ours_answered=min(shares["ours"]),
        peer_answered=median(shares["peer"]),
        at_least=AT_LEAST[name],
    )


def _run(name: str, who: str, redis_path: str, cores: Collection[int]) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.crowd", name, who, redis_path, str(SECONDS[name])]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, check=True, preexec_fn=_pinned(cores), timeout=120
    )
    tally: dict[str, Any] = json.loads(done.stdout)
    return tally


def _pinned(cores: Collection[int]) -> Callable[[], None]:
    return lambda: os.sched_setaffinity(0, cores)


@dataclass(frozen=True)
class Contended:
    """Eight processes at one lock, each holding it for 0.5 ms, then doing something else."""

    pause_ms: float
    """What the something else takes. 0: whoever lets go wants it again at once."""
    ours_per_s: float
    peer_per_s: float
    ours_p99_ms: float
    peer_p99_ms: float
    """The wait that one acquisition in a hundred exceeds."""


def contended(core: int, pause_s: float) -> Contended:
    """In turns; the median throughput, and the 99th percentile of all waits."""
    from django.core.cache import caches

    waits: dict[str, list[float]] = {"redis": [], "django-redis": []}
    rates: dict[str, list[float]] = {"redis": [], "django-redis": []}
    for number in range(ROUNDS):
        for alias in random.Random(number).sample(sorted(waits), 2):
            works = [lambda alias=alias: _hold_in_turn(caches[alias], pause_s)] * HOLDERS
            found = in_children(works, [core])
            waits[alias] += [wait for each in found for wait in each]
            rates[alias].append(sum(map(len, found)) / CONTENDED_S)
    return Contended(
        pause_ms=pause_s * 1000,
        ours_per_s=median(rates["redis"]),
        peer_per_s=median(rates["django-redis"]),
        ours_p99_ms=quantiles(waits["redis"], n=100)[98] * 1000,
        peer_p99_ms=quantiles(waits["django-redis"], n=100)[98] * 1000,
    )


def _hold_in_turn(cache: Any, pause_s: float) -> list[float]:
    """Seconds waited, an entry for each time the lock was held."""
    waited = []
    end = time.perf_counter() + CONTENDED_S
    while (began := time.perf_counter()) < end:
        with cache.lock("contended", timeout=10):
            waited.append(time.perf_counter() - began)
            _busy(HOLD_S)
        if pause_s:
            time.sleep(pause_s)
    return waited


def _busy(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
