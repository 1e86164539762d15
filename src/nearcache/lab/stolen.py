"""Time that the hypervisor gave to other guests, round by round.

What a round measured is kept back until its end, when it is known how much of its time was
stolen. Rounds with much of that are discarded and counted: they are no loss to those that stay,
because arms are compared within a round. Where that would be more than a third, nothing is
discarded: the run is void then (evidence.py), and grey numbers say more than none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from nearcache.lab.messages import Visited

# Of a round. Less than this moves a mean by less than the least floor of noise.
STEAL_MOST = 0.02
DISCARDED_MOST = 1 / 3  # of all rounds

# Candidate, payload, what it answered, (repetition, round).
Record = Callable[[str, str, Visited, tuple[int, int]], None]
Pressure = Mapping[str, float]  # see machine.pressure


def steal_share(before: Pressure, after: Pressure) -> float:
    """Of the measuring CPU or of all together, whichever lost more.

    A single tick is none: it is the least that is counted, and may have been the end of one.
    """
    return max(_share(before, after, "cpu_"), _share(before, after, ""))


def too_many(shares: Sequence[float]) -> bool:
    """Were more of these rounds stolen from than can be done without?"""
    return len(stolen(shares)) > DISCARDED_MOST * len(shares)


def stolen(shares: Sequence[float]) -> list[float]:
    return [share for share in shares if share > STEAL_MOST]


class Rounds:
    """The answers of one round at a time, on their way into the sample."""

    def __init__(self, record: Record, look: Callable[[], Pressure]) -> None:
        self._record = record
        self._look = look
        self._answers: list[tuple[str, str, Visited, tuple[int, int]]] = []
        self._doubtful: list[tuple[str, str, Visited, tuple[int, int]]] = []
        self.shares: list[float] = []

    @contextmanager
    def round(self) -> Iterator[None]:
        """What is taken in here is kept or not as one; also if the round is interrupted."""
        before = self._look()
        try:
            yield
        finally:
            if self._answers:
                self._judge(steal_share(before, self._look()))

    def take(self, candidate: str, payload: str, visited: Visited, at: tuple[int, int]) -> None:
        self._answers.append((candidate, payload, visited, at))

    def close(self) -> dict[str, Any]:
        """For the sample, when the last round is over."""
        discarded = 0 if too_many(self.shares) else len(stolen(self.shares))
        if not discarded:
            self._record_all(self._doubtful)
        self._doubtful = []
        mean = sum(self.shares) / len(self.shares) if self.shares else 0.0
        return {
            "steal_share": mean,
            "steal_rounds": self.shares,
            "discarded_rounds": discarded,
        }

    def _judge(self, share: float) -> None:
        self.shares.append(share)
        answers, self._answers = self._answers, []
        if share > STEAL_MOST:
            self._doubtful += answers
        else:
            self._record_all(answers)

    def _record_all(self, answers: Sequence[tuple[str, str, Visited, tuple[int, int]]]) -> None:
        for answer in answers:
            self._record(*answer)


def _share(before: Pressure, after: Pressure, prefix: str) -> float:
    lost, everything = (
        after.get(prefix + name, 0) - before.get(prefix + name, 0)
        for name in ("steal_ticks", "all_ticks")
    )
    return lost / everything if everything > 0 and lost > 1 else 0.0
