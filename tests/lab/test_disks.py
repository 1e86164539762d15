"""The ``disks`` experiment: private directories, fio's own histograms, nothing pooled."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nearcache.errors import LabError
from nearcache.lab.base.arm import Unavailable
from nearcache.lab.base.directories import PREFIX, Mount, memory_parent, mount_of
from nearcache.lab.base.model import Plan
from nearcache.lab.experiments.disks.arm import MOST_BYTES, UnfitPath, demand_fit, describe, path_of
from nearcache.lab.experiments.disks.files import (
    FILE_COUNT,
    GET,
    OTHERS,
    WrongContent,
    get_files,
    lay_out,
    looks_live,
    put_files,
)
from nearcache.lab.experiments.disks.findings import views
from nearcache.lab.experiments.disks.fio import (
    BLOCK_BYTES,
    METADATA_FILES,
    OPERATIONS,
    FioFailed,
    Place,
    find_fio,
    job_file,
    parse,
    phase_of,
)
from nearcache.lab.experiments.disks.plan import DISKS
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.results.sample import Sample
from nearcache.lab.runner.laboratory import RunOptions, prepare
from nearcache.report.model import Table

from .conftest import need
from .made_up import fill, measured
from .test_cli import LAB, environment
from .tiny import assert_failed, candidate_of, run_of

ONE_ROUND = Plan(repetitions=1, rounds=1, phase_ms=20, time_limit_s=30)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """One round of the usual two places, and two that must be refused."""
    need("fio")
    live = tmp_path_factory.mktemp("live")
    (live / "page.djcache").touch()
    wrong = [
        candidate_of(DISKS, "disk", "live", path=str(live)),
        candidate_of(DISKS, "disk", "absent", path=str(live / "none")),
    ]
    return run_of(DISKS, ["memory", "disk"], wrong, ONE_ROUND)


def test_every_operation_is_measured_on_both(sample: Sample) -> None:
    for name in ("memory", "disk"):
        assert sample.candidates[name].state == "measured", sample.candidates[name]
        for operation in (*OPERATIONS, "get_file", "put_file"):
            cell = sample.cells[name, operation, "files"]
            assert cell.count + cell.warm_up == cell.calls > 0
            assert cell.points


def test_places_that_must_not_be_measured_are_refused_with_the_reason(sample: Sample) -> None:
    assert_failed(sample, "live", "looks like a cache in use (page.djcache)")
    assert_failed(sample, "absent", "is not a directory")


def test_where_the_numbers_come_from_is_said(sample: Sample) -> None:
    for name in ("memory", "disk"):
        entry = sample.candidates[name]
        parent = path_of(entry.options)
        assert entry.facts["file system"] == mount_of(parent).filesystem
        assert entry.facts["device"].startswith(f"{os.major(parent.stat().st_dev)}:")
        assert entry.proof["fio"][0].isdigit()


def test_nothing_is_left_where_it_worked(sample: Sample) -> None:
    for name in ("memory", "disk"):
        left = path_of(sample.candidates[name].options).glob(f"{PREFIX}*-*/{GET}")
        mine = [path for path in left if path.parent.name.split("-")[2] == str(os.getpid())]
        assert not mine


@pytest.fixture
def directory() -> Iterator[Path]:
    """Where an fsync is free."""
    with tempfile.TemporaryDirectory(dir=memory_parent()) as name:
        yield Path(name)


@pytest.fixture
def laid_out(directory: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The small files in ``directory``; what fio reads from end to end is not needed here."""
    monkeypatch.setattr("nearcache.lab.experiments.disks.files.OTHERS", {})
    return lay_out(directory, seed=1)


def test_no_more_room_is_taken_than_is_said(directory: Path, laid_out: list[str]) -> None:
    taken = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    metadata = 2 * METADATA_FILES * BLOCK_BYTES
    assert taken + sum(OTHERS.values()) + metadata < MOST_BYTES


def test_the_files_have_the_sizes_of_a_cache(directory: Path, laid_out: list[str]) -> None:
    sizes = sorted((directory / GET / name).stat().st_size for name in laid_out)
    assert len(sizes) == FILE_COUNT
    assert sizes[FILE_COUNT // 3] == 4096
    assert sizes[-1] > 60_000
    assert all(size % BLOCK_BYTES == 0 for size in sizes), "O_DIRECT reads whole blocks"


def test_fio_can_read_the_job_file(directory: Path, laid_out: list[str]) -> None:
    text = job_file(Place(directory, laid_out, direct=True), OPERATIONS, 100, 1)
    # It takes no longer line, and drops the job.
    assert max(map(len, text.splitlines())) < 4096
    assert text.count("stonewall") == len(OPERATIONS), "one after the other"


def test_a_damaged_file_ends_the_run(directory: Path, laid_out: list[str]) -> None:
    for name in laid_out:
        path = directory / GET / name
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(WrongContent, match="is damaged"):
        get_files(directory, laid_out, random.Random(1), budget_ns=10**6)


def test_puts_replace_whole_files_and_leave_none_beside(
    directory: Path, laid_out: list[str]
) -> None:
    phase = put_files(directory, laid_out, random.Random(1), budget_ns=10**6)
    assert phase.hits == phase.calls > 0
    assert not list(directory.rglob("*.new"))


@pytest.mark.parametrize("live", ["a/1f/" + "0" * 29 + "1fa", "cache.db", "00/17/x.val"])
def test_caches_in_use_are_known_by_their_files(tmp_path: Path, live: str) -> None:
    assert looks_live(tmp_path) == ""
    (tmp_path / live).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / live).touch()
    assert looks_live(tmp_path) == live


