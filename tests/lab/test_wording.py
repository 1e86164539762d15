"""What a report says fits what was measured: no caches where there are none, one round is one."""

from __future__ import annotations

import math
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from nearcache.lab.advice.verdict import recommend
from nearcache.lab.base.messages import Phase
from nearcache.lab.base.model import NO_PAYLOAD
from nearcache.lab.checks.rules import badge
from nearcache.lab.experiments.drill.plan import DRILL
from nearcache.lab.experiments.registry import EXPERIMENTS
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.judging.claims import answer
from nearcache.lab.reports import html, markdown, tables
from nearcache.lab.reports.terminal import print_report
from nearcache.lab.results.sample import Sample
from nearcache.lab.runner.laboratory import RunOptions, new_sample, prepare

from .made import claim, experiment, sample_of, steady

WITHOUT_CACHES = (
    "pools", "keys", "disks", "stores", "objects", "hashes", "http", "drill", "warmup", "locks",
)  # fmt: skip


def printed(sample: Sample) -> str:
    console = Console(width=100, file=StringIO())
    print_report(Analysis(sample), console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def some_numbers(name: str, **about: Any) -> Sample:
    """A quick sample of this experiment: all its arms, one round, numbers out of the air."""
    order = prepare(EXPERIMENTS[name], RunOptions(plan="quick", seed=1))
    sample = new_sample(order, f"nearcache lab run {name}")
    sample.about |= {"state": "complete", "seconds": 1.0, **about}
    for place, (candidate, entry) in enumerate(sample.candidates.items()):
        entry.state = "measured"
        for operation in order.operations:
            for payload in [NO_PAYLOAD] if operation.payload_free else order.payloads:
                phase = Phase(operation.name, point=1000.0 + 100 * place, calls=1, hits=1)
                cell = sample.cell(candidate, operation.name, payload)
                cell.unit = operation.unit
                cell.add_phase(0, 0, phase)
    return sample


@pytest.mark.parametrize("name", WITHOUT_CACHES)
@pytest.mark.parametrize("steal", [0.0, 0.2])
def test_where_no_cache_is_chosen_none_is_spoken_of(name: str, steal: float) -> None:
    sample = some_numbers(name, steal_share=steal)
    advice = recommend(Analysis(sample))
    assert advice.caches_block == ""
    assert not advice.chosen
    for text in (printed(sample), markdown.render(Analysis(sample))):
        assert "cache that processes share" not in text
        assert "An average operation here is" not in text
        assert "CACHES =" not in text


def test_a_run_of_caches_that_is_void_says_so_in_every_report() -> None:
    sample = some_numbers("backends", steal_share=0.2)
    said = "This run answers nothing"
    assert said in " ".join(printed(sample).split())
    assert said in markdown.render(Analysis(sample))
    assert said in html.render(Analysis(sample))


def test_the_drill_has_no_bars_no_groups_and_no_best_where_how_it_ended_is_the_answer() -> None:
    sample = some_numbers("drill")
    sheets = {(s.operation, s.payload): s for s in tables.sheets(Analysis(sample))}
    assert not [o.name for o in DRILL.operations if o.ranked and o.name != "recovery"]
    text = printed(sample)
    assert "shorter better" not in text
    assert "can tell apart" not in text
    assert tables.row_groups(sheets["get", "none"]) == []
    assert tables.row_groups(sheets["recovery", "stopped"]) != []


def test_one_round_is_one_round_and_one_set_one_set() -> None:
    sample = some_numbers("keys")
    text = printed(sample)
    assert "1 round in 1 set of fresh processes" in text
    assert "Only 1 round fitted into the time" in text
    assert "1 set of fresh processes, 5 are wanted" in text
    assert "1 round in 1 set of" in markdown.render(Analysis(sample))
    page = html.render(Analysis(sample))
    assert "1 round in 1 set of" in page
    for wrong in ("1 rounds", "1 sets"):
        assert wrong not in text
        assert wrong not in page


def test_where_it_was_measured_is_what_the_candidates_proved() -> None:
    sample = some_numbers("http")
    for entry in sample.candidates.values():
        entry.proof = {"cores": "servers on CPU 1, generator on CPU 0"}
    sample.about["machine"] |= {"cpus_usable": 2}
    assert "Servers on CPU 1, generator on CPU 0." in " ".join(printed(sample).split())
    assert "share CPU" not in html.render(Analysis(sample))
    (check,) = [c for c in badge(Analysis(sample)) if c.number == 9]
    assert (check.status, check.text) == ("passed", "servers on CPU 1, generator on CPU 0")
    for entry in sample.candidates.values():
        entry.proof = {"cores": "shared cores"}
    (check,) = [c for c in badge(Analysis(sample)) if c.number == 9]
    assert check.status == "failed"


def claimed(**fields: Any) -> Analysis:
    costs = {"a": 1000.0, "b": 2000.0}
    asked = experiment("a", "b", claims=[claim("b", "a", fields.pop("ratio", 2.0))])
    sample = sample_of(asked, steady(costs))
    sample.about["claims"][0] |= fields
    return Analysis(sample)


def test_a_reason_is_given_only_for_the_answer_that_it_explains() -> None:
    (found,) = claimed(explains=("same", "smaller")).claims()
    assert (found.word, found.why) == ("holds", "")
    (found,) = claimed(explains=("same", "smaller"), ratio=20.0).claims()
    assert (found.word, found.why) == ("smaller", "as it was")
    (found,) = claimed().claims()
    assert found.why == "as it was"


def test_what_cannot_be_told_is_explained_by_nothing() -> None:
    analysis = claimed()
    cell = analysis.sample.cells["b", "get", "S"]
    for rounds in cell.points.values():
        rounds.update({n: v * math.exp((-1) ** n) for n, v in rounds.items()})
    found = answer(analysis, analysis.sample.about["claims"][0])
    assert (found.word, found.why) == ("unclear", "")


def test_what_voids_a_run_is_said_once_in_a_claim() -> None:
    analysis = claimed()
    analysis.sample.about["steal_share"] = 0.2
    (found,) = Analysis(analysis.sample).claims()
    assert found.word == "not measured"
    assert found.why.count("the hypervisor") == 1
    assert "as it was" not in found.why


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_the_answers_that_a_claim_explains_are_answers(name: str) -> None:
    words = {"holds", "smaller", "larger", "same", "reversed", "unclear"}
    for each in EXPERIMENTS[name].claims:
        assert words.issuperset(each.explains), each.text


def test_growth_is_in_the_chart_of_hashes_and_not_in_its_table() -> None:
    sample = some_numbers("hashes")
    for (_, operation, _), cell in sample.cells.items():
        if operation == "memory":
            phase = Phase("memory", point=70.0, calls=1)
            phase.measures = {"at 10,000 ids": (7e5, "bytes"), "dataset": (60.0, "bytes")}
            cell.add_phase(0, 1, phase)
    (sheet, *_) = [s for s in tables.sheets(Analysis(sample)) if s.operation == "memory"]
    seen = tables.measures(sheet)
    assert seen is not None
    assert seen.head == ["", "dataset, B"]
