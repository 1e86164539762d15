"""What driver and workers say to each other: plain data over one pipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nearcache.lab.model import Candidate


@dataclass(frozen=True)
class Setup:
    """Driver to worker, once: become this candidate."""

    candidate: Candidate  # with all placeholders filled
    directory: str
    namespace: str  # prefix of all keys; equally long for every candidate
    seed: int
    server_version: str
    cpu: int  # where to measure; loading may use all of them


@dataclass(frozen=True)
class Ready:
    """The candidate works, and this is what it really is."""

    proof: Mapping[str, str]


@dataclass(frozen=True)
class Missing:
    """Something is not installed; ``install`` is what to type."""

    reason: str
    install: str


@dataclass(frozen=True)
class Failed:
    """The candidate is out: it did not do what was asked, and this is why."""

    reason: str


@dataclass(frozen=True)
class Visit:
    """Driver to worker: one round of one payload."""

    payload: str
    operations: Sequence[str]
    round_id: str  # keys are new in every round
    phase_ns: int
    batch: Mapping[str, int] = field(default_factory=dict)  # operations per timestamp
    measure_stored: bool = False


@dataclass
class Phase:
    """The samples of one operation in one round, in the order they were taken."""

    operation: str
    batch: int
    samples_ns: Any = None  # array('Q'); nanoseconds per operation
    calls: int = 0
    hits: int = 0
    misses: int = 0
    errors: int = 0
    refused: int = 0


@dataclass
class Visited:
    """Worker to driver: a finished visit."""

    phases: list[Phase]
    stored_bytes: float | None = None  # per item
    stored_how: str = ""
    refused: bool = False  # the store keeps nothing of this payload's size
