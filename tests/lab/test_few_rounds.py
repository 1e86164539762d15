"""What too few rounds, too much noise and long waits may not be made to say."""

from __future__ import annotations

import math

import pytest

from nearcache.lab.base.messages import Phase
from nearcache.lab.base.model import Operation
from nearcache.lab.experiments.disks import findings as disks
from nearcache.lab.experiments.locks import findings as locks
from nearcache.lab.experiments.stores import findings as stores
from nearcache.lab.experiments.warmup import findings as warmup
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.judging.claims import ClaimResult, word_for
from nearcache.lab.judging.explain import explain_one
from nearcache.lab.judging.reading import compared_all
from nearcache.lab.judging.words import beside, noise, span
from nearcache.lab.reports import tables
from nearcache.lab.results.sample import Sample, Series
from nearcache.lab.statistics.stats import Effect, judge
from nearcache.lab.timers.attribution import Attributor
from nearcache.report.model import Table
from nearcache.report.units import scale_for

from .made import experiment, sample_of, steady
from .test_void_views import everything


def with_rounds(repetitions: int, rounds: int) -> Sample:
    sample = sample_of(experiment("a", "b"), steady({"a": 1000.0, "b": 5000.0}))
    for cell in sample.cells.values():
        cell.points = {r: {n: cell.points[r][n] for n in range(rounds)} for r in range(repetitions)}
    return sample


def effect(ratio: float, wide: float, pairs: int = 20) -> Effect:
    middle = math.log(ratio)
    return Effect(middle, middle - wide, middle + wide, pairs)


@pytest.mark.parametrize(("rounds", "said"), [(1, "1 round"), (4, "4 rounds")])
def test_few_rounds_have_a_ratio_with_a_question_mark_and_no_interval(
    rounds: int, said: str
) -> None:
    analysis = Analysis(with_rounds(1, rounds))
    (row,) = [row for row in analysis.rows("get", "S") if row.entry.name == "b"]
    assert row.verdict == "unclear"
    text = tables.ratio_text(row, "a")
    assert text.startswith(("4.9", "5.0"))
    assert said in text
    assert "?" in text
    assert "\N{EN DASH}" not in text


def test_a_sentence_says_that_rounds_were_too_few_to_tell() -> None:
    assert beside(effect(2.0, 0.1, pairs=4), "unclear", "a") == "not told apart from a in 4 rounds"
    assert beside(effect(2.0, 0.9), "unclear", "a") == "not told apart from a"


def test_enough_rounds_have_an_interval() -> None:
    analysis = Analysis(with_rounds(3, 2))
    (row,) = [row for row in analysis.rows("get", "S") if row.entry.name == "b"]
    assert row.verdict == "slower"
    assert "\N{EN DASH}" in span(row.effect) if row.effect else False


def test_a_floor_above_a_factor_of_two_is_no_number_and_nothing_is_called_the_same() -> None:
    assert noise(math.log(317)) == "too noisy to tell"
    assert noise(math.log(1.5)) == "50.0%"
    assert judge(effect(60.0, 0.1), math.log(300)) == "unclear"
    assert judge(effect(1.01, 0.1), math.log(1.5)) == "same"


def test_an_interval_that_agrees_with_anything_confirms_no_claim() -> None:
    assert word_for(math.log(10), effect(16.7, math.log(7.6))) == "unclear"
    assert word_for(math.log(10), effect(9.0, math.log(1.2))) == "holds"


def test_no_difference_is_not_called_the_same_as_the_seed_said() -> None:
    found = ClaimResult("1", "t", 10.0, "b", "a", "get", "S", None, "same", "")
    assert tables.word_of(found) == "no difference"


def test_a_long_wait_is_in_seconds_beside_short_ones() -> None:
    assert scale_for("ns", [1500.0, 1.9e9]).text(1.9e9) == "1.90 s"
    assert scale_for("ns", [1500.0, 2500.0]).text(2500.0) == "2.50"


def test_a_native_get_builds_no_key_in_python() -> None:
    class SharedMemoryCache:
        def __init__(self) -> None:
            self.stored: dict[str, object] = {}

        def set(self, key: str, value: object, _timeout: int) -> None:
            self.stored[key] = value

        def get(self, key: str) -> object:
            return self.stored[key]

        def make_and_validate_key(self, key: str) -> str:
            return key

    cache = SharedMemoryCache()
    taken = Attributor(cache, None, "p", 10_000)
    cache.set(taken.keys[0], 1, 1)
    for key in taken.keys:
        cache.set(key, 1, 1)
    found = taken._get([1])
    assert found is not None
    assert "key" not in found.parts


