"""Faults of servers, machines and the lab itself, planted under the real driver.

Those of caches are in test_planted_faults.py. Here every value may be right and the run still
not worth believing.
"""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from nearcache.lab.arms.candidates import CANDIDATES, LOCMEM, choose
from nearcache.lab.base.model import Candidate, Experiment, Plan
from nearcache.lab.checks.rules import badge, examine
from nearcache.lab.experiments.backends.plan import BACKENDS
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.results.sample import Sample
from nearcache.lab.runner.driver import measure
from nearcache.lab.runner.laboratory import RunOptions, new_sample, prepare

from .conftest import Silent, need

# No limit that a slow machine meets: it would leave rounds out.
SHORT = Plan(repetitions=1, rounds=2, phase_ms=1, time_limit_s=3600)
REDIS = "redis-python-unix"


class KillsRedis(Silent):
    """Kills the redis-server of this run when its second round begins; no other test's."""

    def __init__(self) -> None:
        self.others = set(children(os.getpid()))

    def round(self, number: int, of: int, visits: int) -> None:
        if number == 2:
            for pid in set(children(os.getpid())) - self.others:
                if "redis-server" in text_of(Path(f"/proc/{pid}/cmdline")):
                    os.kill(pid, signal.SIGKILL)


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in text_of(task).split()]


def text_of(path: Path) -> str:
    """Of a file of the kernel; nothing if its thread or process has ended since it was listed."""
    with suppress(OSError):
        return path.read_text()
    return ""


def run(
    candidates: Sequence[Candidate],
    plan: Plan = SHORT,
    operations: Sequence[str] = ("get", "set"),
    payloads: Sequence[str] = ("S",),
    progress: Silent | None = None,
    binaries: dict[str, str] | None = None,
    **changes: object,
) -> Sample:
    """A real run of the first candidate as the baseline, and the others beside it."""
    first = candidates[0].name
    asked: Experiment = replace(
        BACKENDS, candidates=candidates, baseline=first, twins=(first,), plans={"short": plan},
        contrasts={}, **changes,
    )  # fmt: skip
    wanted = RunOptions(
        plan="short", operations=operations, payloads=payloads, seed=3, binaries=binaries or {}
    )
    order = prepare(asked, wanted)
    sample = new_sample(order, "a test")
    assert measure(order, sample, progress or Silent(), lambda sample: None) is None
    return sample


def redis(**changes: object) -> Candidate:
    need("redis-server")
    (found,) = choose(CANDIDATES, [REDIS])
    return replace(found, **changes)


def of_rule(sample: Sample, rule: str) -> list[str]:
    return [str(finding) for finding in examine(sample) if finding.rule == rule]


