"""A winner is named only where the reads show one."""

from __future__ import annotations

import random

import pytest

from nearcache.web.finding import Timed, rank


def timed(alias: str, middle: float, reads: int, spread: float = 0.3) -> Timed:
    rng = random.Random(f"{alias}:{reads}")
    times = sorted(round(middle * rng.lognormvariate(0, spread)) for _ in range(reads))
    return Timed(alias, [(ns, 1) for ns in times])


def test_a_clear_winner_is_named() -> None:
    found = rank([timed("b", 20_000, 500), timed("a", 10_000, 500)])
    assert found.fastest == ["a"]
    assert [alias for _, alias in found.ordered] == ["a", "b"]


@pytest.mark.parametrize("reads", [100, 1000, 100_000])
def test_two_of_the_same_are_no_difference(reads: int) -> None:
    found = rank([timed("a", 10_000, reads), timed("b", 10_000, reads)])
    assert sorted(found.fastest) == ["a", "b"]


def test_a_proven_difference_below_the_floor_of_the_lab_is_none() -> None:
    found = rank([timed("a", 10_000, 50_000, 0.01), timed("b", 10_200, 50_000, 0.01)])
    assert sorted(found.fastest) == ["a", "b"]


def test_two_of_three_may_be_the_fastest_together() -> None:
    found = rank([timed("c", 30_000, 300), timed("a", 10_000, 300), timed("b", 10_100, 300)])
    assert sorted(found.fastest) == ["a", "b"]
    assert found.ordered[-1][1] == "c"


def test_the_interval_of_the_median_holds_as_often_as_it_says() -> None:
    rng = random.Random(5)
    held = 0
    for _ in range(400):
        times = sorted(round(10_000 * rng.lognormvariate(0, 0.5)) for _ in range(120))
        low, high = Timed("a", [(ns, 1) for ns in times]).interval(1)
        held += low <= 10_000 <= high
    assert held >= 370
