"""One round of torture: who takes part, on what."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.torture.ledger import Ledger

MIB = 1 << 20
THREADS_MAX = 2
ROLES = ("mixed", "writer", "threads", "counter")


@dataclass(frozen=True)
class Plan:
    """Two stores of one size: one is always too small, the other never evicts anything."""

    directory: Path
    size_bytes: int
    workers: int
    seed: int

    def role(self, worker: int) -> str:
        return ROLES[worker % len(ROLES)]

    @property
    def checker(self) -> int:
        """The number of the one who is never killed nor stopped."""
        return self.workers

    @property
    def owners(self) -> int:
        return (self.workers + 1) * THREADS_MAX

    @property
    def crowded_keys(self) -> int:
        """Of each owner; with the sizes in ``work.py`` about six times what fits."""
        return 200 * max(1, self.size_bytes // MIB)

    @property
    def roomy_keys(self) -> int:
        """Of each owner; all of them take less than half of the smallest store."""
        return 10

    @cached_property
    def ledger(self) -> Ledger:
        keys = (self.owners * self.crowded_keys, self.owners * self.roomy_keys)
        return Ledger(self.directory, self.owners, *keys)

    @property
    def faults(self) -> Path:
        """Where who finds a fault writes it down."""
        return self.directory / "faults"

    @property
    def figures(self) -> Path:
        """What the last process counted, as JSON."""
        return self.directory / "figures.json"
