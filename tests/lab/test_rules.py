"""Each rule is kept by a clean sample and broken by one planted fault, and says where."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from nearcache.lab.advice.verdict import recommend, void_run
from nearcache.lab.base.messages import Phase
from nearcache.lab.checks import evidence
from nearcache.lab.checks.firm import doubt, legend
from nearcache.lab.checks.readings import course_of
from nearcache.lab.checks.rules import RULES, badge, examine, voided
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.results.sample import Sample

from .made import experiment, phase, sample_of, steady

COSTS = {"a": 1000.0, "b": 2000.0, "c": 3000.0}


def clean() -> Sample:
    """A sample that breaks no rule that this machine could break."""
    asked = experiment("a", "b", "c", mix={"get": 1.0})
    sample = sample_of(asked, steady(COSTS))
    places = dict.fromkeys(sample.candidates, (0.5, 20))
    sample.about |= {
        "load_before": 0.1,
        "order": {"visits": 80, "digests": ["abc"], "places": places},
        "overhead": {"call_ns": 90.0, "batched_ns": 60.0, "batch_below_ns": 10_000.0},
        "swapped_pages": 0,
        "versions_after": sample.about["versions"],
    }
    sample.about["machine"] |= {"cpus_usable": 8, "governor": "performance"}
    return sample


FOLLOWS = {"the generator keeps up": ("percentiles have their samples",)}


def breaks(sample: Sample, rule: str) -> str:
    """The text of the one rule that is broken, but for what follows from it."""
    found = [f for f in examine(sample) if f.rule not in FOLLOWS.get(rule, ())]
    assert {finding.rule for finding in found} == {rule}, [str(finding) for finding in found]
    return str(found[0])


def test_a_clean_sample_breaks_nothing_and_its_badge_says_what_was_seen() -> None:
    sample = clean()
    assert not [str(finding) for finding in examine(sample)]
    checks = badge(Analysis(sample))
    assert [check.number for check in checks] == sorted(check.number for check in checks)
    failed = {check.name for check in checks if check.status == "failed"}
    # Only 60 samples in each of 20 rounds.
    assert failed <= {"it settles", "what is left out as warm-up decides nothing"}
    passed = {check.name: check.text for check in checks if check.status == "passed"}
    assert passed["every answer is verified"] == (
        "4,800 answers verified, none wrong among those measured"
    )
    assert passed["every candidate does what was asked"] == "all 4 candidates did what was asked"
    assert "0.9% of an operation of 10 µs: 90 ns a" in passed["the lab itself costs little"]
    absent = [check for check in checks if check.status == "not applicable"]
    assert "the generator keeps up" in {check.name for check in absent}
    assert all(not check.text for check in absent)


def cell_of(sample: Sample, name: str = "b") -> evidence.Cell:
    return sample.cells[name, "get", "S"]


def wrong(sample: Sample) -> None:
    cell_of(sample).errors = 1


def failed(sample: Sample) -> None:
    sample.candidates["b"].state = "failed"
    sample.candidates["b"].reason = "get of payload S: stale"
    sample.drop("b")


def unaccounted(sample: Sample) -> None:
    cell_of(sample).calls += 5
    cell_of(sample).hits -= 100


def misses(sample: Sample) -> None:
    cell_of(sample).misses, cell_of(sample).hits = 200, 1000


def dropped_keys(sample: Sample) -> None:
    measures = {"keys_sent": (100.0, "count"), "keys_stored": (99.0, "count")}
    cell_of(sample).add_phase(0, 0, phase(2000, random.Random(1), measures=measures))


def measured(**shares: float) -> Callable[[Sample], None]:
    def plant(sample: Sample) -> None:
        measures = {name: (share, "share") for name, share in shares.items()}
        cell_of(sample).add_phase(0, 0, phase(2000, random.Random(1), measures=measures))

    return plant


def unequal_load(sample: Sample) -> None:
    for name, rate in (("a", 100.0), ("b", 150.0)):
        measures = {"offered_rate": (rate, "1/s")}
        cell_of(sample, name).add_phase(
            0, 0, phase(COSTS[name], random.Random(1), measures=measures)
        )


def always_first(sample: Sample) -> None:
    sample.about["order"]["places"]["b"] = (0.0, 20)


def drifts(sample: Sample) -> None:
    for name in ("a", "a (twin)"):
        for rounds in cell_of(sample, name).points.values():
            rounds.update({number: value * 1.15**number for number, value in rounds.items()})


def about(**changes: object) -> Callable[[Sample], None]:
    def plant(sample: Sample) -> None:
        sample.about |= changes

    return plant


def on_machine(**changes: object) -> Callable[[Sample], None]:
    def plant(sample: Sample) -> None:
        sample.about["machine"] |= changes

    return plant


def no_twin(sample: Sample) -> None:
    sample.candidates["a (twin)"].state = "failed"
    del sample.candidates["a (twin)"]
    sample.drop("a (twin)")


def one_process(sample: Sample) -> None:
    for cell in sample.cells.values():
        cell.points = {0: cell.points[0]}


def other_treatment(sample: Sample) -> None:
    sample.candidates["b"].proof = {"parser": "hiredis"}
    sample.about["changed"] = {"b": "parser was hiredis in one process, python in another"}


def other_version(sample: Sample) -> None:
    sample.about["versions_after"] = {**sample.about["versions"], "django": "9"}


def few_samples(sample: Sample) -> None:
    rest = cell_of(sample)
    rest.calls, rest.recorded, rest.count, rest.warm_up = 500, 500, 500, 0


@pytest.mark.parametrize(
    ("plant", "rule", "said"),
    [
        (wrong, "every answer is verified", "b get S: 1 wrong answer or error"),
        (failed, "every candidate does what was asked", "b: get of payload S: stale"),
        (unaccounted, "calls attempted are calls recorded", "1,205 calls attempted, 1,200"),
        (misses, "hits, misses and errors are apart", "200 misses among 1,000 hits"),
        (dropped_keys, "keys stored are keys sent", "b: 100 keys sent, 99 stored"),
        (measured(late_share=0.06), "the generator keeps up", "b get S: 6.0% of the calls began"),
        (measured(generator_cpu=0.9), "the generator keeps up", "90.0% of its time"),
        (measured(dropped_share=0.1), "the generator keeps up", "it cannot serve this rate"),
        (unequal_load, "all get the same load", "offered 100 to 150 /s"),
        (always_first, "rounds are interleaved at random", "b came at 0% of a round"),
        (drifts, "the machine does not drift", "a and its twin took +52%"),
        (about(steal_share=0.05), "no time is stolen", "gave 5.0% of the time"),
        (about(swapped_pages=9000), "nothing swaps", "9,000 pages"),
        (about(load_before=2.0), "the machine was idle before", "load 2.0"),
        (other_version, "versions are the same throughout", ", then 9"),
        (about(cannot_answer=[]), "it can be repeated", "not said what it cannot answer"),
        (
            about(overhead={"call_ns": 600.0, "batched_ns": 300.0, "batch_below_ns": 30_000.0}),
            "the lab itself costs little",
            "3.0% of an operation",
        ),
        (on_machine(governor="powersave"), "the clock of the CPU stands still", "powersave"),
        (on_machine(cpus_usable=2), "client and server have cores of their own", "2 CPUs"),
        (no_twin, "A/A twins set the floor", "no A/A twin of what runs in the process"),
        (one_process, "fresh processes", "1 set of fresh processes, 5 are wanted"),
        (other_treatment, "the treatment is proven", "parser was hiredis"),
        (
            few_samples,
            "percentiles have their samples",
            "1 of 4 P99 are grey: too few samples",
        ),
        (
            measured(late_share=0.02),
            "percentiles have their samples",
            "1 for calls that the generator",
        ),
    ],
)
def test_a_planted_fault_breaks_its_rule_and_no_other(
    plant: Callable[[Sample], None], rule: str, said: str
) -> None:
    sample = clean()
    plant(sample)
    assert said in breaks(sample, rule)
    check = next(check for check in badge(Analysis(sample)) if check.name == rule)
    assert check.status == "failed"
    assert said in check.text


def test_the_reader_is_told_whether_samples_are_few_or_late() -> None:
    sample = clean()
    cells = sample.cells.values()
    assert legend(cells).endswith("(P90 wants 100, P99 1,000).")
    few_samples(sample)
    assert doubt(cell_of(sample), 99) == "few"
    assert "late" not in legend(cells)
    sample = clean()
    measured(late_share=0.02)(sample)
    assert [doubt(cell_of(sample), rank) for rank in (90, 99)] == ["", "late"]
    assert "of get also one that says more of the generator" in legend(sample.cells.values())


def test_what_voids_a_run_leaves_no_rank_and_no_recommendation_but_all_rows() -> None:
    sample = clean()
    sample.about["steal_share"] = 0.05
    analysis = Analysis(sample)
    assert voided(sample)
    assert analysis.ranking == []
    assert [entry.name for entry, _ in analysis.unranked] == ["a", "b", "c"]
    rows = analysis.rows("get", "S")
    assert len(rows) == 4
    assert all("5.0%" in row.void and row.effect is None for row in rows)
    advice = recommend(analysis)
    assert advice.caches_block == ""
    assert not advice.sentences
    assert "This run answers nothing: the hypervisor" in void_run(analysis)[0]


def test_what_voids_a_cell_takes_only_its_candidate_out_of_the_order() -> None:
    sample = clean()
    measured(late_share=0.5)(sample)
    analysis = Analysis(sample)
    assert [rank.entry.name for rank in analysis.ranking] == ["a", "c"]
    ((entry, why),) = analysis.unranked
    assert entry.name == "b"
    assert "began late" in why
    by_name = {row.entry.name: row for row in analysis.rows("get", "S")}
    assert by_name["b"].void
    assert by_name["b"].effect is None
    assert by_name["c"].verdict == "slower"
    assert analysis.rows("get", "S")[-1].entry.name == "b", "what is void comes last"
    assert recommend(analysis).chosen == "a"


def test_a_void_baseline_is_compared_with_nobody() -> None:
    sample = clean()
    cell_of(sample, "a").errors = 3
    analysis = Analysis(sample)
    assert all(row.effect is None for row in analysis.rows("get", "S"))
    assert [rank.entry.name for rank in analysis.ranking] == ["b", "c"]
    assert all(rank.effect is None for rank in analysis.ranking)


def test_rules_that_only_warn_void_nothing() -> None:
    sample = clean()
    sample.about["machine"]["governor"] = "powersave"
    sample.about["load_before"] = 3.0
    assert examine(sample)
    assert not voided(sample)
    assert len(Analysis(sample).ranking) == 3


def test_every_rule_has_a_name_of_its_own() -> None:
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)


def test_a_slow_start_is_called_a_warm_up_and_its_chop_can_turn_a_verdict() -> None:
    rng = random.Random(1)

    def with_slow_start(name: str, _repetition: int, _number: int) -> Phase:
        found = phase(1000, rng)
        if name == "b":  # more than half of what nobody leaves out is slow
            for i in range(32):
                found.samples[i] = 3000
        return found

    sample = sample_of(experiment("a", "b"), with_slow_start)
    assert course_of(sample.cells["b", "get", "S"]) in ("warm-up", "no steady state")
    assert course_of(sample.cells["a", "get", "S"]) == "flat"
    found = Analysis(sample).chop_sensitivity("b", "a", "get", "S")
    assert found.verdicts["0"] == "slower"
    assert found.verdicts["10"] == "same"
    assert found.changes
    check = next(c for c in badge(Analysis(sample)) if c.name.startswith("what is left out"))
    assert check.status == "failed"
    assert "b get S: by samples left out, 0: slower" in check.text
