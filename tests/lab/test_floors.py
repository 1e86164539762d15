"""The floor of noise belongs to an operation, where its twin was measured often enough for one."""

from __future__ import annotations

import csv
import io
import math
import random

import pytest

from nearcache.lab.base.messages import Phase
from nearcache.lab.base.model import Operation
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.reports import tables
from nearcache.lab.reports.page_data import page_data
from nearcache.lab.reports.table_csv import render
from nearcache.lab.results.sample import Sample
from nearcache.lab.statistics.stats import LEAST_FLOOR
from nearcache.lab.views import Views

from .made import PLAN, experiment, phase, sample_of, steady

COSTS = {"a": 1000.0, "b": 1080.0}


def quiet_and_loud() -> Sample:
    """``get`` is steady; ``set`` of one and the same cache differs by a third of it."""
    operations = (Operation(name="get"), Operation(name="set"))
    sample = sample_of(experiment("a", "b", operations=operations), steady(COSTS))
    rng = random.Random(5)
    for name, factor in (("a", 1.0), ("b", 1.08), ("a (twin)", 1.35)):
        cell = sample.cell(name, "set", "S")
        for repetition in range(PLAN.repetitions):
            for number in range(PLAN.rounds):
                cell.add_phase(repetition, number, phase(1000 * factor, rng))
    return sample


def test_a_difference_of_a_quiet_operation_is_not_hidden_by_a_loud_one() -> None:
    analysis = Analysis(quiet_and_loud())
    assert analysis.floors["process"] > math.log(1.3)
    assert analysis.operation_floors["process", "get"] < math.log(1.05)
    verdicts = {row.entry.name: row.verdict for row in analysis.rows("get", "S")}
    assert verdicts["b"] == "slower"
    verdicts = {row.entry.name: row.verdict for row in analysis.rows("set", "S")}
    assert verdicts["b"] == "same"
    assert [[row.entry.name for row in g] for g in analysis.tied_rows("get", "S")] == [["a"], ["b"]]
    assert len(analysis.tied_rows("set", "S")) == 1


def test_the_floor_is_the_far_end_of_the_twins_interval_not_its_middle() -> None:
    sample = quiet_and_loud()
    rng = random.Random(7)
    for name in ("a", "a (twin)"):  # far apart in both directions, by nothing in the middle
        for rounds in sample.cells[name, "get", "S"].points.values():
            rounds.update({n: v * math.exp(rng.gauss(0, 0.3)) for n, v in rounds.items()})
    analysis = Analysis(sample)
    effect = analysis.compare("a (twin)", "a", "get", "S")
    assert effect is not None
    floor = analysis.operation_floors["process", "get"]
    assert floor == pytest.approx(max(abs(effect.log_low), abs(effect.log_high)))
    assert floor > abs(effect.log_ratio)


@pytest.mark.parametrize("kept", [{0, 1}, {0}])
def test_few_processes_have_the_floor_of_their_kind(kept: set[int]) -> None:
    sample = quiet_and_loud()
    for cell in sample.cells.values():
        cell.points = {number: cell.points[number] for number in kept}
    analysis = Analysis(sample)
    assert analysis.operation_floors == {}
    entry = sample.candidates["b"]
    assert analysis.floor_between(entry, operation="get") == analysis.floors["process"]


def test_bytes_have_their_own_floor_however_noisy_the_clock_and_few_the_rounds() -> None:
    operations = (Operation(name="get"), Operation(name="size", unit="bytes"))
    sample = sample_of(experiment("a", "b", operations=operations), steady(COSTS))
    for name, size in (("a", 1000.0), ("b", 1120.0), ("a (twin)", 1000.0)):
        for repetition in range(2):
            sample.cell(name, "size", "S").points[repetition] = dict.fromkeys(range(3), size)
        if "twin" in name:  # and at gets it is far from what it is a twin of
            for rounds in sample.cells[name, "get", "S"].points.values():
                rounds.update({n: 1.5 * v for n, v in rounds.items()})
    analysis = Analysis(sample)
    assert analysis.floors["process"] > math.log(1.3)
    assert analysis.operation_floors["process", "size"] == LEAST_FLOOR
    verdicts = {row.entry.name: row.verdict for row in analysis.rows("size", "S")}
    assert verdicts["b"] == "slower"


def test_few_rounds_have_the_floor_of_their_kind() -> None:
    sample = quiet_and_loud()
    for cell in sample.cells.values():
        cell.points = {r: {0: rounds[0], 1: rounds[1]} for r, rounds in cell.points.items()}
    assert Analysis(sample).operation_floors == {}


def test_of_several_payloads_the_worst_counts_and_what_has_no_twin_takes_the_coarsest() -> None:
    sample = quiet_and_loud()
    sample.candidates["b"].server = "redis"
    analysis = Analysis(sample)
    b = sample.candidates["b"]
    assert analysis.floor_between(b, operation="get") == analysis.floors["process"]
    assert analysis.floor_between(b, sample.candidates["a"], operation="nothing") > LEAST_FLOOR


def test_the_chart_the_csv_and_the_note_have_the_floor_of_the_operation() -> None:
    analysis = Analysis(quiet_and_loud())
    own = math.exp(analysis.operation_floors["process", "get"])
    lines = list(csv.DictReader(io.StringIO(render(analysis))))
    floors = {line["operation"]: line["noise_floor"] for line in lines if line["candidate"] == "b"}
    assert float(floors["get"]) == pytest.approx(own, rel=1e-3)
    assert float(floors["set"]) > 1.3
    sheets = page_data(analysis, tables.sheets(analysis), Views())["sheets"]
    bands = {s["operation"]: [r["floor"] for r in s["rows"] if "floor" in r] for s in sheets}
    assert max(bands["get"]) == pytest.approx(own, rel=1e-3)
    said = tables.floors_line(analysis)
    assert said.startswith("in process 3")
    assert f"get {own - 1:.1%}" in said


def test_a_claim_is_answered_with_the_floor_of_its_operation() -> None:
    sample = quiet_and_loud()
    sample.about["claims"] = [
        {"article": "000", "text": "b", "ratio": 1.08, "slow": "b", "fast": "a", "operation": op,
         "payload": "S", "why": ""}
        for op in ("get", "set")
    ]  # fmt: skip
    assert [found.word for found in Analysis(sample).claims()] == ["holds", "unclear"]


def test_a_twin_without_its_other_is_no_reason_to_fail() -> None:
    sample = quiet_and_loud()
    sample.drop("a")
    sample.cell("a", "get", "S").add_phase(0, 0, Phase("get"))
    assert Analysis(sample).operation_floors == {}
