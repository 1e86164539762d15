"""Reads at a fixed rate: what a get takes when requests come by themselves.

The rates are shares of what the slowest candidate can do at most, so that all bear the
same load. Latency counts from when a read was due (open_loop.py). Answers are kept and
checked after the loop, or the check would be the load.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from nearcache.lab.base.messages import Phase
from nearcache.lab.load.open_loop import NS, OpenLoop, arrivals, drive

SHARES = (30, 50, 70, 90)  # percent of the lowest capacity
CAPACITY = "get_per_s"  # what candidates learn, and the driver takes the lowest of
PREFIX = "get_at_"
TOLERANCE_NS = 50_000
MOST_ANSWERS = 2000  # that are kept to be checked
LEAST_CALLS = 10  # on average: at low rates a phase lasts longer, but not above the next line
LONGEST_S = 0.1
PATIENCE = 2  # reads that are late by more than this many phases are dropped


def share_of(operation: str) -> float | None:
    """The share of the capacity that an operation of this name asks for; None for others."""
    if not operation.startswith(PREFIX):
        return None
    return int(operation.removeprefix(PREFIX)) / 100


def measure_at(
    operation: str,
    rate_per_s: float,
    phase_ns: int,
    get: Callable[[str], Any],
    keys: Sequence[str],
    seed: str,
) -> tuple[Phase, list[tuple[str, Any]]]:
    """One phase, and the answers: (key, value), still to be checked."""
    enough_s = min(LEAST_CALLS / rate_per_s, LONGEST_S)
    seconds = min(max(phase_ns / NS, enough_s), MOST_ANSWERS / rate_per_s)
    due = arrivals(rate_per_s, seconds, random.Random(seed))
    answers: list[tuple[str, Any]] = []

    def call(number: int) -> None:
        key = keys[number % len(keys)]
        answers.append((key, get(key)))

    load = OpenLoop(rate_per_s, TOLERANCE_NS)
    cpu = drive(load, due, call, give_up_ns=int(PATIENCE * seconds * NS))
    phase = Phase(
        operation, samples=load.response_ns, calls=load.begun, measures=load.measures(cpu)
    )
    return phase, answers
