"""Judging samples of any shape: no mix, other units, rounds without samples, claims, ties."""

from __future__ import annotations

import math
import random

import pytest

from nearcache.lab.base.messages import Phase
from nearcache.lab.base.model import NO_PAYLOAD, Operation
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.judging.claims import word_for
from nearcache.lab.results.merging import merge
from nearcache.lab.results.sample import Sample
from nearcache.lab.statistics.stats import Effect

from .made import claim, experiment, phase, sample_of, steady

THREE = {"a": 1000.0, "b": 1500.0, "c": 3000.0}


def test_without_a_mix_nothing_is_ranked_and_contrasts_compare_all_that_both_did() -> None:
    asked = experiment("a", "b", "c", contrasts={"which": (("c", "b"),)})
    analysis = Analysis(sample_of(asked, steady(THREE)))
    assert analysis.ranking == []
    assert analysis.unranked == []
    assert analysis.tie_groups() == []
    ((contrast,),) = analysis.contrasts.values()
    assert contrast.effect.ratio == pytest.approx(2, rel=0.02)
    assert contrast.verdict == "slower"


def test_a_mix_may_weigh_operations_that_know_no_payload() -> None:
    operations = (Operation(name="get", payload_free=True),)
    asked = experiment("a", "b", operations=operations, mix={"get": 1.0})
    analysis = Analysis(sample_of(asked, steady(THREE)))
    assert analysis.cell_names == [("get", NO_PAYLOAD)]
    assert [rank.entry.name for rank in analysis.ranking] == ["a", "b"]
    assert analysis.ranking[1].cost_ns == pytest.approx(1500, rel=0.02)


def test_rounds_without_samples_are_rows_ordered_by_what_the_rounds_count_as() -> None:
    rng = random.Random(1)

    def counted(name: str, _repetition: int, _number: int) -> Phase:
        return Phase("get", point=THREE[name] * math.exp(rng.gauss(0, 0.01)), calls=10)

    operations = (Operation(name="get", unit="bytes"),)
    analysis = Analysis(sample_of(experiment("a", "b", "c", operations=operations), counted))
    rows = [row for row in analysis.rows("get", "S") if not row.entry.twin_of]
    assert [row.entry.name for row in rows] == ["a", "b", "c"]
    assert rows[1].summary.count == 0
    assert rows[1].summary.median == pytest.approx(1500, rel=0.02)
    assert rows[1].summary.max >= rows[1].summary.p99 >= rows[1].summary.median
    assert not rows[1].p90_is_firm
    assert rows[2].verdict == "slower"


def test_a_throughput_is_ordered_by_its_rounds_and_not_by_its_samples() -> None:
    rng = random.Random(1)

    def crowd(name: str, _repetition: int, _number: int) -> Phase:
        found = phase({"a": 9000.0, "b": 1000.0}[name], rng)
        found.point = THREE[name]  # wall time per operation
        return found

    operations = (Operation(name="get", as_rate=True),)
    analysis = Analysis(sample_of(experiment("a", "b", operations=operations), crowd))
    first = analysis.rows("get", "S")[0]
    assert first.entry.name.startswith("a")
    assert first.cost == 1000
    assert first.summary.median == pytest.approx(9000, rel=0.02)


def test_who_only_ended_otherwise_has_no_row_and_is_told_of() -> None:
    def stopped(name: str, _repetition: int, _number: int) -> Phase:
        return Phase("get", calls=3, outcomes={"timeout": 2, "raises Boom": 1})

    analysis = Analysis(sample_of(experiment("a", "b"), stopped))
    assert analysis.cell_names == [("get", "S")]
    assert analysis.rows("get", "S") == []
    (entry, cell), *_ = analysis.outcomes("get", "S")
    assert entry.name == "a"
    assert cell.outcomes == {"timeout": 40, "raises Boom": 20}
    assert analysis.ranking == []


def test_an_empty_sample_is_judged_too() -> None:
    sample = sample_of(experiment("a", "b", mix={"get": 1.0}, claims=[claim("b", "a", 2)]),
                       steady(THREE))  # fmt: skip
    for name, entry in sample.candidates.items():
        entry.state = "failed"
        sample.drop(name)
    analysis = Analysis(sample)
    assert analysis.cell_names == analysis.ranking == []
    assert analysis.claims()[0].word == "not measured"


def test_ties_are_groups_and_nobody_in_one_is_proven_slower_than_its_first() -> None:
    costs = {"a": 1000.0, "b": 1005.0, "c": 2000.0, "d": 2010.0, "e": 4000.0}
    asked = experiment(*costs, mix={"get": 1.0})
    analysis = Analysis(sample_of(asked, steady(costs)))
    groups = [[rank.entry.name for rank in group] for group in analysis.tie_groups()]
    assert [sorted(group) for group in groups] == [["a", "b"], ["c", "d"], ["e"]]
    rows = [[row.entry.name for row in group] for group in analysis.tied_rows("get", "S")]
    assert [sorted(group) for group in rows] == [["a", "b"], ["c", "d"], ["e"]]


