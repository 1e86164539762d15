"""``lab run --strict``, the overhead in the report, and two labs at once: from the command line."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from nearcache.lab.checks.rules import voided
from nearcache.lab.results.sample import read_sample

from .conftest import need
from .test_cli import LAB, environment, lab, left_behind

SHORT = ["--quick", "--payloads", "S", "--operations", "get,set"]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose only cache keeps nothing: it fails every check, and fast."""
    (tmp_path / "strictshop.py").write_text(
        "SECRET_KEY = 'x'\n"
        "CACHES = {'default': {'BACKEND': 'django.core.cache.backends.dummy.DummyCache'}}\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_broken_rule_that_voids_is_exit_code_1_if_asked_and_the_files_stay(shop: Path) -> None:
    words = ["run", "backends", *SHORT, "--settings", "strictshop", "--out", str(shop / "out")]
    strict = lab(*words, "--strict")
    assert strict.returncode == 1, strict.stderr
    assert re.search(r"strict: backends: .* is broken: ", strict.stderr)
    assert "Traceback" not in strict.stderr
    assert sorted(path.suffix for path in (shop / "out").iterdir()) == [".html", ".json"]
    (path,) = (shop / "out").glob("*.json")
    assert any(finding.candidate == "default" for finding in voided(read_sample(path)))


def test_without_being_strict_the_same_run_ends_well_and_says_what_is_broken(shop: Path) -> None:
    words = ["run", "backends", *SHORT, "--settings", "strictshop", "--out", str(shop / "out")]
    result = lab(*words)
    assert result.returncode == 0, result.stderr
    said = " ".join(result.stdout.split())
    assert "VOID: every candidate does what was asked: default: " in said
    # What the lab itself costs is in every report, and in its file.
    assert "the lab's own loop costs" in said
    (path,) = (shop / "out").glob("*.json")
    assert read_sample(path).about["overhead"]["call_ns"] > 0


def test_two_labs_at_once_do_not_meet(tmp_path: Path) -> None:
    need("redis-server")
    runs = [
        subprocess.Popen(
            [*LAB, "run", "backends", *SHORT, "--time-limit", "4", "--candidates",
             "redis-python-tcp", "--seed", "5", "--out", str(tmp_path / name)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment(),
        )
        for name in ("one", "two")
    ]  # fmt: skip
    for process in runs:
        _, said = process.communicate()
        assert process.returncode == 0, said
        assert not left_behind(process.pid)
    for name in ("one", "two"):
        (path,) = (tmp_path / name).glob("*.json")
        sample = read_sample(path)
        for candidate in ("locmem", "redis-python-tcp"):
            entry = sample.candidates[candidate]
            assert entry.state == "measured", entry.reason
