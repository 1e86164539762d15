"""Time that the hypervisor gave to other guests, visit by visit.

A visit much of whose time was stolen is made again, once; stolen from again, it is left out of
the sample and counted. Arms are compared within a round, so only the pairs of that visit are
lost. A candidate that would lose more than a third of its visits keeps them all: its numbers
are void then (evidence.py), and grey numbers say more than none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from nearcache.lab.base.messages import Visited

# Of a visit. Less does nothing to medians of samples, and to a throughput no more than this.
STEAL_MOST = 0.05
LEFT_OUT_MOST = 1 / 3  # of a candidate's visits
HELD_MOST = 256  # answers of visits that were stolen from, kept until it is known what they are for

# Candidate, payload, what it answered, (repetition, round).
Answer = tuple[str, str, Visited, tuple[int, int]]
Pressure = Mapping[str, float]  # see machine.pressure
Asked = TypeVar("Asked")


def steal_share(before: Pressure, after: Pressure) -> float:
    """Of the measuring CPU or of all together, whichever lost more.

    A single tick is none: it is the least that is counted, and may have been the end of one.
    """
    return max(_share(before, after, "cpu_"), _share(before, after, ""))


def too_many(left_out: int, visits: int) -> bool:
    return left_out > LEFT_OUT_MOST * visits


class StolenTime:
    """Asks candidates, and passes on what they answered in time that was theirs."""

    def __init__(
        self,
        record: Callable[[str, str, Visited, tuple[int, int]], None],
        look: Callable[[], Pressure],
    ) -> None:
        self._record = record
        self._look = look
        self._held: list[Answer] = []
        self._shares: list[float] = []
        self.visits: Counter[str] = Counter()  # by candidate
        self.repeated: Counter[str] = Counter()
        self.stolen: Counter[str] = Counter()

    def ask(self, candidate: str, ask: Callable[[int], Asked]) -> tuple[Asked, float]:
        """The answer to the first attempt or, where that was stolen from, to the second.

        ``ask`` is told which attempt it is, 0 or 1. The share of its time is what ``take`` wants.
        """
        answer, share = self._watched(ask, 0)
        if share <= STEAL_MOST:
            return answer, share
        self.repeated[candidate] += 1
        return self._watched(ask, 1)

    def take(self, answer: Answer, share: float) -> None:
        candidate = answer[0]
        self._shares.append(share)
        self.visits[candidate] += 1
        if share <= STEAL_MOST:
            self._record(*answer)
            return
        self.stolen[candidate] += 1
        if len(self._held) < HELD_MOST:
            self._held.append(answer)

    def close(self) -> dict[str, Any]:
        """For the sample, when the last round is over."""
        for answer in self._held:
            if too_many(self.stolen[answer[0]], self.visits[answer[0]]):
                self._record(*answer)
        self._held = []
        shares = self._shares
        return {
            "steal_share": sum(shares) / len(shares) if shares else 0.0,
            "steal_visits": {
                name: [visits, self.repeated[name], self.stolen[name]]
                for name, visits in self.visits.items()
            },
        }

    def _watched(self, ask: Callable[[int], Asked], attempt: int) -> tuple[Asked, float]:
        before = self._look()
        answer = ask(attempt)
        return answer, steal_share(before, self._look())


def _share(before: Pressure, after: Pressure, prefix: str) -> float:
    lost, everything = (
        after.get(prefix + name, 0) - before.get(prefix + name, 0)
        for name in ("steal_ticks", "all_ticks")
    )
    return lost / everything if everything > 0 and lost > 1 else 0.0
