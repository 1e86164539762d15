"""Several experiments in one run: none takes another with it, and a summary says what became."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nearcache.lab.experiments.backends.plan import BACKENDS
from nearcache.lab.experiments.registry import EXPERIMENTS
from nearcache.lab.results.sample import read_sample
from nearcache.lab.runner.laboratory import RunOptions, planned, prepare, takes

from .test_cli import environment, lab

TINY = [sys.executable, "-m", "tests.lab.tiny_lab", "run"]


def started(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*TINY, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def run_of(out: Path) -> Path:
    (directory,) = out.iterdir()
    return directory


def test_two_experiments_have_a_directory_of_their_own_and_a_summary(tmp_path: Path) -> None:
    process = started("one", "two", "--seed", "3", "--out", str(tmp_path))
    said, complained = process.communicate()
    assert process.returncode == 0, complained
    directory = run_of(tmp_path)
    assert directory.name.endswith("-seed3")
    names = sorted(re.sub(r"-\d.*", "", path.name) for path in directory.glob("*.json"))
    assert names == ["one", "two"]
    summary = said.rpartition("=== 2 experiments")[2]
    for name in names:
        assert re.search(rf"^{name}\s+\d+ s  complete  {directory}", summary, re.MULTILINE)


def test_one_that_cannot_be_run_does_not_lose_the_others(tmp_path: Path) -> None:
    process = started("broken", "two", "--redis-server", "/bin/false", "--out", str(tmp_path))
    said, complained = process.communicate()
    assert process.returncode == 2
    assert "broken failed: /bin/false did not start" in complained
    (path,) = run_of(tmp_path).glob("*.json")
    assert path.name.startswith("two")
    assert read_sample(path).has_numbers
    assert re.search(r"^broken\s+\d+ s  failed: /bin/false", said, re.MULTILINE)


def test_all_runs_all_but_what_needs_a_recording(tmp_path: Path) -> None:
    process = started("--all", "--candidates", "locmem", "--out", str(tmp_path))
    said, complained = process.communicate()
    assert process.returncode == 0, complained
    assert "=== 3 experiments" in said
    assert len(list(run_of(tmp_path).glob("*.json"))) == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_keeps_what_was_finished_and_says_what_was_not_run(
    number: signal.Signals, tmp_path: Path
) -> None:
    process = started("one", "long", "--out", str(tmp_path))
    with process:
        assert process.stdout is not None
        # Between the two: the first has told where its file is.
        while not process.stdout.readline().startswith("page"):
            assert process.poll() is None, "the run ended before the signal"
        process.send_signal(number)
        said = process.stdout.read()
    assert process.returncode == 128 + number
    assert re.search(r"^one\s+\d+ s  complete", said, re.MULTILINE)
    assert re.search(r"^long\s+\d+ s  (not run|interrupted)", said, re.MULTILINE)
    (path,) = run_of(tmp_path).glob("one*.json")
    assert read_sample(path).about["state"] == "complete"


def test_two_labs_at_once_do_not_collide(tmp_path: Path) -> None:
    processes = [started("two", "--out", str(tmp_path)) for _ in range(2)]
    said = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    paths = list(tmp_path.glob("*.json"))
    assert len(paths) == 2
    assert all(read_sample(path).about["state"] == "complete" for path in paths)
    assert len(list(tmp_path.glob("*.html"))) == 2


def test_a_time_limit_scales_the_plan_and_leaves_at_least_one_round() -> None:
    plan = BACKENDS.plans["full"]
    short = planned(BACKENDS, RunOptions(time_limit_s=plan.time_limit_s / 10))
    assert short.time_limit_s == plan.time_limit_s / 10
    assert short.repetitions == 1
    assert short.rounds == plan.rounds
    longer = planned(BACKENDS, RunOptions(time_limit_s=plan.time_limit_s * 2))
    assert longer.repetitions == plan.repetitions
    assert longer.rounds == 2 * plan.rounds


def test_every_experiment_can_be_prepared_as_it_is() -> None:
    for experiment in EXPERIMENTS.values():
        for name in experiment.plans:
            assert prepare(experiment, RunOptions(plan=name)).candidates
        assert takes(experiment, "takes_own_aliases") in (True, False)


def test_the_drill_takes_no_cache_of_the_user_s() -> None:
    """It stops servers."""
    if "drill" in EXPERIMENTS:
        assert not takes(EXPERIMENTS["drill"], "takes_own_aliases")


def test_an_experiment_that_takes_no_cache_is_named_before_anything_runs(
    tmp_path: Path,
) -> None:
    result = lab(
        "run", "keys", "backends", "--quick", "--settings", "tests.settings", "--out",
        str(tmp_path / "out"),
    )  # fmt: skip
    assert result.returncode == 2
    assert "keys measures none of your caches" in result.stderr
    assert not (tmp_path / "out").exists()
