"""The words in which rules speak: what was found, where, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Status = Literal["passed", "failed", "not applicable"]
Scope = Literal["run", "candidate", "cell"]


@dataclass(frozen=True)
class Problem:
    """Where a rule is broken, and how. Without a place it is the whole run."""

    text: str  # made from the data
    candidate: str = ""
    operation: str = ""  # empty: all of the candidate
    payload: str = ""


@dataclass(frozen=True)
class Outcome:
    """What a rule saw: its evidence in one sentence, and the problems, if any."""

    evidence: str
    problems: Sequence[Problem] = ()


@dataclass(frozen=True)
class Finding:
    """A broken rule, somewhere."""

    rule: str
    text: str
    voids: bool  # what it concerns is grey, has no rank, and is never recommended
    candidate: str = ""
    operation: str = ""
    payload: str = ""

    @property
    def scope(self) -> Scope:
        if not self.candidate:
            return "run"
        return "cell" if self.operation else "candidate"

    def concerns(self, candidate: str, operation: str = "", payload: str = "") -> bool:
        """Does it touch this candidate, or this cell of it? Without a payload it is of all."""
        if self.candidate and self.candidate != candidate:
            return False
        if self.operation and self.operation != operation:
            return False
        return not self.payload or self.payload == payload

    def __str__(self) -> str:
        place = " ".join(part for part in (self.candidate, self.operation, self.payload) if part)
        return f"{place}: {self.text}" if place else self.text


@dataclass(frozen=True)
class Check:
    """One line of the honesty badge."""

    number: int  # in the list of the method (docs/lab.md)
    name: str
    status: Status
    text: str  # the evidence, or what is wrong
    voids: bool  # whether breaking this rule makes numbers void
