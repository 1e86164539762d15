"""What was measured survives its file, and unlike machines are not put together."""

from __future__ import annotations

import json
import random
from pathlib import Path
from statistics import median, pstdev

import pytest

from nearcache.errors import LabError
from nearcache.lab.experiments.backends.plan import BACKENDS
from nearcache.lab.results.merging import merge
from nearcache.lab.results.sample import FORMAT, Sample, read_sample, summarize
from nearcache.lab.runner.laboratory import RunOptions, new_sample, prepare


def small_sample(seed: int = 1) -> Sample:
    """Numbers without a run: four rounds of one cell."""
    order = prepare(BACKENDS, RunOptions(plan="quick", candidates=["locmem"], seed=seed))
    sample = new_sample(order, f"nearcache lab run backends --seed {seed}")
    rng = random.Random(seed)
    cell = sample.cell("locmem", "get", "S")
    for repetition in range(2):
        for number in range(2):
            samples = [int(rng.lognormvariate(8, 1)) for _ in range(1000)]
            cell.add_round(repetition, number, samples)
            cell.calls += len(samples)
    sample.candidates["locmem"].state = "measured"
    return sample


def test_a_sample_reads_back_as_it_was_written(tmp_path: Path) -> None:
    sample = small_sample()
    sample.candidates["locmem"].stored["S"] = (122.5, "pickled size")
    sample.write(tmp_path / "run.json")
    again = read_sample(tmp_path / "run.json")
    assert again.about == json.loads(json.dumps(sample.about))
    assert again.candidates == sample.candidates
    old, new = sample.cells["locmem", "get", "S"], again.cells["locmem", "get", "S"]
    assert new.points == old.points
    assert summarize(new) == summarize(old)


def test_the_summary_agrees_with_the_samples_to_three_digits() -> None:
    cell = small_sample().cell("locmem", "set", "S")
    rng = random.Random(3)
    samples = [rng.randrange(1, 10**7) for _ in range(5000)]
    cell.add_round(0, 0, samples[:2500])
    cell.add_round(1, 0, samples[2500:])
    summary = summarize(cell)
    ordered = sorted(samples)
    assert summary.count == 5000
    assert summary.max == max(samples)
    assert summary.mean == pytest.approx(sum(samples) / 5000)
    assert summary.stdev == pytest.approx(pstdev(samples), rel=1e-6)
    assert summary.median == pytest.approx(median(samples), rel=2e-3)
    assert summary.p90 == pytest.approx(ordered[4499], rel=2e-3)
    assert summary.p99 == pytest.approx(ordered[4949], rel=2e-3)


def test_merging_adds_up_counts_and_keeps_rounds_apart() -> None:
    merged = merge([small_sample(1), small_sample(2)])
    cell = merged.cells["locmem", "get", "S"]
    assert cell.count == 8000
    assert sorted(cell.points) == [0, 1, 2, 3]
    assert sum(cell.merged_histogram().counts.values()) == 8000


@pytest.mark.parametrize("name", ["cpu_model", "kernel", "python"])
def test_unlike_machines_are_not_merged(name: str) -> None:
    other = small_sample(2)
    other.about["machine"] = {**other.about["machine"], name: "another"}
    with pytest.raises(LabError, match="unlike machines"):
        merge([small_sample(1), other])


def test_other_versions_are_not_merged() -> None:
    other = small_sample(2)
    other.about["versions"] = {**other.about["versions"], "redis": "0.1"}
    with pytest.raises(LabError, match="other versions"):
        merge([small_sample(1), other])


def test_a_file_of_another_format_is_refused_with_its_version(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(json.dumps({"format": FORMAT + 1}))
    with pytest.raises(LabError, match=f"has format {FORMAT + 1}"):
        read_sample(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', "<html>"])
def test_a_file_that_is_no_sample_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(text)
    with pytest.raises(LabError, match="is not a sample"):
        read_sample(path)
