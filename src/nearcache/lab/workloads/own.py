"""The user's own values: taken as they are, so the seal cannot be inside them.

Every other payload hides key and version in its values. Doing that to a value of the
user's would change its shape, size or compressibility, which are what it is here for.
Instead many distinct values are stored, and which one a key holds at a version is fixed:
value number (key + version) modulo their count. An answer is compared with that value as
a whole, types included. A stale or foreign answer is another value and is caught; that
it happens to be the right one has a chance of one in their count.
"""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any, ClassVar

from nearcache.lab.workloads.fidelity import difference
from nearcache.lab.workloads.payload import Payload, number_of

LETTERS = {
    "own": "value of yours",
    "own-small": "value from the smaller third of yours",
    "own-medium": "value from the middle third of yours",
    "own-large": "value from the larger third of yours",
}
MOST_KEYS = 100
MOST_STORED_BYTES = 16 * 1024 * 1024  # of all keys at a time


class OwnValues(Payload):
    """The values of one size class; ``path`` is the file of :func:`write_classes`."""

    title: ClassVar[str] = "value of yours"
    values_differ: ClassVar[bool] = True

    def __init__(self, letter: str, seed: int, path: str) -> None:
        self.letter = letter  # type: ignore[misc] # one class, several payloads
        self._path = path
        super().__init__(seed)

    def build(self, rng: random.Random) -> None:
        pickled = self._pickled()
        rng.shuffle(pickled)  # neighbours on disk may be alike; the same order for everybody
        fitting = MOST_STORED_BYTES * len(pickled) // sum(map(len, pickled))
        self.key_count = max(2, min(MOST_KEYS, len(pickled), fitting))  # type: ignore[misc]
        # As many as keys: at each version the keys hold all of them, so all candidates the same.
        self.values = [pickle.loads(each) for each in pickled[: self.key_count]]
        self._compared: set[int] = set()

    def _pickled(self) -> list[bytes]:
        # Written by this lab into its private directory a moment ago.
        classes: dict[str, list[bytes]] = pickle.loads(Path(self._path).read_bytes())
        return classes[self.letter]

    def every_value(self) -> list[Any]:
        """Also those beyond what the keys hold: a type that is lost may be in any of them."""
        return [pickle.loads(each) for each in self._pickled()]

    def make(self, key: str, version: int) -> Any:
        return self.values[self._index(key, version)]

    def stamp_of(self, value: Any) -> object:
        return next((i for i, each in enumerate(self.values) if _same(each, value)), None)

    def check(self, value: Any, key: str, version: int) -> str | None:
        index = self._index(key, version)
        expected = self.values[index]
        if _same(expected, value):
            return self._types(index, value)
        if type(value) is not type(expected):
            return f"wrong type: {type(value).__name__} instead of {type(expected).__name__}"
        found = self.stamp_of(value)
        if found is None:
            return "damaged: it is none of the values that were stored"
        behind = (index - int(str(found))) % len(self.values)
        if behind <= min(version, 50):
            return "stale: an older version of this key"
        return "foreign: key or version of another value"

    def _types(self, index: int, value: Any) -> str | None:
        """1 == True: equal is not the same. Looked at once for each value, as it is slow."""
        if index in self._compared:
            return None
        wrong = difference(self.values[index], value)
        if wrong is None:
            self._compared.add(index)
        return f"wrong type inside: {wrong}" if wrong else None

    def _index(self, key: str, version: int) -> int:
        # The lab's keys end with a number, so no two of them hold one value at a version.
        tail = key.rpartition(":")[2]
        number = int(tail) if tail.isdecimal() else number_of(key)
        return (number + version) % len(self.values)


def _same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    # A NaN inside is equal to nothing, and what was stored all the same.
    return bool(a == b) or difference(a, b) is None
