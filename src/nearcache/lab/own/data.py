"""From a directory of the user's files to payloads: read, tried, put into size classes.

    *.json              one JSON value
    *.pickle, *.pkl     one pickle; read only when that is asked for, because it runs code
    *.bytes             bytes
    *.stored            bytes as a cache stores them, of a value that was not decoded
    anything else       text if it is UTF-8, else bytes

Hidden files and those that begin with ``_`` are no values. What cannot be used is counted
with its reason, never an error by itself; nothing that can be used is one.

A value has to survive pickling as itself: whoever stores it does that, and the lab has to
know it again. What was not decoded says nothing of the types inside, so such values do not
decide who keeps types. Values are put into three classes of equal count by size, so that a
median means something and a geometric mean over the classes weighs every value alike.
"""

from __future__ import annotations

import json
import pickle
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from nearcache.base.options import MIB, human_bytes
from nearcache.errors import LabError
from nearcache.lab.workloads.fidelity import difference
from nearcache.lab.workloads.own import LETTERS

MOST_VALUE_BYTES = 8 * MIB
MOST_BYTES = 256 * MIB  # of all values: every worker holds them
MOST_FILES = 5000
LEAST_FOR_CLASSES = 30
PICKLES = (".pickle", ".pkl")
STORED = ".stored"


@dataclass
class OwnData:
    """Values that can be used, pickled, smallest first; and why others cannot."""

    source: str  # where they are from, for people
    values: list[bytes] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)  # reason -> the first file it hit
    undecoded: int = 0  # files of bytes as they were stored

    def skip(self, reason: str, name: str, count: int = 1) -> None:
        self.skipped[reason] += count
        self.first.setdefault(reason, name)

    @property
    def classes(self) -> dict[str, list[bytes]]:
        """Letter -> pickled values. One class if there are few."""
        small, medium, large = list(LETTERS)[1:]
        count = len(self.values)
        if count < LEAST_FOR_CLASSES:
            return {"own": self.values}
        third = count // 3
        return {
            small: self.values[:third],
            medium: self.values[third : count - third],
            large: self.values[count - third :],
        }

    @property
    def titles(self) -> dict[str, str]:
        return {
            letter: f"{LETTERS[letter]} ({human_bytes(int(median(map(len, values))))} pickled)"
            for letter, values in self.classes.items()
        }

    def describe(self) -> str:
        """One line: what was taken, what was not, and why."""
        sizes = [len(each) for each in self.values]
        text = f"{self.source}: {len(self.values)} distinct values"
        if sizes:
            text += (
                f", {human_bytes(sizes[0])} to {human_bytes(sizes[-1])} pickled,"
                f" median {human_bytes(int(median(sizes)))}"
            )
        if self.undecoded:
            text += f"; {self.undecoded} not decoded, so their types are unknown"
        reasons = [
            f"{count} {reason} (first: {self.first[reason]})"
            for reason, count in self.skipped.most_common()
        ]
        return f"{text}; left out: {'; '.join(reasons)}" if reasons else text

    def write(self, path: Path) -> None:
        """For the workers, in a private directory."""
        path.touch(mode=0o600)
        path.write_bytes(pickle.dumps(self.classes, pickle.HIGHEST_PROTOCOL))


def read_directory(directory: Path, *, pickles: bool, source: str = "") -> OwnData:
    """The values of a directory. Raises LabError if fewer than two can be used."""
    found = OwnData(source or str(directory))
    try:
        paths = sorted(path for path in directory.rglob("*") if _is_value(path, directory))
    except OSError as error:
        raise LabError(f"{directory} cannot be read: {error.strerror}") from error
    if not paths:
        raise LabError(f"{directory} holds no files; give a directory with one value in each")
    if len(paths) > MOST_FILES:
        found.skip(f"beyond the {MOST_FILES} taken at random", "-", len(paths) - MOST_FILES)
        paths = random.Random(0).sample(paths, MOST_FILES)
    _take(found, paths, directory, pickles)
    if len(found.values) < 2:
        raise LabError(
            f"{found.describe()}. The lab needs at least two different values, or a cache that "
            "mixes them up could not be told"
        )
    return found


def _is_value(path: Path, directory: Path) -> bool:
    inside = path.relative_to(directory).parts
    return not any(part.startswith((".", "_")) for part in inside) and path.is_file()


def _take(found: OwnData, paths: Sequence[Path], directory: Path, pickles: bool) -> None:
    total, seen = 0, set[bytes]()
    for path in paths:
        for name, value in _values(found, path, path.relative_to(directory), pickles):
            pickled = _pickled(found, name, value)
            if pickled is None:
                continue
            if pickled in seen:
                found.skip("the same as another", name)
            elif total + len(pickled) > MOST_BYTES:
                found.skip(f"beyond {human_bytes(MOST_BYTES)} in all", name)
            else:
                seen.add(pickled)
                found.undecoded += path.suffix == STORED
                total += len(pickled)
    found.values = sorted(seen, key=lambda each: (len(each), each))


def _values(found: OwnData, path: Path, name: Path, pickles: bool) -> Iterator[tuple[str, Any]]:
    """The value of a file, if it can be read."""
    try:
        size = path.stat().st_size
        if size > MOST_VALUE_BYTES:
            found.skip(f"larger than {human_bytes(MOST_VALUE_BYTES)}", str(name))
            return
        raw = path.read_bytes()
    except OSError as error:
        found.skip(f"unreadable: {error.strerror}", str(name))
        return
    if path.suffix in PICKLES and not pickles:
        found.skip("pickles; --pickle reads them, which runs their code", str(name))
        return
    try:
        yield str(name), _decoded(raw, path.suffix)
    except Exception as error:  # noqa: BLE001 - unpickling may raise anything
        kind = "damaged JSON" if path.suffix == ".json" else "pickles that do not load here"
        found.skip(f"{kind}, {type(error).__name__}", str(name))


def _decoded(raw: bytes, suffix: str) -> Any:
    if suffix == ".json":
        return json.loads(raw)
    if suffix in PICKLES:
        return pickle.loads(raw)
    if suffix in (".bytes", STORED):
        return raw
    return text_or_bytes(raw)


def text_or_bytes(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _pickled(found: OwnData, name: str, value: Any) -> bytes | None:
    """The value's pickle, if the lab would know it again."""
    if value is None:
        found.skip("None, which cannot be told from a miss", name)
        return None
    try:
        pickled = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        same = difference(value, pickle.loads(pickled)) is None
    except Exception as error:  # noqa: BLE001 - classes of anybody's
        found.skip(f"cannot be pickled, {type(error).__name__}", name)
        return None
    if not same:
        found.skip("not equal to their own copies, so answers could not be checked", name)
        return None
    return pickled


def payload_bytes(letters: Iterable[str], seed: int, data: str) -> dict[str, float]:
    """What a value of each payload takes when pickled, on average: the application's bytes."""
    from nearcache.lab.workloads import make_payload

    sizes = {}
    for letter in letters:
        payload = make_payload(letter, seed, data)
        values = [payload.make(f"size:{i:04d}", 1) for i in range(min(payload.key_count, 20))]
        pickled = [len(pickle.dumps(value, pickle.HIGHEST_PROTOCOL)) for value in values]
        sizes[letter] = sum(pickled) / len(pickled)
    return sizes
