"""Samples on disk: files, directories of runs, and the small form that is kept for good.

A path is a sample (``.json`` or ``.json.gz``) or a directory of them. Runs of one experiment
belong together and are merged; a directory may hold several experiments.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from nearcache.errors import LabError
from nearcache.lab.results.merging import merge
from nearcache.lab.results.sample import Cell, Sample, read_sample

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


def packed(sample: Sample) -> bytes:
    """The small form, for a repository. No ratio and no percentile in it is another.

    Histograms of several processes become one, as every report adds them up anyway; floats
    lose digits behind the fifth. The points of all rounds stay. Equal samples give equal bytes.
    """
    small = Sample(sample.about, sample.candidates, {k: _small(c) for k, c in sample.cells.items()})
    return gzip.compress(small.to_text(indent=None).encode(), mtime=0)


def _small(cell: Cell) -> Cell:
    return replace(
        cell,
        histograms={min(cell.histograms): cell.merged_histogram()} if cell.histograms else {},
        points=_short(cell.points),
        chopped=_short(cell.chopped),
        courses={n: replace(c, blocks=_short(c.blocks)) for n, c in cell.courses.items()},
        measures={n: replace(s, points=_short(s.points)) for n, s in cell.measures.items()},
        parts={n: replace(s, points=_short(s.points)) for n, s in cell.parts.items()},
    )


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_short(item) for item in value]
    return value
