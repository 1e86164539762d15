"""Statistics with answers that are known beforehand."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from statistics import median

import pytest

from nearcache.lab.statistics.bootstrap import Medians
from nearcache.lab.statistics.stats import (
    ALPHA,
    LEAST_FLOOR,
    Effect,
    Points,
    effect_of,
    floor_of,
    geometric_mean,
    holm,
    judge,
    judge_family,
    paired_log_ratios,
    shift_of,
    signed_rank_p,
    warm_up_count,
)
from nearcache.lab.statistics.student import chance_beyond, critical, p_of_reach


def effect(ratio: float, low: float, high: float) -> Effect:
    return Effect(math.log(ratio), math.log(low), math.log(high), 10)


def test_a_constant_ratio_is_found_exactly_however_the_machine_drifts() -> None:
    base = {r: {n: 10.0 * (1 + r) * (1 + n) for n in range(5)} for r in range(3)}
    twice = {r: {n: 2 * value for n, value in rounds.items()} for r, rounds in base.items()}
    found = effect_of(twice, base)
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
    assert effect_of({0: {0: 1.0}}, {1: {0: 1.0}}) is None


def noise_only(rng: random.Random, processes: int, rounds: int, of_process: float = 0) -> Points:
    """A candidate that costs 1, in rounds that differ by a tenth and processes that may, too."""
    layouts = [rng.gauss(0, of_process) for _ in range(processes)]
    return {
        repetition: {number: math.exp(layout + rng.gauss(0, 0.1)) for number in range(rounds)}
        for repetition, layout in enumerate(layouts)
    }


@pytest.mark.parametrize(
    ("processes", "rounds"), [(6, 1), (7, 1), (9, 1), (2, 3), (3, 3), (2, 7), (5, 3), (6, 6)]
)
def test_the_interval_covers_a_true_ratio_of_one_about_as_often_as_it_says(
    processes: int, rounds: int
) -> None:
    rng = random.Random(5)
    covered = 0
    for _ in range(150):
        a, b = (noise_only(rng, processes, rounds, of_process=0.03) for _ in range(2))
        found = effect_of(a, b)
        assert found is not None
        covered += found.low <= 1 <= found.high
    assert covered >= 137, "of 150 at 95 %, less two standard deviations"


@pytest.mark.parametrize(("processes", "rounds"), [(2, 3), (3, 2), (6, 1), (2, 7)])
def test_a_table_of_nothing_but_noise_seldom_has_a_finding(processes: int, rounds: int) -> None:
    rng = random.Random(5)
    wrong = 0
    for _ in range(20):
        base = noise_only(rng, processes, rounds)
        found = [effect_of(noise_only(rng, processes, rounds), base) for _ in range(22)]
        known = [effect for effect in found if effect is not None]
        verdicts = judge_family(known, [LEAST_FLOOR] * len(known))
        wrong += not {"faster", "slower"}.isdisjoint(verdicts)
    assert wrong <= 3, "of 20 at 5 %"


def test_six_rounds_on_one_side_are_a_finding_alone_and_not_among_twenty() -> None:
    base = {r: dict.fromkeys(range(3), 1.0) for r in range(2)}
    ratios = iter([1.06, 1.09, 1.15, 1.18, 1.22, 1.3])
    lucky = effect_of({r: {n: next(ratios) for n in range(3)} for r in range(2)}, base)
    assert lucky is not None
    assert lucky.p is not None
    assert 0.001 < lucky.p < ALPHA
    assert judge_family([lucky], [LEAST_FLOOR]) == ["slower"]
    others = [replace(lucky, p=0.5)] * 19
    assert judge_family([lucky, *others], [LEAST_FLOOR] * 20)[0] == "unclear"


def test_students_t_is_that_of_the_textbooks() -> None:
    for freedom, wanted in ((1, 12.706), (2, 4.303), (5, 2.571), (8, 2.306), (30, 2.042)):
        assert critical(freedom, 0.05) == pytest.approx(wanted, abs=0.001)
        assert chance_beyond(-wanted, freedom) == pytest.approx(0.05, abs=0.0001)
    assert chance_beyond(0, 7) == pytest.approx(1)


def test_a_p_value_is_below_five_percent_if_the_interval_does_not_include_zero() -> None:
    assert p_of_reach(0.2, 0.2, 9, ALPHA) == pytest.approx(ALPHA)
    assert p_of_reach(-0.2, 0.1, 9, ALPHA) < 0.01
    assert p_of_reach(0.2, 0.3, 9, ALPHA) > ALPHA
    assert p_of_reach(0.2, 0.0, 9, ALPHA) == 0
    assert p_of_reach(0.2, 0.0, 1, ALPHA) == 1, "one round has no noise to be compared with"


def test_processes_that_differ_widen_the_interval_more_than_rounds_that_differ() -> None:
    noise = [0.8, 0.9, 1.0, 1.1, 1.25]
    base = {r: dict.fromkeys(range(5), 1.0) for r in range(5)}
    by_process = {r: dict.fromkeys(range(5), noise[r]) for r in range(5)}
    by_round = {r: {n: noise[n] for n in range(5)} for r in range(5)}
    wide = effect_of(by_process, base)
    narrow = effect_of(by_round, base)
    assert wide is not None
    assert narrow is not None
    assert wide.log_high - wide.log_low > narrow.log_high - narrow.log_low


def test_an_interval_of_few_rounds_is_widened_to_the_noise() -> None:
    lucky = effect(1.5, 1.5, 1.5).widened(math.log(1.1))
    assert (lucky.low, lucky.high) == pytest.approx((1.5 / 1.1, 1.5 * 1.1))
    wide = effect(1.5, 1.0, 2.0)
    assert wide.widened(math.log(1.1)) == wide


def test_the_floor_is_what_the_twins_were_apart_but_never_less_than_three_percent() -> None:
    assert floor_of([]) == LEAST_FLOOR
    assert floor_of([0.001]) == LEAST_FLOOR
    assert floor_of([0.0] * 5 + [-0.2] * 5) == 0.2


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


def test_the_bootstrap_that_is_computed_agrees_with_the_one_that_is_simulated() -> None:
    rng = random.Random(3)
    for sizes in ((8, 8, 8, 8, 8), (6, 5, 3), (31,), (2, 2)):
        groups = [[rng.gauss(0.05, 0.1) for _ in range(size)] for size in sizes]
        drawn = []
        for _ in range(4000):
            chosen: list[float] = []
            for group in rng.choices(groups, k=len(groups)):
                chosen += rng.choices(group, k=len(group))
            drawn.append(median(chosen))
        exact = Medians(groups)
        for tail in (0.025, 0.25):
            # As a share of the simulated medians, because these lie on a few values. Of an even
            # number they lie halfway between two, so one value more to each side is allowed.
            low, high = (exact.values.index(v) for v in (exact.low(tail), exact.high(tail)))
            assert sum(d < exact.values[low] for d in drawn) / 4000 <= tail + 0.02
            assert sum(d > exact.values[high] for d in drawn) / 4000 <= tail + 0.02
            assert sum(d <= exact.values[low + 1] for d in drawn) / 4000 >= tail - 0.02
            assert sum(d >= exact.values[high - 1] for d in drawn) / 4000 >= tail - 0.02


def test_equivalence_is_proven_only_by_an_interval_inside_the_zone() -> None:
    flat = {r: {n: 1.0 + 0.001 * n for n in range(6)} for r in range(4)}
    noisy = {r: {n: 1.0 + 0.2 * (-1) ** (n + r) for n in range(6)} for r in range(4)}
    base = {r: dict.fromkeys(range(6), 1.0) for r in range(4)}
    proven, merely = effect_of(flat, base), effect_of(noisy, base)
    assert proven is not None
    assert merely is not None
    assert proven.is_equivalent()
    assert not merely.is_equivalent()
    assert not effect(1.5, 1.4, 1.6).is_equivalent()


def test_holm_multiplies_the_smallest_most_and_never_falls() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_one_lucky_comparison_among_many_is_not_a_finding() -> None:
    lucky = replace(effect(1.2, 1.01, 1.4), p=0.03)
    clear = replace(effect(1.2, 1.1, 1.3), p=0.0001)
    nothing = [replace(effect(1.1, 0.9, 1.3), p=0.5)] * 8
    floors = [math.log(1.05)] * 10
    assert judge_family([lucky], floors[:1]) == ["slower"]
    assert judge_family([lucky, clear, *nothing], floors)[:2] == ["unclear", "slower"]


def test_signed_ranks_give_the_textbook_values() -> None:
    assert signed_rank_p([1, 2, 3, 4, 5]) is None, "five cannot reach five percent"
    assert signed_rank_p([1, 2, 3, 4, 5, 6]) == pytest.approx(2 / 64)
    # Sums of at most 6 of the ranks 1 to 8: fourteen ways of 256.
    assert signed_rank_p([1, 2, 3, 4, 5, -6, 7, 8]) == pytest.approx(2 * 14 / 256)
    many = [0.1 + 0.01 * i for i in range(70)]
    found = signed_rank_p(many)
    assert found is not None
    assert found < 1e-9
    tied = signed_rank_p([1, 1, 1, -1, -1, -1])
    assert tied == 1


def test_a_shift_is_in_the_unit_and_one_outlier_does_not_move_it() -> None:
    base = {0: {n: 100.0 + n for n in range(12)}}
    later = {0: {n: 107.0 + n for n in range(12)}}
    later[0][3] = 9000.0
    found = shift_of(later, base)
    assert found is not None
    assert found.value == pytest.approx(7)
    assert found.low == pytest.approx(7)
    assert shift_of({0: {0: 1.0}}, {1: {0: 1.0}}) is None


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
