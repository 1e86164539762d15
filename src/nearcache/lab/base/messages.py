"""What driver and workers say to each other: plain data over one pipe."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nearcache.lab.base.model import Candidate

AGAIN = "a"  # ends the id of a round where a visit is made again: its keys are new ones


@dataclass(frozen=True)
class Setup:
    """Driver to worker, once: become this candidate."""

    candidate: Candidate  # with all placeholders filled
    arm: str  # dotted path of the class that measures it
    places: Mapping[str, str]  # addresses of the running servers, by placeholder
    directory: str
    namespace: str  # prefix of all keys; equally long for every candidate
    seed: int
    server_version: str
    cpu: int  # where to measure; loading may use all of them
    # Programs the user named, for arms that start servers of their own: server -> path.
    binaries: Mapping[str, str] = field(default_factory=dict)
    data: str = ""  # file of the user's own values, if there are any


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
    learning: bool = False  # unrecorded: warm up, weigh items, find out capacities
    # Of all that candidates learned under one name, the lowest: a rate that every one
    # of them can serve, for example.
    lowest: Mapping[str, float] = field(default_factory=dict)

    @property
    def draw(self) -> str:
        """Seeds what is drawn: the same for all candidates of a round, however often they try."""
        return self.round_id.removesuffix(AGAIN)


@dataclass
class Phase:
    """One operation in one round: its samples, and what else was seen."""

    operation: str
    batch: int = 1
    # In the order they were taken, in the unit of the operation, per operation.
    samples: Any = field(default_factory=lambda: array("Q"))
    histogram: str = ""  # instead of samples where they are millions: HdrHistogram V2, base64
    point: float | None = None  # what the round counts as; the median of the samples if None
    calls: int = 0
    hits: int = 0
    misses: int = 0
    errors: int = 0
    refused: int = 0
    # How often it ended otherwise than by an answer: "timeout", "raises ConnectionError".
    outcomes: dict[str, int] = field(default_factory=dict)
    # Other numbers of this round, never ranked: name -> (value, unit). Units as in
    # model.Unit, or "1/s", or "" for a plain number.
    measures: dict[str, tuple[float, str]] = field(default_factory=dict)
    # Where the time of one operation goes: part -> ns.
    parts: dict[str, float] = field(default_factory=dict)


@dataclass
class Visited:
    """Worker to driver: a finished visit."""

    phases: list[Phase]
    stored_bytes: float | None = None  # per item
    stored_how: str = ""
    refused: bool = False  # the store keeps nothing of this payload's size
    learned: dict[str, float] = field(default_factory=dict)  # see Visit.lowest
    facts: dict[str, str] = field(default_factory=dict)  # about the candidate, in words
