"""The contract of payloads, and the seal that every stored value carries.

A seal is a checksum over (seed, payload, key, version). Each payload hides the seal,
the key and the version in fields that such a value would have anyway, so its shape
and size stay what they claim to be. ``check`` rebuilds the value that key and version
must have and compares: first the stamp, which tells a foreign or stale value from a
damaged one, then everything.

Both building and checking happen outside every timed section.
"""

from __future__ import annotations

import hashlib
import pickle
import random
from abc import ABC, abstractmethod
from typing import Any, ClassVar


class Payload(ABC):
    """Makes and checks the values of one shape. Same seed, same values."""

    letter: ClassVar[str]
    title: ClassVar[str]
    key_count: ClassVar[int] = 50  # how many are stored at a time
    # Values of several sizes: who does half of them more often measures another mixture.
    values_differ: ClassVar[bool] = False

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.build(random.Random(f"{seed}:{self.letter}"))

    def build(self, rng: random.Random) -> None:  # noqa: B027 - most need nothing
        """Prepare what all values share. Called once."""

    @abstractmethod
    def make(self, key: str, version: int) -> Any:
        """The value that ``key`` has at ``version``."""

    @abstractmethod
    def stamp_of(self, value: Any) -> object:
        """The key, version and seal that a value carries; may raise on a foreign shape."""

    def check(self, value: Any, key: str, version: int) -> str | None:
        """What is wrong with ``value`` as the answer for key and version; None if nothing."""
        expected = self.make(key, version)
        if type(value) is type(expected) and value == expected:
            return None
        if type(value) is not type(expected):
            return f"wrong type: {type(value).__name__} instead of {type(expected).__name__}"
        if self._is_stale(value, key, version):
            return "stale: an older version of this key"
        if self._stamp_or_none(value) != self.stamp_of(expected):
            return "foreign: key or version of another value"
        return "damaged: the stamp is right and the rest is not"

    @property
    def bytes_at_once(self) -> int:
        """What all its keys hold together, pickled: about what a store is asked to take."""
        differ = self.key_count if self.values_differ else 1
        made = (self.make(f"size:{number:04d}", 1) for number in range(differ))
        sizes = [len(pickle.dumps(value, pickle.HIGHEST_PROTOCOL)) for value in made]
        return sum(sizes) * self.key_count // differ

    def seal(self, key: str, version: int) -> bytes:
        text = f"{self.seed}:{self.letter}:{key}:{version}"
        return hashlib.blake2b(text.encode(), digest_size=16).digest()

    def _is_stale(self, value: Any, key: str, version: int) -> bool:
        stamp = self._stamp_or_none(value)
        recent = range(max(0, version - 50), version)
        return any(stamp == self.stamp_of(self.make(key, older)) for older in recent)

    def _stamp_or_none(self, value: Any) -> object:
        try:
            return self.stamp_of(value)
        except (TypeError, ValueError, LookupError, AttributeError):
            return None


def number_of(key: str) -> int:
    """A number of nine digits for a key, for payloads whose fields are numeric."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest()) % 10**9
