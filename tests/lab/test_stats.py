"""Statistics with answers that are known beforehand."""

from __future__ import annotations

import math
import random

import pytest

from nearcache.lab.stats import (
    LEAST_FLOOR,
    Effect,
    effect_of,
    geometric_mean,
    judge,
    noise_floor,
    paired_log_ratios,
    tied_with_first,
    warm_up_count,
)


def effect(ratio: float, low: float, high: float) -> Effect:
    return Effect(math.log(ratio), math.log(low), math.log(high), 10)


def test_a_constant_ratio_is_found_exactly_however_the_machine_drifts() -> None:
    base = {r: {n: 10.0 * (1 + r) * (1 + n) for n in range(5)} for r in range(3)}
    twice = {r: {n: 2 * value for n, value in rounds.items()} for r, rounds in base.items()}
    found = effect_of(twice, base, 200, random.Random(1))
    assert found is not None
    assert found.ratio == pytest.approx(2)
    assert found.low == pytest.approx(2)
    assert found.high == pytest.approx(2)
    assert found.pairs == 15


def test_only_rounds_that_both_have_are_paired() -> None:
    a = {0: {0: 2.0, 1: 2.0}, 1: {0: 2.0}}
    b = {0: {1: 1.0, 2: 1.0}, 2: {0: 1.0}}
    assert paired_log_ratios(a, b) == [[math.log(2)]]


def test_without_a_common_round_there_is_no_effect() -> None:
    assert effect_of({0: {0: 1.0}}, {1: {0: 1.0}}, 10, random.Random(1)) is None


def test_the_interval_covers_a_true_ratio_of_one_about_as_often_as_it_says() -> None:
    rng = random.Random(5)
    covered = 0
    for _ in range(200):
        a, b = (
            {r: {n: math.exp(rng.gauss(0, 0.1)) for n in range(6)} for r in range(6)}
            for _ in range(2)
        )
        found = effect_of(a, b, 200, rng)
        assert found is not None
        covered += found.low <= 1 <= found.high
    assert covered >= 180


def test_processes_that_differ_widen_the_interval_more_than_rounds_that_differ() -> None:
    noise = [0.8, 0.9, 1.1, 1.25]
    base = {r: dict.fromkeys(range(4), 1.0) for r in range(4)}
    by_process = {r: dict.fromkeys(range(4), noise[r]) for r in range(4)}
    by_round = {r: {n: noise[n] for n in range(4)} for r in range(4)}
    wide = effect_of(by_process, base, 500, random.Random(1))
    narrow = effect_of(by_round, base, 500, random.Random(1))
    assert wide is not None
    assert narrow is not None
    assert wide.log_high - wide.log_low > narrow.log_high - narrow.log_low


def test_an_interval_of_few_rounds_is_widened_to_the_noise() -> None:
    lucky = effect(1.5, 1.5, 1.5).widened(math.log(1.1))
    assert (lucky.low, lucky.high) == pytest.approx((1.5 / 1.1, 1.5 * 1.1))
    wide = effect(1.5, 1.0, 2.0)
    assert wide.widened(math.log(1.1)) == wide


def test_the_floor_is_what_the_twins_were_apart_but_never_less_than_three_percent() -> None:
    assert noise_floor([]) == LEAST_FLOOR
    assert noise_floor([effect(1.001, 1, 1)]) == LEAST_FLOOR
    twins = [effect(1.0, 1, 1)] * 5 + [effect(1 / 1.2, 0.8, 0.9)] * 5
    assert noise_floor(twins) == pytest.approx(math.log(1.2))


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (effect(1.02, 1.01, 1.03), "same"),
        (effect(1.5, 1.4, 1.6), "slower"),
        (effect(0.5, 0.4, 0.6), "faster"),
        (effect(1.5, 0.9, 2.0), "unclear"),
    ],
)
def test_verdicts_respect_floor_and_interval(found: Effect, verdict: str) -> None:
    assert judge(found, math.log(1.05)) == verdict


def test_only_what_is_clearly_slower_than_the_first_is_not_tied_with_it() -> None:
    field = [effect(1.01, 0.9, 1.1), effect(1.5, 0.9, 2), effect(1.5, 1.4, 1.6), None]
    assert tied_with_first(field, math.log(1.05)) == [True, True, False, True]


def test_a_slow_start_is_left_out_and_a_late_hiccup_is_kept() -> None:
    rng = random.Random(2)
    steady = [1000 + rng.randrange(50) for _ in range(200)]
    start = [5000 - 40 * i for i in range(40)]
    assert 35 <= warm_up_count(start + steady) <= 50
    hiccup = [*steady[:150], 90_000, *steady[150:]]
    assert warm_up_count(hiccup) <= 75
    assert warm_up_count(steady) <= 100


def test_a_change_in_the_second_half_is_not_a_warm_up() -> None:
    assert warm_up_count([5000] * 150 + [1000] * 50) == 0


def test_too_few_samples_have_no_warm_up() -> None:
    assert warm_up_count([9000, 1, 1, 1, 1, 1, 1, 1, 1, 1]) == 0
    assert warm_up_count([]) == 0


def test_the_geometric_mean_of_one_and_a_hundred_is_ten() -> None:
    assert geometric_mean([1, 100]) == pytest.approx(10)
