"""What one run measured, and its file. Written by the driver, read by the reports.

The file is JSON, version ``FORMAT``:

    format, experiment, question, started, seconds, command, seed, state
    machine, versions, servers, load_before, steal_share, cpu
    plan, mix, baseline, operations, payloads, contrasts, cannot_answer
    candidates   name -> what it is, its proof, and why it is out if it is
    cells        one per candidate, operation and payload: counts, raw histograms (one
                 per repetition, HdrHistogram V2 compressed, base64, nanoseconds, 3 digits),
                 exact extremes and sums, and the median of every round

History: 1, the first version.

Samples of one experiment on one machine may be merged: repetitions are put side by
side. Unlike machines refuse, because their difference would look like a result.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

from nearcache.errors import LabError
from nearcache.lab.machine import IDENTITY

FORMAT = 1
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
        "cannot_answer",
    }
)
LONGEST_NS = 120 * 10**9
DIGITS = 3


def new_histogram() -> Any:
    from hdrh.histogram import HdrHistogram

    return HdrHistogram(1, LONGEST_NS, DIGITS)


@dataclass
class Cell:
    """One candidate doing one operation on one payload."""

    candidate: str
    operation: str
    payload: str
    batch: int = 1
    calls: int = 0
    hits: int = 0
    misses: int = 0
    errors: int = 0
    refused: int = 0
    warm_up: int = 0  # samples left out at the start of rounds
    count: int = 0  # samples kept
    sum_ns: int = 0
    sum_squares: int = 0
    min_ns: int = 0
    max_ns: int = 0
    histograms: dict[int, Any] = field(default_factory=dict)  # repetition -> HdrHistogram
    medians: dict[int, dict[int, float]] = field(default_factory=dict)  # repetition, round

    def add_round(self, repetition: int, number: int, samples: Sequence[int]) -> None:
        """Take in the samples of one round; warm-up has been removed."""
        histogram = self.histograms.setdefault(repetition, new_histogram())
        for sample in samples:
            histogram.record_value(max(1, min(sample, LONGEST_NS)))
        self.medians.setdefault(repetition, {})[number] = max(1.0, float(median(samples)))
        self.min_ns = min([*samples, self.min_ns] if self.count else samples)
        self.max_ns = max(self.max_ns, *samples)
        self.count += len(samples)
        self.sum_ns += sum(samples)
        self.sum_squares += sum(sample * sample for sample in samples)

    def absorb(self, other: Cell, repetition_offset: int) -> None:
        """The same cell of another run of the same experiment, as further repetitions."""
        for name in ("calls", "hits", "misses", "errors", "refused", "warm_up"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.min_ns = min(self.min_ns, other.min_ns) if self.count else other.min_ns
        self.max_ns = max(self.max_ns, other.max_ns)
        self.count += other.count
        self.sum_ns += other.sum_ns
        self.sum_squares += other.sum_squares
        for repetition, histogram in other.histograms.items():
            self.histograms[repetition + repetition_offset] = histogram
            self.medians[repetition + repetition_offset] = other.medians[repetition]

    def merged_histogram(self) -> Any:
        merged = new_histogram()
        for histogram in self.histograms.values():
            merged.add(histogram)
        return merged

    def to_json(self) -> dict[str, Any]:
        plain = {name: value for name, value in vars(self).items() if name != "histograms"}
        plain["sum_squares"] = str(self.sum_squares)  # beyond what JSON readers keep exact
        plain["histograms"] = {
            repetition: histogram.encode().decode()
            for repetition, histogram in self.histograms.items()
        }
        return plain

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Cell:
        from hdrh.histogram import HdrHistogram

        fields = dict(plain)
        fields["sum_squares"] = int(fields["sum_squares"])
        fields["histograms"] = {
            int(repetition): HdrHistogram.decode(text)
            for repetition, text in plain["histograms"].items()
        }
        fields["medians"] = {
            int(repetition): {int(number): value for number, value in rounds.items()}
            for repetition, rounds in plain["medians"].items()
        }
        return cls(**fields)


@dataclass(frozen=True)
class Summary:
    """The numbers of one cell, in nanoseconds per operation."""

    median: float
    mean: float
    p90: float
    p99: float
    max: float
    stdev: float
    count: int


def percentile_values(cell: Cell, ranks: Sequence[float]) -> list[float]:
    """Nanoseconds at these percentiles, in one pass over the histogram."""
    found = cell.merged_histogram().get_percentile_to_value_dict(list(ranks))
    # A bucket answers with its upper edge, which may lie above all that was seen.
    return [float(min(found[rank], cell.max_ns)) for rank in ranks]


def summarize(cell: Cell) -> Summary:
    mean = cell.sum_ns / cell.count
    variance = max(0.0, cell.sum_squares / cell.count - mean * mean)
    p50, p90, p99 = percentile_values(cell, (50, 90, 99))
    return Summary(p50, mean, p90, p99, float(cell.max_ns), math.sqrt(variance), cell.count)


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
    needs: list[str] = field(default_factory=list)  # what to install for it
    recommendable: bool = True
    recommended: dict[str, Any] = field(default_factory=dict)  # its CACHES entry
    proof: dict[str, str] = field(default_factory=dict)
    stored: dict[str, tuple[float, str]] = field(default_factory=dict)  # payload -> bytes, how


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
        return any(cell.count for cell in self.cells.values())

    @property
    def rounds(self) -> set[tuple[int, int]]:
        """All (repetition, round) that have numbers."""
        return {
            (repetition, number)
            for cell in self.cells.values()
            for repetition, numbers in cell.medians.items()
            for number in numbers
        }

    def write(self, path: Path) -> None:
        """Replace the file in one step, so that a kill leaves the previous one."""
        plain = {
            "format": FORMAT,
            **self.about,
            "candidates": {name: vars(entry) for name, entry in self.candidates.items()},
            "cells": [_with_summary(cell) for cell in self.cells.values() if cell.calls],
        }
        scratch = path.with_suffix(".tmp")
        scratch.write_text(json.dumps(plain, indent=1))
        os.replace(scratch, path)


def _with_summary(cell: Cell) -> dict[str, Any]:
    plain = cell.to_json()
    if cell.count:
        plain["summary_ns"] = vars(summarize(cell))  # for people; readers compute it anew
    return plain


def read_sample(path: Path) -> Sample:
    try:
        plain = json.loads(path.read_text())
        found = plain.pop("format")
        if found != FORMAT:
            raise LabError(f"{path} has format {found}; this version reads {FORMAT}: measure again")
        if absent := PLAIN_FIELDS - plain.keys():
            raise KeyError(*sorted(absent))
        candidates = {
            name: Entry(**{**entry, "stored": {k: tuple(v) for k, v in entry["stored"].items()}})
            for name, entry in plain.pop("candidates").items()
        }
        cells = []
        for cell in plain.pop("cells"):
            cell.pop("summary_ns", None)
            cells.append(Cell.from_json(cell))
    except OSError as error:
        raise LabError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LabError(f"{path} is not a sample of the lab; give the JSON of a run") from error
    by_key = {(cell.candidate, cell.operation, cell.payload): cell for cell in cells}
    return Sample(plain, candidates, by_key)


def merge(samples: Iterable[Sample]) -> Sample:
    """One sample of several runs. Refuses what must not be put together."""
    first, *others = samples
    for other in others:
        _refuse_unlike(first.about, other.about)
        offset = 1 + max((r for cell in first.cells.values() for r in cell.medians), default=0)
        for key, cell in other.cells.items():
            first.cell(*key).absorb(cell, offset)
        for name, entry in other.candidates.items():
            first.candidates.setdefault(name, entry)
        first.about["command"] += f"\n{other.about['command']}"
        first.about["seconds"] += other.about["seconds"]
    return first


def _refuse_unlike(a: dict[str, Any], b: dict[str, Any]) -> None:
    if a["experiment"] != b["experiment"]:
        raise LabError(f"these are different experiments: {a['experiment']}, {b['experiment']}")
    for name in IDENTITY:
        if a["machine"][name] != b["machine"][name]:
            raise LabError(
                f"these runs are from unlike machines ({name}: {a['machine'][name]} and "
                f"{b['machine'][name]}); report them one by one"
            )
    if a["versions"] != b["versions"] or a["servers"] != b["servers"]:
        raise LabError("these runs used other versions of libraries or servers; report them alone")


def warm_up_share(sample: Sample) -> float:
    shares = [c.warm_up / (c.warm_up + c.count) for c in sample.cells.values() if c.count]
    return fmean(shares) if shares else 0.0