def test_a_full_disk_is_not_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = os.statvfs(tmp_path)
    # Twice what there is: others may make room meanwhile.
    room = 2 * (1 + usage.f_bavail * usage.f_frsize // MOST_BYTES)
    monkeypatch.setattr("nearcache.lab.experiments.disks.arm.ROOM", room)
    with pytest.raises(UnfitPath, match="MiB are wanted"):
        demand_fit(tmp_path)


def test_uncached_reads_are_called_what_they_are() -> None:
    memory = Mount("/dev/shm", "tmpfs", "tmpfs", "rw", 27)
    disk = Mount("/", "ext4", "/dev/vda", "rw", 65024)
    assert "memory" in describe(memory, direct=False)["uncached reads"]
    assert describe(disk, direct=True)["uncached reads"] == "O_DIRECT"
    assert "O_DIRECT is not possible" in describe(disk, direct=False)["uncached reads"]


def job(name: str, **more: Any) -> dict[str, Any]:
    nothing: dict[str, Any] = {"clat_ns": {}, "io_bytes": 0, "runtime": 0}
    return {
        "jobname": name, "error": 0, "read": nothing, "write": nothing, "trim": nothing,
        "sync": {"lat_ns": {}}, **more,
    }  # fmt: skip


def test_fios_bins_become_a_histogram_and_a_median() -> None:
    read = {"clat_ns": {"bins": {"1000": 60, "2000": 39, "90000": 1}}, "io_bytes": 0, "runtime": 1}
    phase = phase_of(job("read_cached", read=read))
    assert phase.calls == 100
    assert phase.point == 1000
    synced = phase_of(job("fsync", sync={"lat_ns": {"bins": {"500": 3}}}, write=read))
    assert synced.calls == 3, "the fsyncs, not the writes before them"


def test_a_job_that_did_nothing_or_failed_is_no_result(tmp_path: Path) -> None:
    with pytest.raises(FioFailed, match="did nothing"):
        phase_of(job("stat"))
    answer = tmp_path / "answer"
    answer.write_text("fio: a warning\n" + json.dumps({"jobs": [job("stat") | {"error": 28}]}))
    with pytest.raises(FioFailed, match=r"stat failed \(28\): no room"):
        parse(answer, "no room\n")
    answer.write_text("nothing of the kind")
    with pytest.raises(FioFailed, match="no JSON: it said nothing"):
        parse(answer, "")


@pytest.mark.parametrize("said", ["", "echo fio-3.28"])
def test_without_a_fio_that_is_new_enough_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    if said:
        (tmp_path / "fio").write_text(f"#!/bin/sh\n{said}\n")
        (tmp_path / "fio").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable) as caught:
        find_fio()
    assert caught.value.install == "apt install fio"


def test_paths_of_the_user_take_the_place_of_the_usual_ones(tmp_path: Path) -> None:
    paths = [tmp_path, Path("/dev/shm"), tmp_path]
    order = prepare(DISKS, RunOptions(plan="quick", paths=paths))
    names = [str(tmp_path.resolve()), "/dev/shm"]
    assert [c.name for c in order.candidates if not c.twin_of] == names
    assert order.experiment.baseline == names[0]
    assert [c.twin_of for c in order.candidates if c.twin_of] == [names[1]]


def test_a_path_that_is_not_there_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="none is not a directory; make it"):
        prepare(DISKS, RunOptions(plan="quick", paths=[tmp_path / "none"]))


def test_an_interrupted_run_takes_its_files_away(
    tmp_path: Path, eventually: Callable[..., None]
) -> None:
    need("fio")
    place = tmp_path / "place"
    place.mkdir()
    words = ["run", "disks", "--quick", "--candidates", "disk", "--operations", "get_file,fsync"]
    process = subprocess.Popen(
        [*LAB, *words, "--out", str(tmp_path / "out")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**environment(), "TMPDIR": str(place)},
    )
    try:
        eventually(lambda: list(place.glob(f"{PREFIX}*/lab.fio")), 40)
        process.send_signal(signal.SIGINT)
        process.wait(30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert not list(place.iterdir())


def made_up(ratios: dict[str, float], **facts: str) -> Analysis:
    sample = measured(replace(DISKS, claims=()))
    for operation, ratio in ratios.items():
        fill(sample, {"memory": 10_000.0, "disk": 10_000.0 * ratio}, operation, "files")
    for name in ("memory", "disk"):
        sample.candidates[name].facts = {"device": name, "uncached reads": "O_DIRECT", **facts}
    return Analysis(sample)


def test_operations_are_told_apart_and_never_pooled() -> None:
    found = views(made_up({"get_file": 1.0, "fsync": 40.0, "sequential_uncached": 10.0}))
    (table,) = [p for p in found.parts if isinstance(p, Table) and "How many times" in p.title]
    rows = {row[0]: row[1] for row in table.rows}
    assert rows["get_file"] == "the same"
    assert rows["fsync"].startswith(("39", "40", "41"))
    assert any(
        "at get_file they do not differ beyond the noise" in sentence
        for sentence in found.sentences
    )
    assert "average" not in " ".join(found.sentences)


def test_two_paths_on_one_device_are_called_that() -> None:
    found = views(made_up({"get_file": 1.2}, device="8:1"))
    assert found.sentences[0].startswith("memory and disk lie on the same file system (device 8:1)")
    assert not any("same file system" in s for s in views(made_up({"get_file": 1.2})).sentences)


def test_the_page_cache_is_named_where_it_answers() -> None:
    found = views(made_up({"read_cached": 1.0, "read_uncached": 50.0}))
    (sentence,) = [s for s in found.sentences if "page cache answers" in s]
    assert "no different beyond the noise when the page cache answers" in sentence
    assert "and that is memory" in sentence
