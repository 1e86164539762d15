"""A lab small enough for tests: the same driver, real servers, seconds instead of minutes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from nearcache.lab.base.model import Candidate, Plan
from nearcache.lab.experiments.backends.plan import BACKENDS
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.reports.terminal import print_report
from nearcache.lab.results.machine import pressure
from nearcache.lab.results.sample import Sample
from nearcache.lab.runner import driver
from nearcache.lab.runner.driver import measure
from nearcache.lab.runner.laboratory import RunOptions, new_sample, prepare
from tests.needs import need

TINY = Plan(repetitions=1, rounds=2, phase_ms=0.3, time_limit_s=30)

RunTiny = Callable[..., Sample]


@pytest.fixture(scope="session", autouse=True)
def time_is_not_stolen() -> Iterator[None]:
    """Whatever the host of this machine does: what it voids is tested in test_stolen.py."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "pressure", undisturbed)
        yield


def undisturbed() -> dict[str, float]:
    """What the kernel says of this machine, but for the time that its host took away."""
    return {name: 0 if name.endswith("ticks") else value for name, value in pressure().items()}


def calm(sample: Sample) -> Analysis:
    """The analysis of a run of seconds, even if the machine was too unsteady for any."""
    analysis = Analysis(sample)
    analysis.void_run = []
    return analysis


def report_if_calm(sample: Sample) -> str:
    """What the terminal would show, had the machine not voided the run."""
    console = Console(record=True, width=100, file=StringIO())
    print_report(calm(sample), console)
    return console.export_text()


class Silent:
    def repetition(self, number: int, of: int) -> None: ...
    def round(self, number: int, of: int, visits: int) -> None: ...
    def step(self, what: str) -> None: ...


def make_run_tiny() -> RunTiny:
    """A function that measures these candidates (and the baseline) for a moment."""

    def run(candidates: Sequence[Candidate], payloads: Sequence[str] = ("S",)) -> Sample:
        known = [BACKENDS.candidates[0], *(c for c in candidates if c.name != BACKENDS.baseline)]
        experiment = replace(BACKENDS, candidates=known, plans={"tiny": TINY})
        order = prepare(experiment, RunOptions(plan="tiny", payloads=payloads, seed=7))
        sample = new_sample(order, "a test")
        measure(order, sample, Silent(), lambda sample: None)
        return sample

    return run


@pytest.fixture
def run_tiny() -> RunTiny:
    return make_run_tiny()


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory for servers: the path of a unix socket may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="nc-") as name:
        yield Path(name)


@pytest.fixture
def redis_server() -> None:
    need("redis-server")


@pytest.fixture
def memcached() -> None:
    need("memcached")