def test_a_server_that_drops_sets_in_silence_gets_no_number(tmp_path: Path) -> None:
    """It says OK to every set, and evicts what it has no room for."""
    need("redis-server")
    script = tmp_path / "redis-server"
    script.write_text(
        '#!/bin/sh\nexec redis-server "$@" --maxmemory 1400kb --maxmemory-policy allkeys-random\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    sample = run([LOCMEM, redis()], payloads=["H"], binaries={"redis": str(script)})
    entry = sample.candidates[REDIS]
    assert entry.state == "failed"
    assert "keys of payload H are not there right after they were set" in entry.reason
    assert not [key for key in sample.cells if key[0] == REDIS]
    assert any(REDIS in text for text in of_rule(sample, "every candidate does what was asked"))
    assert sample.candidates["locmem"].state == "measured"


def test_an_alias_that_answers_from_anothers_database_is_found_out() -> None:
    backend = "tests.lab.faulty.AnswersFromAnotherDatabase"
    fine = redis()
    sample = run(
        [fine, replace(fine, name="astray", settings={**fine.settings, "BACKEND": backend})]
    )
    assert sample.candidates["astray"].state == "failed"
    assert "what it stores is not at unix://" in sample.candidates["astray"].reason
    assert sample.candidates[REDIS].state == "measured"


def test_a_machine_that_drifts_voids_the_run() -> None:
    settings = {**LOCMEM.settings, "BACKEND": "tests.lab.faulty.GetsSlower"}
    plan = replace(SHORT, rounds=8, phase_ms=0.2)
    slower = replace(LOCMEM, name="slower", settings=settings)
    sample = run([slower, LOCMEM], plan, operations=["get"])
    (text,) = of_rule(sample, "the machine does not drift")
    assert text.startswith("slower and its twin took +")
    analysis = Analysis(sample)
    assert analysis.ranking == []
    assert all("drifted" in row.void for row in analysis.rows("get", "S"))


def test_a_generator_that_cannot_keep_up_voids_what_it_measured_and_nothing_else() -> None:
    plan = replace(SHORT, rounds=2, phase_ms=5)
    operations = ["get", "get_at_50"]
    late = "tests.lab.faulty.LateGenerator"
    sample = run([LOCMEM, replace(LOCMEM, name="other")], plan, operations, arm=late)
    found = [f for f in examine(sample) if f.rule == "the generator keeps up"]
    assert {finding.operation for finding in found} == {"get_at_50"}
    assert {finding.candidate for finding in found} >= {"locmem", "other"}
    assert "began late though their turn had come" in found[0].text
    analysis = Analysis(sample)
    assert all(row.void for row in analysis.rows("get_at_50", "-"))
    assert not any("began late" in row.void for row in analysis.rows("get", "S"))


def test_all_are_offered_the_same_load_below_the_lowest_capacity() -> None:
    plan = replace(SHORT, rounds=1, phase_ms=5)
    operations = ["get", "get_at_30", "get_at_90"]
    files = choose(CANDIDATES, ["filebased"])[0]
    sample = run([LOCMEM, files], plan, operations)
    rates = {
        name: {
            sample.cells[who, name, "-"].measures["offered_rate"].median
            for who in ("locmem", "filebased", "locmem (twin)")
        }
        for name in operations[1:]
    }
    assert all(len(found) == 1 for found in rates.values())
    assert rates["get_at_90"].pop() == pytest.approx(3 * rates["get_at_30"].pop())
    assert not of_rule(sample, "all get the same load")


def test_a_server_killed_midway_takes_its_candidates_with_it_and_no_other() -> None:
    plan = replace(SHORT, rounds=3)
    sample = run([LOCMEM, redis()], plan, progress=KillsRedis())
    for name in (REDIS, f"{REDIS} (twin)"):
        if name in sample.candidates:
            assert sample.candidates[name].state == "failed"
            assert "Connection" in sample.candidates[name].reason
            assert not [key for key in sample.cells if key[0] == name]
    assert len(sample.cells["locmem", "get", "S"].points[0]) == 3
    assert any(REDIS in text for text in of_rule(sample, "every candidate does what was asked"))


def test_a_treatment_that_changes_between_processes_voids_its_candidate() -> None:
    plan = replace(SHORT, repetitions=2, rounds=1)
    sample = run([LOCMEM], plan, arm="tests.lab.faulty.ForgetsItsParser")
    (text, *_) = of_rule(sample, "the treatment is proven")
    assert "parser was hiredis in one process, python in another" in text


def test_a_cache_whose_values_do_not_expire_is_found_out() -> None:
    settings = {**LOCMEM.settings, "BACKEND": "tests.lab.faulty.NeverForgets"}
    never = replace(LOCMEM, name="never", settings=settings)
    plan = replace(SHORT, rounds=1)
    sample = run([LOCMEM, never], plan, arm="tests.lab.faulty.TakesItsTime")
    assert sample.candidates["never"].state == "failed"
    assert "a value stored for 1 s still answers after" in sample.candidates["never"].reason
    assert sample.candidates["locmem"].facts["expiry"].startswith("a value stored for 1 s was gone")


def test_an_honest_run_keeps_what_it_can_and_its_evidence_is_in_the_sample() -> None:
    sample = run([LOCMEM, redis()])
    checks = {check.name: check for check in badge(Analysis(sample))}
    for name in (
        "every answer is verified",
        "keys stored are keys sent",
        "calls attempted are calls recorded",
        "hits, misses and errors are apart",
        "rounds are interleaved at random",
        "the treatment is proven",
        "versions are the same throughout",
    ):
        assert checks[name].status == "passed", checks[name]
    assert checks["fresh processes"].status == "failed", "one repetition is not five"
    assert "ns a call" in checks["the lab itself costs little"].text
    assert sample.about["order"]["visits"] == 8  # four candidates, two rounds


def test_the_same_seed_gives_the_same_order() -> None:
    first, second = (run([LOCMEM, replace(LOCMEM, name="other")]) for _ in range(2))
    assert first.about["order"] == second.about["order"]