def test_a_table_of_pairs_is_one_family_and_two_rounds_are_no_difference() -> None:
    analysis = Analysis(with_rounds(1, 2))
    found = compared_all(analysis, [("b", "a"), ("a (twin)", "a")], "get", ["S"])
    assert {verdict for _, verdict in found.values()} <= {"unclear", "same"}
    assert found["b", "a", "S"][1] == "unclear"


def test_one_cell_has_one_median_that_of_its_rounds() -> None:
    sample = sample_of(experiment("a", "b"), steady({"a": 1000.0, "b": 5000.0}))
    points = sample.cells["b", "get", "S"].points
    for rounds in points.values():  # rounds that say something else than all calls together
        rounds.update(dict.fromkeys(rounds, 8000.0))
    (sheet,) = tables.sheets(Analysis(sample))
    table = tables.cell_table(sheet)
    place = list(table.head).index("median")
    assert [row[place] for row in table.rows if row[0] == "b"] == ["8.00"]
    assert "P50" not in table.head


def test_one_call_of_which_nothing_is_ranked_has_no_percentiles_and_no_ratio() -> None:
    operations = (Operation(name="get", ranked=False),)
    sample = sample_of(experiment("a", "b", operations=operations), one_call)
    (sheet,) = tables.sheets(Analysis(sample))
    head = tables.cell_table(sheet).head
    assert not {"P99", "P90", "median", "P50"} & set(head)
    assert tables.against(sheet.analysis) not in head
    assert "better" not in tables.overview(sheet.analysis, [sheet]).title


def one_call(name: str, _repetition: int, _number: int) -> Phase:
    phase = Phase("get", calls=1, hits=1)
    phase.samples.append(1000 if name == "a" else 5000)
    return phase


def test_a_lock_that_nobody_got_was_waited_for_so_often_and_so_long() -> None:
    sample = everything("locks", 0.0)
    for (_, operation, _), cell in sample.cells.items():
        if operation == "recover":
            cell.count, cell.calls = 0, 1
    (said,) = [s for s in locks.views(Analysis(sample)).sentences if "killed" in s]
    assert "seed-decorator (1 try)" in said
    assert said.endswith("within 3.00 s.")


def test_a_layer_of_the_orm_takes_no_negative_time() -> None:
    sample = everything("stores", 0.0)
    for (name, operation, _), cell in sample.cells.items():
        if (name, operation) == ("pg-orm", "read"):
            cell.points = {r: dict.fromkeys(rounds, 1.0) for r, rounds in cell.points.items()}
    found = stores.views(Analysis(sample)).parts
    (table,) = [p for p in found if isinstance(p, Table) and p.title.endswith("taken apart")]
    assert not [row for row in table.rows if row[2].startswith("-")]


def test_what_is_the_same_is_not_so_many_times_as_much() -> None:
    sample = everything("disks", 0.0)
    names = list(sample.candidates)
    for (name, operation, payload), cell in sample.cells.items():
        if name != names[0]:
            cell.points = sample.cells[names[0], operation, payload].points
    said = " ".join(disks.views(Analysis(sample)).sentences)
    assert "1 (the same) times" not in said


def test_a_filling_command_is_said_to_spare_computing_in_computations() -> None:
    sample = everything("warmup", 0.0)
    for (_, operation, payload), cell in sample.cells.items():
        if operation == "computed":
            count = 10.0 if payload == "fill" else 100.0
            cell.measures["by requests"] = Series("count", {0: {0: count}})
            cell.measures["request, P99"] = Series("ns", {0: {0: 1e6 / count}})
    said = " ".join(warmup.views(Analysis(sample)).sentences)
    assert "10 instead of 100 computations; P99 of requests" in said


def test_who_has_no_rank_is_told_which_calls_had_no_answer() -> None:
    asked = experiment("a", "b", mix={"get": 1.0})
    sample = sample_of(asked, steady({"a": 1000.0, "b": 5000.0}))
    cell = sample.cells["b", "get", "S"]
    cell.points, cell.outcomes = {}, {"becomes list, was tuple": 9}
    ((entry, why),) = Analysis(sample).unranked
    assert entry.name == "b"
    assert why == "no time for get S: becomes list, was tuple"


@pytest.mark.parametrize(
    ("cost", "said"), [(900.0, "small thing: 100%"), (100.0, "of its 1.00 µs, 100 ns were taken")]
)
def test_parts_that_are_a_tenth_of_a_call_are_not_called_all_of_it(cost: float, said: str) -> None:
    sample = sample_of(experiment("a"), lambda *_: Phase("get", point=1000.0, calls=1))
    sample.cells["a", "get", "S"].parts["decode"] = Series("ns", {0: {0: cost}})
    assert said in explain_one(Analysis(sample), "a", "get", "S")
