"""Load at a fixed rate: when every call should begin, and what became of it.

A client that waits for each answer before it asks again slows down with its server, and
so forgets the calls that the server kept it from making ("coordinated omission", Tene).
Here calls are due at times drawn beforehand, and a latency counts from when its call was
*due*, not from when the client got round to it. Response time = waiting + service time.

    arrivals    due times: a Poisson process, because real requests come in bunches
    OpenLoop    the account of one phase: response and service times, late, dropped
    drive       the loop of one client that does one call after the other

A generator that cannot keep up measures itself. Two numbers of every phase tell, and the
rules of the lab (rules.py) void a cell over them:

    late_share      calls that began more than ``tolerance_ns`` after they could have
    generator_cpu   of the time that calls left to the generator, what it was busy for

Nothing here reads a clock of its own or sleeps: both come from outside.
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

NS = 1_000_000_000
TOLERANCE_NS = 1_000_000  # wrk2 promises to be within a millisecond too
SLEEP_OVERSHOOT_NS = 300_000  # a sleep may end that much late; the rest is waited for awake
MOST_CALLS = 20_000  # of one phase


def arrivals(rate_per_s: float, seconds: float, rng: random.Random) -> array[int]:
    """When calls are due, in ns after the start: gaps are drawn from an exponential.

    Rising, all below ``seconds``; at most ``MOST_CALLS``, so that memory stays bounded.

    Raises:
        ValueError: a rate or time that is not above zero.
    """
    if rate_per_s <= 0 or seconds <= 0:
        raise ValueError(f"a load needs a rate and a time above 0, not {rate_per_s}, {seconds}")
    due: array[int] = array("Q")
    at_s = rng.expovariate(rate_per_s)
    while at_s < seconds and len(due) < MOST_CALLS:
        due.append(int(at_s * NS))
        at_s += rng.expovariate(rate_per_s)
    return due


@dataclass
class OpenLoop:
    """The account of one phase at one rate. Every call that was due is in it, once.

    ``response_ns`` is what a phase puts into its samples. Give a ``tolerance_ns`` well below
    the latencies that are measured.
    """

    rate_per_s: float
    tolerance_ns: int = TOLERANCE_NS
    response_ns: array[int] = field(default_factory=lambda: array("Q"))  # due -> answer
    service_ns: array[int] = field(default_factory=lambda: array("Q"))  # begun -> answer
    late: int = 0
    dropped: int = 0  # due, and never begun: the phase was over before its turn came

    def answered(
        self, due_ns: int, begun_ns: int, ended_ns: int, free_ns: int | None = None
    ) -> None:
        """A call was answered. ``free_ns``: when a perfect client would have been ready.

        Waiting for one's turn behind a slow answer is the queue that is to be measured;
        beginning later than that is the generator's own fault, and so is what queues behind.
        """
        self._count_late(due_ns, begun_ns, free_ns)
        self.response_ns.append(max(0, ended_ns - due_ns))
        self.service_ns.append(max(0, ended_ns - begun_ns))

    def drop(self, calls: int = 1) -> None:
        self.dropped += calls

    @property
    def begun(self) -> int:
        return len(self.response_ns)

    @property
    def due(self) -> int:
        return self.begun + self.dropped

    def measures(self, generator_cpu: float) -> dict[str, tuple[float, str]]:
        """What a phase reports beside its samples. ``generator_cpu`` is a share, 0 to 1."""
        found: dict[str, tuple[float, str]] = {
            "offered_rate": (self.rate_per_s, "1/s"),
            "late_share": (self.late / self.begun if self.begun else 0.0, "share"),
            "dropped_share": (self.dropped / self.due if self.due else 0.0, "share"),
            "generator_cpu": (generator_cpu, "share"),
        }
        if self.service_ns:
            found["service_time"] = (float(median(self.service_ns)), "ns")
        return found

    def _count_late(self, due_ns: int, begun_ns: int, free_ns: int | None) -> None:
        could_ns = due_ns if free_ns is None else max(due_ns, free_ns)
        self.late += begun_ns - could_ns > self.tolerance_ns


def wait_until(moment_ns: int) -> None:
    """Sleep most of the way to this time of ``perf_counter_ns``, and stay awake for the rest."""
    left_ns = moment_ns - time.perf_counter_ns()
    if left_ns > 2 * SLEEP_OVERSHOOT_NS:
        time.sleep((left_ns - SLEEP_OVERSHOOT_NS) / NS)
    while time.perf_counter_ns() < moment_ns:
        pass


def drive(
    load: OpenLoop,
    due: Sequence[int],
    call: Callable[[int], object],
    *,
    give_up_ns: int,
    clock: Callable[[], int] = time.perf_counter_ns,
    wait: Callable[[int], None] = wait_until,
) -> float:
    """Make ``call(0)``, ``call(1)`` ... when they are due, one after the other.

    What has not begun ``give_up_ns`` after the start is dropped. Exceptions of ``call`` end
    the loop: a caller that forgives them counts them itself. Returns ``generator_cpu``.
    """
    start_ns = free_ns = perfect_ns = clock()
    busy_ns = service_ns = 0
    for number, offset_ns in enumerate(due):
        if free_ns - start_ns > give_up_ns:
            load.drop(len(due) - number)
            break
        due_ns = start_ns + offset_ns
        ready_ns = clock()
        busy_ns += ready_ns - free_ns
        if ready_ns < due_ns:
            wait(due_ns)
        begun_ns = clock()
        call(number)
        ended_ns = clock()
        load.answered(due_ns, begun_ns, ended_ns, perfect_ns)
        # A generator that takes no time of its own would be done by then (Lindley): without
        # this, one that overslept once would pass its backlog off as the server's queue.
        perfect_ns = max(due_ns, perfect_ns) + ended_ns - begun_ns
        service_ns += ended_ns - begun_ns
        free_ns = ended_ns
    left_ns = free_ns - start_ns - service_ns
    return busy_ns / left_ns if left_ns > 0 else 0.0
