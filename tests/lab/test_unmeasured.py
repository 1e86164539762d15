"""What is not there is said first, its twin is not counted on, and the question has no answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearcache.cli.lab.run import Done, _exit_code
from nearcache.errors import LabError
from nearcache.lab.advice.unmeasured import not_measured, unanswered
from nearcache.lab.base.messages import Phase
from nearcache.lab.experiments.objects.plan import OBJECTS
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.reports import html, markdown
from nearcache.lab.results.sample import Sample
from nearcache.lab.runner.laboratory import RunOptions, new_sample, prepare
from nearcache.lab.servers import s3
from tests.needs import need_package

from .test_wording import printed


def objects(*absent: str, state: str = "missing", **wanted: object) -> Sample:
    """A sample of ``objects`` in which these families were not there."""
    sample = new_sample(prepare(OBJECTS, RunOptions(seed=1, **wanted)), "made up")  # type: ignore[arg-type]
    sample.about |= {"state": "complete", "seconds": 1.0}
    for entry in sample.candidates.values():
        if entry.family in absent:
            entry.state, entry.install = state, "put one on the PATH"
            entry.reason = f"no {entry.family} here; put one on the PATH"
            continue
        entry.state = "measured"
        phase = Phase("get", calls=20, hits=20)
        phase.samples.extend([1000] * 20)
        sample.cell(entry.name, "get", "S").add_phase(0, 0, phase)
    return sample


def test_every_report_begins_with_what_could_not_be_measured_and_how_to_have_it() -> None:
    sample = objects("S3")
    said = (
        "Not measured: S3 (no S3 here; put one on the PATH). "
        "Without it this run does not answer its question."
    )
    assert not_measured(sample) == [said]
    assert said in " ".join(printed(sample).split())[:300]
    analysis = Analysis(sample)
    assert markdown.render(analysis).splitlines()[2] == f"**{said}**"
    page = html.render(analysis)
    assert page.index(said) < page.index("</header>")


def test_what_the_question_is_not_about_is_said_and_leaves_it_answered() -> None:
    sample = objects("Redis", state="failed")
    assert not_measured(sample) == ["Not measured: Redis (no Redis here; put one on the PATH)."]
    assert unanswered(sample) == ""


def test_what_nobody_ordered_is_not_missed() -> None:
    assert not_measured(objects("S3", candidates=["pylibmc", "redis"])) == []
    assert unanswered(objects(candidates=["pylibmc"])) == "", "one was ordered, one is there"
    assert not_measured(objects()) == []


def test_a_package_is_named_with_what_to_type() -> None:
    sample = objects("S3")
    for entry in sample.candidates.values():
        if entry.family == "S3":
            entry.reason, entry.install = "boto3 does not import", "pip install boto3"
    assert "(boto3 does not import; pip install boto3)" in not_measured(sample)[0]


def test_without_what_the_question_is_about_or_with_one_candidate_there_is_no_answer() -> None:
    assert unanswered(objects("S3")).startswith("no S3 was measured: no S3 here")
    lonely = objects("Memcached", candidates=["pylibmc", "redis"])
    assert unanswered(lonely).startswith("fewer than two of 2 candidates were measured: no Mem")


def test_being_strict_means_exit_code_1_for_a_question_without_an_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = [Done("objects", "complete", unanswered="no S3 was measured: none here")]
    assert _exit_code(done, strict=False) == 0
    assert _exit_code(done, strict=True) == 1
    assert capsys.readouterr().err == "strict: objects: no S3 was measured: none here\n"


def test_the_twin_is_of_one_that_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    need_package("boto3", "pylibmc")
    program = tmp_path / "memcached"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(s3, "BUILT_HERE", tmp_path / "none")

    def twins(**wanted: object) -> list[str | None]:
        order = prepare(OBJECTS, RunOptions(seed=1, **wanted))  # type: ignore[arg-type]
        return [c.twin_of for c in order.candidates if c.twin_of]

    assert twins() == ["pylibmc"]
    (tmp_path / "versitygw").write_bytes(program.read_bytes())
    (tmp_path / "versitygw").chmod(0o700)
    assert twins() == ["s3"]
    with pytest.raises(LabError, match="nowhere is not a program"):
        twins(binaries={"s3": "/nowhere"})
