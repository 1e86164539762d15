"""Series whose course is known beforehand."""

from __future__ import annotations

import math
import random

import pytest

from nearcache.lab.statistics.steadiness import classify, segments, together, trend_of

FLOOR = math.log(1.03)


def series(*levels: tuple[int, float], noise: float = 0.01, seed: int = 1) -> list[float]:
    rng = random.Random(seed)
    return [
        level * math.exp(rng.gauss(0, noise)) for length, level in levels for _ in range(length)
    ]


@pytest.mark.parametrize(
    ("levels", "course"),
    [
        (((60, 100.0),), "flat"),
        (((30, 101.0), (30, 100.0)), "flat"),
        (((10, 150.0), (50, 100.0)), "warm-up"),
        (((5, 300.0), (10, 150.0), (45, 100.0)), "warm-up"),
        (((30, 100.0), (30, 130.0)), "slowdown"),
        (((50, 100.0), (10, 150.0)), "no steady state"),
        (((50, 150.0), (10, 100.0)), "no steady state"),
        (((5, 100.0),), "too short"),
    ],
)
def test_a_series_is_called_what_it_is(levels: tuple[tuple[int, float], ...], course: str) -> None:
    assert classify(series(*levels), FLOOR) == course


def test_noise_alone_has_one_level_nearly_always() -> None:
    one = sum(len(segments([math.log(v) for v in series((60, 5.0), seed=s)])) == 1
              for s in range(100))  # fmt: skip
    assert one >= 90


def test_a_cut_is_found_where_it_is() -> None:
    values = [math.log(value) for value in series((20, 100.0), (40, 140.0))]
    assert segments(values) == [(0, 20), (20, 60)]


def test_processes_that_disagree_are_inconsistent() -> None:
    assert together(["flat", "flat", "too short"]) == "flat"
    assert together(["flat", "slowdown"]) == "inconsistent"
    assert together(["too short"]) == "too short"


def test_a_rise_within_every_repetition_is_a_trend_whatever_their_starts_are() -> None:
    rising = [[start + 0.05 * i for i in range(6)] for start in (0.0, 5.0)]
    found = trend_of(rising)
    assert found is not None
    assert found.change == pytest.approx(math.expm1(0.25))
    assert found.p < 0.01


def test_noise_and_a_step_between_repetitions_are_no_trend() -> None:
    rng = random.Random(2)
    noisy = [[rng.gauss(0, 0.1) for _ in range(8)] for _ in range(5)]
    found = trend_of(noisy)
    assert found is not None
    assert found.p > 0.01
    steps = trend_of([[0.0, 0.0, 0.0], [9.0, 9.0, 9.0]])
    assert steps is not None
    assert steps.log_change == 0
    assert trend_of([[1.0, 2.0]]) is None
