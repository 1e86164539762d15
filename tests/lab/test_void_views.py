"""Numbers that are void are compared with nothing, by no experiment's own views either."""

from __future__ import annotations

import random
import re
from importlib import import_module

import pytest

from nearcache.lab.advice.verdict import void_run
from nearcache.lab.base.messages import Phase
from nearcache.lab.base.model import NO_PAYLOAD
from nearcache.lab.experiments.registry import EXPERIMENTS
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.judging.reading import cell_of, compared, point_of
from nearcache.lab.reports import html, markdown
from nearcache.lab.reports.parts import views_of
from nearcache.lab.results.sample import Sample
from nearcache.lab.runner.laboratory import RunOptions, new_sample, prepare
from nearcache.lab.views import Views
from nearcache.report.model import Chart, Table

from .test_wording import printed

WITH_VIEWS = [name for name, experiment in EXPERIMENTS.items() if experiment.views]
COMPARES = re.compile(
    r"times (the time|as fast|a later|less)|fastest|first with|most (answers|requests)"
    r"|\bsame as|as long as|no different|not told apart|slower|faster|cannot tell"
    r"|no backend lied|next is",
    re.IGNORECASE,
)
MEASURES = {"offered_rate": (1000.0, "1/s"), "service_time": (900.0, "ns"), "entries": (9.0, "")}
STEP = 3  # each candidate takes so many times what the one before takes


def everything(name: str, steal: float) -> Sample:
    """A sample of this experiment in which all did everything, each at its own speed."""
    experiment = EXPERIMENTS[name]
    sample = new_sample(prepare(experiment, RunOptions(seed=1)), f"nearcache lab run {name}")
    sample.about |= {"state": "complete", "seconds": 3.0, "steal_share": steal}
    rng = random.Random(4)
    for number, entry in enumerate(sample.candidates.values()):
        entry.state = "measured"
        for operation in experiment.operations:
            payloads = [NO_PAYLOAD] if operation.payload_free else sample.about["payloads"]
            for payload in payloads:
                cell = sample.cell(entry.name, operation.name, payload)
                for place in range(4):
                    cost = 1000 * STEP ** (number % 9) * rng.uniform(0.99, 1.01)
                    phase = Phase(operation.name, calls=20, hits=20, outcomes={"silent miss": 1})
                    phase.samples.extend([int(cost)] * 20)
                    phase.measures |= MEASURES
                    cell.add_phase(place // 2, place % 2, phase)
    return sample


def own_views(analysis: Analysis) -> Views:
    found = import_module(EXPERIMENTS[analysis.sample.about["experiment"]].views).views(analysis)
    assert isinstance(found, Views)
    return found


def compares(views: Views) -> list[str]:
    """Its sentences that compare, the titles of its tables with ratios, and drawn curves."""
    found = [sentence for sentence in views.sentences if COMPARES.search(sentence)]
    for part in views.parts:
        if isinstance(part, Chart):
            found += [f"{part.title}: {line.name}" for line in part.lines if line.points]
        if isinstance(part, Table):
            cells = [cell for row in part.rows for cell in row[1:]]
            found += [part.title for cell in cells if re.search(r"\d\u2013\d|\bsame\b", cell)]
    return found


@pytest.mark.parametrize("name", WITH_VIEWS)
def test_a_void_run_has_one_sentence_and_no_comparison(name: str) -> None:
    sample = everything(name, steal=0.2)
    analysis = Analysis(sample)
    assert analysis.void_run
    assert compares(own_views(analysis)) == []
    assert views_of(analysis) == Views()
    (sentence,) = void_run(analysis)
    assert sentence.startswith("This run answers nothing: the hypervisor")


@pytest.mark.parametrize("name", ["disks", "backends"])  # without a recommendation, and with one
def test_every_report_begins_with_why_nothing_is_answered_and_says_it_once(name: str) -> None:
    sample = everything(name, steal=0.2)
    analysis = Analysis(sample)
    said = " ".join(printed(sample).split())
    assert "This run answers nothing: the hypervisor" in said[:400]
    text = markdown.render(analysis)
    assert text.splitlines()[2].startswith("**This run answers nothing")
    page = html.render(analysis)
    assert page.index("This run answers nothing") < page.index("</header>")
    for report in (said, text, page):
        assert report.count("This run answers nothing") == 1


def test_the_same_samples_compare_where_they_are_not_void() -> None:
    for name in ("codecs", "disks", "stores", "pools", "keys"):
        assert compares(own_views(Analysis(everything(name, 0.0)))), name


def test_what_is_void_has_no_cell_no_point_and_is_compared_with_nothing() -> None:
    sample = everything("disks", 0.0)
    a, b = list(sample.candidates)[:2]
    payload = next(iter(sample.about["payloads"]))
    operation = next(iter(sample.about["operations"]))
    assert compared(Analysis(sample), a, b, operation, payload)
    sample.cells[a, operation, payload].calls += 50  # calls that nobody recorded
    analysis = Analysis(sample)
    assert analysis.void(a, operation, payload)
    assert cell_of(analysis, a, operation, payload) is None
    assert point_of(analysis, a, operation, payload) is None
    assert compared(analysis, a, b, operation, payload) is None
    assert compared(analysis, b, a, operation, payload) is None
    assert cell_of(analysis, b, operation, payload) is not None
