"""The timed loop of a closed load, and what it costs itself.

Only the calls lie between the two timestamps of a sample: arguments are made before the
first, answers are checked after the second. Calls too short for a timestamp are timed in
batches; a sample is then the mean of its batch.

``calibrate`` sends an operation that does nothing through the same loop. What it measures
is in every number of the lab. It is printed and never subtracted: who subtracts a
guess turns an honest offset into a dishonest one.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import Any

clock = time.perf_counter_ns

Check = Callable[[tuple[Any, ...], Any], None]
CALIBRATION_SAMPLES = 2000
BATCH = 10
LEAST_BATCHED_NS = 10_000  # calls below this are timed in batches in any case
OVERHEAD_MOST = 0.02  # of a call that is timed alone; shorter ones go in batches


@dataclass(frozen=True)
class Budget:
    """When a phase ends. Without ``at_least`` its calls are finite, and all are made."""

    phase_ns: int
    most_calls: int
    at_least: int = 0
    whole: int = 1  # calls of one pass; a phase ends with a pass


def time_calls(
    operation: Callable[..., Any],
    calls: Iterable[tuple[Any, ...]],
    batch: int,
    budget: Budget,
    check: Check | None = None,
) -> tuple[array[int], int]:
    """Call until the budget is used up. Returns (ns of each call, in order; calls made).

    Exceptions of the operation or of ``check`` end the phase and travel on.
    """
    samples: array[int] = array("Q")
    made = spent_ns = 0
    calls = iter(calls)
    while _goes_on(budget, made, spent_ns):
        arguments = list(islice(calls, batch))
        if not arguments:
            break
        elapsed_ns, answers = _timed(operation, arguments)
        samples.append(elapsed_ns // len(arguments))
        made += len(arguments)
        spent_ns += elapsed_ns
        if check:
            for asked, answer in zip(arguments, answers, strict=True):
                check(asked, answer)
    return samples, made


def _goes_on(budget: Budget, made: int, spent_ns: int) -> bool:
    if not budget.at_least or made < budget.at_least or made % budget.whole:
        return True
    return spent_ns < budget.phase_ns and made < budget.most_calls


def _timed(
    operation: Callable[..., Any], arguments: list[tuple[Any, ...]]
) -> tuple[int, list[Any]]:
    if len(arguments) == 1:
        only = arguments[0]
        start = clock()
        answer = operation(*only)
        return clock() - start, [answer]
    start = clock()
    answers = [operation(*one) for one in arguments]
    return clock() - start, answers


def calibrate() -> dict[str, float]:
    """ns that the loop adds to a call timed alone (``call_ns``) and in a batch.

    ``batch_below_ns`` follows: calls so short that timing them alone would cost too much.
    """

    def nothing(_key: str) -> None: ...

    def cost_ns(batch: int) -> float:
        calls = (("key",) for _ in range(CALIBRATION_SAMPLES * batch))
        samples, _ = time_calls(nothing, calls, batch, Budget(0, 0))
        return float(median(samples))

    alone = cost_ns(1)
    return {
        "call_ns": alone,
        "batched_ns": cost_ns(BATCH),
        "batch_below_ns": max(LEAST_BATCHED_NS, alone / OVERHEAD_MOST),
    }
