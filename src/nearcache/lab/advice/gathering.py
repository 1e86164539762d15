"""The samples a recommendation rests on: given by name, or the newest of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nearcache.errors import LabError
from nearcache.lab.results.files import ENDINGS
from nearcache.lab.results.machine import IDENTITY, describe_machine
from nearcache.lab.results.sample import Sample, read_sample

WANTED = ("backends", "codecs", "drill")


@dataclass
class Gathered:
    """Samples by experiment, where each is from, and what was passed over."""

    samples: dict[str, Sample] = field(default_factory=dict)
    paths: dict[str, Path] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def take(self, path: Path, sample: Sample) -> None:
        """Keep it if it is the newest of its experiment."""
        name = sample.about["experiment"]
        known = self.samples.get(name)
        if known is None or known.about["started"] < sample.about["started"]:
            self.samples[name], self.paths[name] = sample, path


def gather(places: Sequence[Path]) -> Gathered:
    """The samples in these files and directories.

    Raises:
        LabError: a file that was named is no sample, or a place does not exist.
    """
    found = Gathered()
    for place in places:
        if place.is_dir():
            _take_directory(found, place)
        else:
            sample = read_sample(place)
            if not _is_from_here(sample):
                found.notes.append(f"{place} was measured on another machine.")
            found.take(place, sample)
    return found


def _take_directory(found: Gathered, directory: Path) -> None:
    for path in sorted(directory.rglob("*.json*")):
        is_sample = path.name.endswith(ENDINGS) and path.name.split("-")[0] in WANTED
        if not is_sample or not path.stat().st_size:  # an empty one is a run that has just begun
            continue
        try:
            sample = read_sample(path)
        except LabError as error:
            found.notes.append(f"passed over: {error}")
            continue
        if _is_from_here(sample):
            found.take(path, sample)
        else:
            found.notes.append(f"passed over: {path} was measured on another machine.")


def _is_from_here(sample: Sample) -> bool:
    here = describe_machine()
    return all(sample.about["machine"].get(name) == here[name] for name in IDENTITY)
