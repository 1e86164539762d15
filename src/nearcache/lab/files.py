"""Samples on disk: files, directories of runs, and the small form that is kept for good.

A path is a sample (``.json`` or ``.json.gz``) or a directory of them. Runs of one experiment
belong together and are merged; a directory may hold several experiments.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nearcache.errors import LabError
from nearcache.lab.sample import Sample, merge, read_sample

ENDINGS = (".json", ".json.gz")
DIGITS = 5  # a hundred times finer than any difference the lab calls one


def read_runs(paths: Iterable[Path]) -> dict[str, Sample]:
    """Experiment -> its sample, of all these files and directories.

    Raises:
        LabError: a file is no sample, or runs may not be put together.
    """
    found: dict[str, list[Sample]] = {}
    for path in _files(paths):
        sample = read_sample(path)
        found.setdefault(sample.about["experiment"], []).append(sample)
    return {name: merge(samples) for name, samples in found.items()}


def _files(paths: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            found.append(path)
            continue
        inside = sorted(file for file in path.iterdir() if file.name.endswith(ENDINGS))
        if not inside:
            raise LabError(
                f"{path} holds no sample: there is no .json in it; give a run's directory"
            )
        found += inside
    return found


def slim(sample: Sample) -> Sample:
    """The same sample for less: what a repository keeps. No ratio and no percentile changes.

    Histograms of several processes become one, as every report adds them up anyway, and
    floats lose digits behind the fifth. The points of all rounds stay.
    """
    for cell in sample.cells.values():
        if cell.histograms:
            cell.histograms = {min(cell.histograms): cell.merged_histogram()}
        for series in (*cell.measures.values(), *cell.parts.values()):
            series.points = _short(series.points)
        for course in cell.courses.values():
            course.blocks = _short(course.blocks)
        cell.points = _short(cell.points)
        cell.chopped = _short(cell.chopped)
    return sample


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_short(item) for item in value]
    return value
