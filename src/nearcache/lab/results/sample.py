"""What one run measured, and its file. Written by the driver, read by the reports.

The file is JSON, version ``FORMAT``; docs/lab-format.md describes it:

    format, experiment, question, started, seconds, command, seed, state
    machine, versions, servers, load_before, steal_share, cpu
    and where the run got so far: order, overhead, swapped_pages, versions_after, changed
    plan, mix, baseline, operations, payloads, contrasts, claims, cannot_answer
    candidates   name -> what it is, its proof, and why it is out if it is
    cells        one per candidate, operation and payload: counts, raw histograms (one
                 per repetition, HdrHistogram V2 compressed, base64, 3 digits), exact extremes
                 and sums, the point of every round (its median unless the operation says
                 otherwise), and what else was seen in it: outcomes, measures, parts

History: 1, the first version. 2, operations have units; outcomes, measures, parts, facts.

Samples of one experiment on one machine may be merged: see merging.py.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any

from nearcache.errors import LabError
from nearcache.lab.base.messages import Phase
from nearcache.lab.results.distribution import Distribution
from nearcache.lab.results.histogram import Histogram, decoded
from nearcache.lab.statistics.stats import at_share, warm_up_count

FORMAT = 2
PLAIN_FIELDS = frozenset(
    {
        "experiment",
        "question",
        "started",
        "seconds",
        "command",
        "seed",
        "state",
        "machine",
        "versions",
        "servers",
        "load_before",
        "steal_share",
        "cpu",
        "plan",
        "mix",
        "baseline",
        "operations",
        "payloads",
        "contrasts",
        "claims",
        "cannot_answer",
    }
)
MINUTE = 1e-9  # points are compared by their ratios, so none may be zero
CHOPS = (0, 1, 10)  # to compare with: what other benchmarks leave out
COURSE_BLOCKS = 60
COUNTS = ("calls", "hits", "misses", "errors", "refused")


# repetition -> round -> value
Points = dict[int, dict[int, float]]


@dataclass
class Series:
    """One secondary number, round by round. Shown, never ranked."""

    unit: str
    points: Points = field(default_factory=dict)

    def add(self, repetition: int, number: int, value: float) -> None:
        self.points.setdefault(repetition, {})[number] = value

    @property
    def median(self) -> float:
        return median(value for rounds in self.points.values() for value in rounds.values())


@dataclass
class Course:
    """How one round went: medians of equal blocks of its samples, in order.

    ``cut`` is the number of blocks at the start that were left out as warm-up.
    """

    blocks: list[float]
    cut: float

    @classmethod
    def of(cls, samples: Sequence[int], warm_up: int) -> Course:
        size = -(-len(samples) // COURSE_BLOCKS)
        starts = range(0, len(samples), size)
        return cls([float(median(samples[i : i + size])) for i in starts], warm_up / size)


@dataclass
class Cell:
    """One candidate doing one operation on one payload. Costs are in ``unit``."""

    candidate: str
    operation: str
    payload: str
    unit: str = "ns"
    batch: int = 1
    calls: int = 0
    hits: int = 0
    misses: int = 0
    errors: int = 0
    refused: int = 0
    recorded: int = 0  # calls that samples stand for, the warm-up among them
    warm_up: int = 0  # samples left out at the start of rounds
    count: int = 0  # samples kept
    sum: int = 0
    sum_squares: int = 0
    min: int = 0
    max: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)  # ways to end without an answer
    histograms: dict[int, Histogram] = field(default_factory=dict)  # by repetition
    points: Points = field(default_factory=dict)  # what each round counts as
    # The same points had another number of samples been left out: "0", "1", "10" -> points.
    chopped: dict[str, Points] = field(default_factory=dict)
    courses: dict[int, Course] = field(default_factory=dict)  # repetition -> its first round
    measures: dict[str, Series] = field(default_factory=dict)
    parts: dict[str, Series] = field(default_factory=dict)  # where the time goes, ns

    def add_phase(
        self, repetition: int, number: int, phase: Phase, *, refused: bool = False
    ) -> None:
        """Take in one round. Warm-up is found here and left out."""
        self.batch = phase.batch
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(phase, name))
        for outcome, times in phase.outcomes.items():
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + times
        for name, (value, unit) in phase.measures.items():
            self.measures.setdefault(name, Series(unit)).add(repetition, number, value)
        for part, value in phase.parts.items():
            self.parts.setdefault(part, Series("ns")).add(repetition, number, value)
        self.recorded += _calls_recorded(phase)
        if refused:
            return  # how fast a store says no is not how fast it stores
        warm_up = warm_up_count(phase.samples)
        self.warm_up += warm_up
        if phase.samples:
            self.add_round(repetition, number, phase.samples[warm_up:])
            self._add_chopped(repetition, number, phase.samples)
            if repetition not in self.courses:
                self.courses[repetition] = Course.of(phase.samples, warm_up)
        if phase.histogram:
            self._add_histogram(repetition, phase.histogram)
        if phase.point is not None:
            self.points.setdefault(repetition, {})[number] = max(MINUTE, phase.point)

    def add_round(self, repetition: int, number: int, samples: Sequence[int]) -> None:
        """Take in the samples of one round; warm-up has been removed."""
        self.histograms.setdefault(repetition, Histogram()).add(samples)
        self.points.setdefault(repetition, {})[number] = max(1.0, float(median(samples)))
        self.min = min([*samples, self.min] if self.count else samples)
        self.max = max(self.max, *samples)
        self.count += len(samples)
        self.sum += sum(samples)
        self.sum_squares += sum(sample * sample for sample in samples)

    def _add_chopped(self, repetition: int, number: int, samples: Sequence[int]) -> None:
        for chop in CHOPS:
            rest = samples[chop:] or samples
            points = self.chopped.setdefault(str(chop), {})
            points.setdefault(repetition, {})[number] = max(1.0, float(median(rest)))

    def _add_histogram(self, repetition: int, encoded: str) -> None:
        """A round that was too long to be kept as samples; exact to three digits."""
        found = decoded(encoded)
        self.histograms.setdefault(repetition, Histogram()).merge(Histogram.of(found))
        self.min = min(self.min, found.min_value) if self.count else found.min_value
        self.max = max(self.max, found.max_value)
        for item in found.get_recorded_iterator():
            value, times = item.value_iterated_to, item.count_added_in_this_iter_step
            self.count += times
            self.sum += value * times
            self.sum_squares += value * value * times

    @property
    def has_anything(self) -> bool:
        return bool(self.calls or self.points or self.outcomes)

    def absorb(self, other: Cell, repetition_offset: int) -> None:
        """The same cell of another run of the same experiment, as further repetitions."""
        self.min = min(self.min, other.min) if self.count else other.min
        self.max = max(self.max, other.max)
        for name in (*COUNTS, "recorded", "warm_up", "count", "sum", "sum_squares"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for outcome, times in other.outcomes.items():
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + times
        for repetition, histogram in other.histograms.items():
            self.histograms[repetition + repetition_offset] = histogram
        _absorb_points(self.points, other.points, repetition_offset)
        for repetition, course in other.courses.items():
            self.courses[repetition + repetition_offset] = course
        for chop, points in other.chopped.items():
            _absorb_points(self.chopped.setdefault(chop, {}), points, repetition_offset)
        for ours, theirs in ((self.measures, other.measures), (self.parts, other.parts)):
            for name, series in theirs.items():
                own = ours.setdefault(name, Series(series.unit))
                _absorb_points(own.points, series.points, repetition_offset)

    def merged_histogram(self) -> Histogram:
        merged = Histogram()
        for histogram in self.histograms.values():
            merged.merge(histogram)
        return merged

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {
            "sum_squares": str(self.sum_squares),  # beyond what JSON readers keep exact
            "histograms": {
                repetition: histogram.encode() for repetition, histogram in self.histograms.items()
            },
            "courses": {number: vars(course) for number, course in self.courses.items()},
            "measures": {name: vars(series) for name, series in self.measures.items()},
            "parts": {name: vars(series) for name, series in self.parts.items()},
        }

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Cell:
        fields = plain | {
            "sum_squares": int(plain["sum_squares"]),
            "histograms": {
                int(repetition): Histogram.decode(text)
                for repetition, text in plain["histograms"].items()
            },
            "points": _points_from_json(plain["points"]),
            "chopped": {
                chop: _points_from_json(points) for chop, points in plain["chopped"].items()
            },
            "courses": {int(number): Course(**c) for number, c in plain["courses"].items()},
        }
        for group in ("measures", "parts"):
            fields[group] = {
                name: Series(series["unit"], _points_from_json(series["points"]))
                for name, series in plain[group].items()
            }
        return cls(**fields)


def _calls_recorded(phase: Phase) -> int:
    """How many calls the samples of a phase stand for. Its last batch may be a short one."""
    full = len(phase.samples) * phase.batch
    return phase.calls if full - phase.batch < phase.calls < full else full


def _absorb_points(ours: Points, theirs: Points, repetition_offset: int) -> None:
    for repetition, rounds in theirs.items():
        ours[repetition + repetition_offset] = dict(rounds)


def _points_from_json(plain: dict[str, dict[str, float]]) -> Points:
    return {
        int(repetition): {int(number): value for number, value in rounds.items()}
        for repetition, rounds in plain.items()
    }


@dataclass(frozen=True)
class Summary:
    """The numbers of one cell, in its unit, per operation."""

    median: float
    mean: float
    p90: float
    p99: float
    max: float
    stdev: float
    count: int


def distribution_of(cell: Cell) -> Distribution:
    return Distribution.of(cell.merged_histogram(), cell.max)


def summarize(cell: Cell) -> Summary:
    """Of the samples; of the rounds where no samples were kept, with a count of 0."""
    if not cell.count:
        return _summary_of_points(cell)
    mean = cell.sum / cell.count
    variance = max(0.0, cell.sum_squares / cell.count - mean * mean)
    found = distribution_of(cell)
    p50, p90, p99 = (found.percentile(rank) for rank in (50, 90, 99))
    return Summary(p50, mean, p90, p99, float(cell.max), math.sqrt(variance), cell.count)


def _summary_of_points(cell: Cell) -> Summary:
    points = sorted(value for rounds in cell.points.values() for value in rounds.values())
    p90, p99 = (at_share(points, share) for share in (0.90, 0.99))
    return Summary(median(points), fmean(points), p90, p99, points[-1], pstdev(points), 0)


@dataclass
class Entry:
    """What became of one candidate."""

    name: str
    title: str
    family: str
    reach: str
    state: str = "planned"  # then measured, missing or failed
    reason: str = ""
    install: str = ""
    note: str = ""
    twin_of: str | None = None
    server: str | None = None
    options: dict[str, Any] = field(default_factory=dict)  # what it is, where it is no alias
    needs: list[str] = field(default_factory=list)  # what to install for it
    recommendable: bool = True
    recommended: dict[str, Any] = field(default_factory=dict)  # its CACHES entry
    proof: dict[str, str] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)  # what else is to be said about it
    stored: dict[str, tuple[float, str]] = field(default_factory=dict)  # payload -> bytes, how


def kind_of(entry: Entry) -> str:
    """What the noise depends on: is another process asked, or not?"""
    asks = entry.server or (entry.family == "yours" and entry.reach != "process")
    return "server" if asks else "process"


CellKey = tuple[str, str, str]


@dataclass
class Sample:
    """Everything one run knows."""

    about: dict[str, Any]  # the plain fields of the file
    candidates: dict[str, Entry] = field(default_factory=dict)
    cells: dict[CellKey, Cell] = field(default_factory=dict)

    def cell(self, candidate: str, operation: str, payload: str) -> Cell:
        key = (candidate, operation, payload)
        return self.cells.setdefault(key, Cell(*key))

    def drop(self, candidate: str) -> None:
        """Forget the numbers of a candidate that gave a wrong answer: they are void."""
        for key in [key for key in self.cells if key[0] == candidate]:
            del self.cells[key]

    @property
    def has_numbers(self) -> bool:
        return any(cell.has_anything for cell in self.cells.values())

    @property
    def rounds(self) -> set[tuple[int, int]]:
        """All (repetition, round) that have numbers."""
        return {
            (repetition, number)
            for cell in self.cells.values()
            for repetition, numbers in cell.points.items()
            for number in numbers
        }

    def write(self, path: Path) -> None:
        """Replace the file in one step, so that a kill leaves the previous one."""
        scratch = path.with_suffix(".tmp")
        scratch.write_text(self.to_text())
        os.replace(scratch, path)

    def to_text(self, indent: int | None = 1) -> str:
        plain = {
            "format": FORMAT,
            **self.about,
            "candidates": {name: vars(entry) for name, entry in self.candidates.items()},
            "cells": [_with_summary(cell) for cell in self.cells.values() if cell.has_anything],
        }
        return json.dumps(plain, indent=indent)


def _with_summary(cell: Cell) -> dict[str, Any]:
    plain = cell.to_json()
    if cell.count:
        plain["summary"] = vars(summarize(cell))  # for people; readers compute it anew
    return plain


def read_sample(path: Path) -> Sample:
    try:
        plain = json.loads(_text_of(path))
        found = plain.pop("format")
        if found != FORMAT:
            todo = "upgrade nearcache" if found > FORMAT else "measure again"
            raise LabError(f"{path} has format {found}; this version reads {FORMAT}: {todo}")
        if absent := PLAIN_FIELDS - plain.keys():
            raise KeyError(*sorted(absent))
        for claim in plain["claims"]:
            if "seed" in claim:  # as it was called in files of 2026
                claim["article"] = claim.pop("seed")
        candidates = {
            name: Entry(**{**entry, "stored": {k: tuple(v) for k, v in entry["stored"].items()}})
            for name, entry in plain.pop("candidates").items()
        }
        cells = []
        for cell in plain.pop("cells"):
            cell.pop("summary", None)
            cells.append(Cell.from_json(cell))
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise LabError(f"{path} is damaged: {error}; measure again") from error
    except OSError as error:
        raise LabError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        said = f"{path} is not a sample of the lab, or it is damaged; give the JSON of a run"
        raise LabError(said) from error
    by_key = {(cell.candidate, cell.operation, cell.payload): cell for cell in cells}
    return Sample(plain, candidates, by_key)


def _text_of(path: Path) -> str:
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes()).decode()
    return path.read_text()
