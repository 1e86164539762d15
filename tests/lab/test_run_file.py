"""Files of runs: no two collide, none is lost because a disk is full."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nearcache.errors import LabError
from nearcache.lab.base.messages import Phase
from nearcache.lab.experiments.backends.plan import BACKENDS
from nearcache.lab.results.sample import Sample, read_sample
from nearcache.lab.runner.laboratory import RunOptions, new_sample, prepare
from nearcache.lab.runner.run_file import RESCUE, RunFile


@pytest.fixture
def sample() -> Sample:
    order = prepare(BACKENDS, RunOptions(candidates=["locmem"], payloads=["S"], operations=["get"]))
    made = new_sample(order, "made up")
    phase = Phase("get", calls=3)
    phase.samples.extend([1000, 1100, 1200])
    made.cell("locmem", "get", "S").add_phase(0, 0, phase)
    made.candidates["locmem"].state = "measured"
    return made


def test_two_runs_of_the_same_second_get_two_files(tmp_path: Path, sample: Sample) -> None:
    keepers = [RunFile(tmp_path, "backends-20250102-030405") for _ in range(3)]
    paths = [keeper.keep(sample) for keeper in keepers]
    assert len(set(paths)) == 3
    assert all(read_sample(path).has_numbers for path in paths)


def test_a_name_that_was_not_used_is_given_back(tmp_path: Path) -> None:
    RunFile(tmp_path, "x").release()
    assert not list(tmp_path.iterdir())


def test_what_was_written_is_not_given_back(tmp_path: Path, sample: Sample) -> None:
    keeper = RunFile(tmp_path, "x")
    keeper.checkpoint(sample)
    keeper.release()
    assert read_sample(tmp_path / "x.json").has_numbers


def test_a_run_whose_directory_is_gone_is_kept_elsewhere(
    tmp_path: Path, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "tmp"
    elsewhere.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    keeper = RunFile(out, "x")
    shutil.rmtree(out)
    out.write_text("a file stands where the directory was")
    keeper.checkpoint(sample)
    assert keeper.problem
    path = keeper.keep(sample)
    assert path.parent.name.startswith(RESCUE)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert read_sample(path).has_numbers
    keeper.release()


def test_a_run_that_can_be_kept_nowhere_says_where_it_was_tried(
    tmp_path: Path, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    keeper = RunFile(out, "x")
    shutil.rmtree(out)
    out.write_text("")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(LabError, match="could not be kept"):
        keeper.keep(sample)


def test_a_full_disk_leaves_no_half_file(tmp_path: Path, sample: Sample) -> None:
    keeper = RunFile(tmp_path, "x")
    (tmp_path / "x.tmp").symlink_to("/dev/full")
    keeper.checkpoint(sample)
    assert "No space left" in keeper.problem
    keeper.release()
    assert not list(tmp_path.iterdir())
