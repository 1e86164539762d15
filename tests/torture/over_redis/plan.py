"""One round over Redis: who takes part, and what they claim to have done.

The claims of keys are those of :mod:`tests.torture.ledger`, where a claim is made only of what
cannot have been lost:

    generation   a part of the key's name. Whoever does not know what became of a write, because it
                 failed, was interrupted or its writer was killed, goes on under a new name
    epoch        odd while a server is being replaced, and another one afterwards. What was written
                 in an earlier epoch may be gone, or be older
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.torture.ledger import KeyClaims, Words
from tests.torture.plan import THREADS_MAX

ROLES = ("threads", "greenlets", "tasks", "forker")
KEYS = 20
"""Of each owner."""
LOCKS = 4
KINDS = (
    "ConnectionFailed",
    "ReplyTimeout",
    "CircuitOpen",
    "ServerNotReady",
    "PoolTimeout",
    "LockLost",
    "interrupted",
)
"""What a worker may meet; anything else is a fault."""


class Ledger:
    """All claims of one round."""

    def __init__(self, directory: Path, owners: int) -> None:
        keys = owners * KEYS
        self.keys = KeyClaims(directory / "keys.claims", keys)
        words = Words(directory / "claims", 2 * keys + owners * (6 + len(KINDS)) + LOCKS + 2)
        self.generation, self.epoch_of = words.take(keys), words.take(keys)
        self.operations = words.take(owners)
        self.begun, self.acknowledged = words.take(owners), words.take(owners)
        self.counter = words.take(owners)  # the counter's generation
        self.counter_epoch = words.take(owners)
        self.children = words.take(owners)
        self.met = words.take(owners * len(KINDS))
        self.inside = words.take(LOCKS)
        self.epoch = words.take(1)
        self.stop = words.take(1)


@dataclass(frozen=True)
class RedisPlan:
    """``location`` and ``options`` are those of the cache that all workers use."""

    directory: Path
    location: str
    options: dict[str, Any]
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

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(self.directory, self.owners)

    @property
    def faults(self) -> Path:
        return self.directory / "faults"

    @property
    def figures(self) -> Path:
        return self.directory / "figures.json"
