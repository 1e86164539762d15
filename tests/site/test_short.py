"""A few scenarios of the trial, each once; ``python -m tests.site`` runs all, and for longer."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.needs import need, need_package
from tests.site.scenarios import SCENARIOS, SHORT
from tests.site.servers import ROOT
from tests.site.trial import Trial
from tests.site.versions import CHANGES, sources


@pytest.fixture
def directory() -> Iterator[Path]:
    """Short: the path of a unix socket may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="nc-site-") as directory:
        yield Path(directory)


@pytest.mark.parametrize("name", SHORT)
def test_a_site_keeps_its_promises_under(name: str, directory: Path) -> None:
    scenario = SCENARIOS[name]
    need_package(scenario.server.needs)
    if scenario.store_name == "redis":
        need("redis-server")
    seed = random.randrange(1 << 32)
    report = Trial(scenario, seed, directory).run()
    log = (directory / "log").read_text(errors="replace")[-3000:]
    assert not report.violations, f"seed {seed}: {report.violations}\n{report.line()}\n{log}"
    assert report.counts["good"] > 100


def test_the_second_version_differs_from_the_first() -> None:
    made = dict(sources())  # which finds each place that it changes, once
    assert all(made[name] != (ROOT / name).read_text() for name in CHANGES)
