"""What the workers claim to have done, in a mapped file: a killed worker's claims stay.

Each key has one owner, the only one who writes it. He numbers his writes, and keeps four
words up to date, each before or after the operation so that they are true at any kill:

    started   the number of the write he began last; none larger can be in the store
    floor     2 n: write n was acknowledged; 2 n + 1: write n is gone; nothing smaller is left
    cleared   as floor, kept by whoever clears the store
    held      n: write n is in the store, and he does not touch it; 0: no claim

``held`` is claimed only where nothing is ever evicted. Counters are claimed per owner:
how many increments he began, and how many were acknowledged.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import NamedTuple

COUNTERS = 8  # of each kind
LOCKS = 4


class Claim(NamedTuple):
    least: int
    held: int


class Words:
    """A file of 64-bit words. A store of one is one instruction: never half done."""

    def __init__(self, path: Path, words: int) -> None:
        with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            file.truncate(max(words, 1) * 8)
            self._view = memoryview(mmap.mmap(file.fileno(), max(words, 1) * 8)).cast("Q")
        self._taken = 0

    def take(self, words: int) -> memoryview:
        """The next part of the file."""
        self._taken += words
        return self._view[self._taken - words : self._taken]


class KeyClaims:
    """The claims about the keys of one store."""

    def __init__(self, path: Path, keys: int) -> None:
        words = Words(path, 4 * keys)
        self.started, self.floor, self.cleared, self.held = (words.take(keys) for _ in range(4))

    def look(self, at: int) -> Claim:
        """To be taken before a read of the key, and given to :meth:`allows` after it."""
        return Claim(max(self.floor[at], self.cleared[at]), self.held[at])

    def begin(self, at: int) -> int:
        """The owner begins a write: its number."""
        self.held[at] = 0
        self.started[at] += 1
        return self.started[at]

    def stored(self, at: int, sequence: int, *, hold: bool) -> None:
        self.floor[at] = 2 * sequence
        if hold:
            self.held[at] = sequence

    def gone(self, at: int, sequence: int) -> None:
        """No write up to this one is in the store any more."""
        self.floor[at] = 2 * sequence + 1

    def cleared_up_to(self, floors: list[int]) -> None:
        """The store was cleared; ``floors`` were read before."""
        for at, floor in enumerate(floors):
            self.cleared[at] = max(self.cleared[at], floor | 1)

    def fault(self, at: int, before: Claim, sequence: int) -> str | None:
        """What is wrong with having read this sequence, if anything is."""
        if 2 * sequence < before.least:
            what = "acknowledged" if before.least % 2 == 0 else "deleted or replaced"
            return f"resurrected: {sequence}, though {before.least // 2} had been {what}"
        if sequence > self.started[at]:
            return f"from the future: {sequence}, but only {self.started[at]} was begun"
        if before.held not in (0, sequence) and self.held[at] == before.held:
            return f"not the value held: {sequence}, not {before.held}"
        return None


class CounterClaims:
    """Increments begun and acknowledged, by owner."""

    def __init__(self, words: Words, owners: int) -> None:
        self.begun, self.acknowledged = (words.take(owners * COUNTERS) for _ in range(2))

    def begin(self, owner: int, counter: int) -> None:
        self.begun[owner * COUNTERS + counter] += 1

    def done(self, owner: int, counter: int) -> None:
        self.acknowledged[owner * COUNTERS + counter] += 1

    def not_done(self, owner: int, counter: int) -> None:
        self.begun[owner * COUNTERS + counter] -= 1

    def least(self, counter: int) -> int:
        return sum(self.acknowledged[counter::COUNTERS])

    def most(self, counter: int) -> int:
        return sum(self.begun[counter::COUNTERS])


class Ledger:
    """All claims of one round."""

    def __init__(self, directory: Path, owners: int, crowded_keys: int, roomy_keys: int) -> None:
        self.crowded = KeyClaims(directory / "crowded.claims", crowded_keys)
        self.roomy = KeyClaims(directory / "roomy.claims", roomy_keys)
        words = Words(directory / "claims", owners * (4 * COUNTERS + 4) + 2 * LOCKS + 1)
        self.incr = CounterClaims(words, owners)
        self.cas = CounterClaims(words, owners)
        self.operations = words.take(owners)
        self.busy = words.take(owners)
        self.refused = words.take(owners)
        self.bases = words.take(owners)
        self.last_token = words.take(LOCKS)
        self.inside = words.take(LOCKS)
        self.stop = words.take(1)