def test_same_is_proven_or_merely_not_refuted() -> None:
    still = Analysis(sample_of(experiment("a", "b"), steady({"a": 1000.0, "b": 1001.0}, 0.005)))
    loud = Analysis(sample_of(experiment("a", "b"), steady({"a": 1000.0, "b": 1001.0}, 2.0)))
    proven = next(row for row in still.rows("get", "S") if row.entry.name == "b")
    merely = next(row for row in loud.rows("get", "S") if row.entry.name == "b")
    assert proven.verdict == "same"
    assert proven.effect is not None
    assert proven.effect.is_equivalent()
    assert merely.verdict in ("same", "unclear")
    assert merely.effect is not None
    assert not merely.effect.is_equivalent()


def test_a_shift_is_in_the_unit_of_the_operation() -> None:
    analysis = Analysis(sample_of(experiment("a", "b"), steady(THREE)))
    shift = analysis.shift("b", "a", "get", "S")
    assert shift is not None
    assert shift.value == pytest.approx(500, rel=0.05)
    assert shift.low <= shift.value <= shift.high
    assert analysis.shift("b", "nobody", "get", "S") is None


def answered(sample: Sample) -> dict[str, str]:
    return {result.text: result.word for result in Analysis(sample).claims()}


def test_claims_of_the_seeds_are_answered_with_one_word() -> None:
    costs = {"a": 1000.0, "b": 2000.0, "same": 1001.0, "slow": 5000.0}
    claims = [
        claim("b", "a", 2.1),
        claim("slow", "a", 20.0),
        claim("slow", "b", 1.5),
        claim("a", "b", 2.0),
        claim("same", "a", 10.0),
        claim("nobody", "a", 3.0),
    ]
    sample = sample_of(experiment(*costs, claims=claims), steady(costs))
    assert answered(sample) == {
        "a beats b": "holds",
        "a beats slow": "smaller",
        "b beats slow": "larger",
        "b beats a": "reversed",
        "a beats same": "same",
        "a beats nobody": "not measured",
    }
    results = {result.text: result for result in Analysis(sample).claims()}
    assert results["a beats nobody"].why == "nobody was not asked for"
    assert [text for text, result in results.items() if not result.asked] == ["a beats nobody"]
    assert results["a beats b"].why == "as it was"
    effect = results["a beats b"].effect
    assert effect is not None
    assert effect.low <= effect.ratio <= effect.high


def test_a_claim_about_void_numbers_is_not_measured_and_says_why() -> None:
    sample = sample_of(experiment("a", "b", claims=[claim("b", "a", 2.0)]), steady(THREE))
    sample.cells["b", "get", "S"].errors = 1
    (result,) = Analysis(sample).claims()
    assert result.word == "not measured"
    assert result.why == "b: 1 wrong answer or error (every answer is verified)"


def test_a_claim_of_no_difference_holds_if_there_is_none() -> None:
    same = Effect(0.001, -0.01, 0.01, 20, p=0.9)
    assert word_for(math.log(1.02), same) == "holds"
    assert word_for(math.log(1.02), Effect(0.7, 0.6, 0.8, 20)) == "larger"
    assert word_for(math.log(2), Effect(0.2, -0.1, 0.5, 20)) == "unclear"


def test_noise_neither_confirms_nor_refutes_a_claim() -> None:
    floor = math.log(1.7)
    noisy = Effect(0.4, 0.2, 0.5, 20, p=0.001)  # half as much again, which is below the floor
    assert word_for(0.0, noisy, floor) == "unclear", "room for a difference is no agreement"
    assert word_for(math.log(2), Effect(0.0, -0.4, 0.5, 20), floor) == "unclear", "nor the reverse"
    assert word_for(math.log(10), noisy, floor) == "same"


def test_a_second_run_is_as_good_as_the_worse_of_both() -> None:
    first, second = (sample_of(experiment("a", "b"), steady(THREE)) for _ in range(2))
    for sample, digest in ((first, "x"), (second, "y")):
        order = {"visits": 10, "digests": [digest], "places": {"a": (0.4, 10)}}
        sample.about |= {"order": order, "swapped_pages": 0}
    second.about |= {"steal_share": 0.05, "swapped_pages": 7, "state": "interrupted"}
    second.candidates["b"].state, second.candidates["b"].reason = "failed", "a stale answer"
    merged = merge([first, second])
    assert merged.about["steal_share"] == 0.05
    assert merged.about["swapped_pages"] == 7
    assert merged.about["state"] == "interrupted"
    assert merged.about["order"]["digests"] == ["x", "y"]
    assert merged.about["order"]["places"]["a"] == (0.4, 20)
    # A wrong answer in one run voids the numbers of the other too.
    assert merged.candidates["b"].state == "failed"
    assert ("b", "get", "S") not in merged.cells
