"""Load at a fixed rate, on a clock that only moves when told."""

from __future__ import annotations

import itertools
import random
from statistics import fmean, pstdev

import pytest

from nearcache.lab.load.open_loop import NS, OpenLoop, arrivals, drive


class Time:
    """Waiting takes exactly as long as it should, plus what the generator oversleeps."""

    def __init__(self, oversleeps_ns: int = 0) -> None:
        self.now_ns = 1_000
        self.oversleeps_ns = oversleeps_ns

    def __call__(self) -> int:
        return self.now_ns

    def wait(self, moment_ns: int) -> None:
        self.now_ns = max(self.now_ns, moment_ns) + self.oversleeps_ns

    def run(
        self, due: list[int], service_ns: list[int], tolerance_ns: int = 10
    ) -> tuple[OpenLoop, float]:
        def call(number: int) -> None:
            self.now_ns += service_ns[number]

        load = OpenLoop(1000, tolerance_ns)
        cpu = drive(load, due, call, give_up_ns=10_000, clock=self, wait=self.wait)
        return load, cpu


def test_arrivals_come_at_the_rate_in_bunches_and_the_same_again_for_the_same_seed() -> None:
    due = arrivals(1000, 10, random.Random(1))
    gaps = [b - a for a, b in itertools.pairwise(due)]
    assert len(due) == pytest.approx(10_000, rel=0.05)
    assert max(due) < 10 * NS
    # Of a Poisson process the gaps spread as much as they are long.
    assert pstdev(gaps) == pytest.approx(fmean(gaps), rel=0.05)
    assert due == arrivals(1000, 10, random.Random(1))
    with pytest.raises(ValueError, match="above 0"):
        arrivals(0, 1, random.Random(1))


def test_a_latency_counts_from_when_its_call_was_due() -> None:
    # The first call takes as long as three gaps: who waits behind it has waited.
    load, _ = Time().run(due=[100, 200, 300, 900], service_ns=[350, 10, 10, 10])
    assert list(load.response_ns) == [350, 260, 170, 10]
    assert list(load.service_ns) == [350, 10, 10, 10]
    assert load.late == 0, "waiting behind a slow answer is not the generator's fault"


def test_a_generator_that_oversleeps_is_late() -> None:
    load, _ = Time(oversleeps_ns=50).run(due=[100, 200, 300], service_ns=[10, 10, 10])
    assert load.late == 3
    assert load.measures(0.1)["late_share"] == (1.0, "share")
    assert list(load.response_ns) == [60, 60, 60], "and its lateness is in the latency"


def test_what_queues_behind_a_generator_that_overslept_is_late_too() -> None:
    time = Time(oversleeps_ns=1000)  # once: then all are overdue, and nobody waits any more
    load, _ = time.run(due=[100, 200, 300], service_ns=[10, 10, 10])
    assert load.late == 3
    assert list(load.response_ns) == [1010, 920, 830]


def test_what_never_begins_is_dropped_and_counted() -> None:
    load, _ = Time().run(due=[100, 200, 300, 400], service_ns=[20_000, 10, 10, 10])
    assert (load.begun, load.dropped, load.due) == (1, 3, 4)
    assert load.measures(0)["dropped_share"] == (0.75, "share")


def test_a_generator_that_is_busy_all_the_time_says_so() -> None:
    idle = Time()
    _, cpu = idle.run(due=[100, 200], service_ns=[10, 10])
    assert cpu == 0
    busy = Time()

    def slow_clock() -> int:
        busy.now_ns += 40  # every look at the clock: the generator's own work
        return busy.now_ns

    load = OpenLoop(1000)
    cpu = drive(load, [10, 20, 30], lambda _: None, give_up_ns=NS, clock=slow_clock, wait=busy.wait)
    assert cpu > 0.4
