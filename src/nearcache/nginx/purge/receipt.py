"""What a purge did, line by line: which entries, how old, how long they would have lived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from nearcache.nginx.cachedir.directory import Census

How = Literal["soft", "hard"]
KEPT = 1000  # lines in memory; all of them go to ``each``


@dataclass(frozen=True)
class Purged:
    """One line of a receipt: one file."""

    path: str  # below the root
    key: str
    action: str  # "expired", "unlinked", "would be expired", "would be unlinked", "vanished"
    inode: int
    size: int
    age_s: float  # since it was stored or revalidated
    left_s: float  # how long it would have been served
    variant: bool


@dataclass
class Receipt:
    """What a purge did. ``census`` tells what else was met on the way.

    ``purged`` holds the first lines only, so that a purge of a million files needs no memory
    for them; ``counts`` counts all of them, and ``each`` was told each as it happened.
    """

    root: str
    how: How
    dry_run: bool
    began: float  # Unix seconds
    each: Callable[[Purged], None] | None = None
    purged: list[Purged] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)  # files, by action
    bytes: int = 0
    refused: list[str] = field(default_factory=list)  # the first: why an entry was left alone
    refusals: int = 0
    over: int = 0  # files that a scan met and that had expired before
    census: Census | None = None  # of the first scan; None if none was needed
    complete: bool = True  # False if the time that it was given was over before
    seconds: float = 0.0

    @property
    def files(self) -> int:
        """How many were purged, or would be."""
        return self.counts.total() - self.counts["vanished"]

    def add(self, line: Purged) -> None:
        self.counts[line.action] += 1
        if line.action != "vanished":
            self.bytes += line.size
        if len(self.purged) < KEPT:
            self.purged.append(line)
        if self.each:
            self.each(line)

    def refuse(self, why: str) -> None:
        self.refusals += 1
        if len(self.refused) < KEPT:
            self.refused.append(why)

    def to_json(self) -> dict[str, Any]:
        facts = {name: value for name, value in vars(self).items() if name != "each"}
        facts |= {
            "files": self.files,
            "purged": [asdict(line) for line in self.purged],
            "census": self.census.to_json() if self.census else None,
        }
        return facts
