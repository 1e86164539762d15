"""The order of visits: drawn anew for every round, and kept in a form that can be checked.

The machine drifts, so whoever always came first would be measured on another machine than
who always came last. The sample keeps a digest of the whole order, by which a repeated run
can be recognised, and everybody's mean place, by which a broken shuffle can.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import Any, TypeVar

Visit = TypeVar("Visit")


class Interleaving:
    """Shuffles rounds. What it keeps does not grow with their number."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._digest = hashlib.blake2b(digest_size=8)
        self._places: dict[str, tuple[float, int]] = {}  # candidate -> sum of places, visits
        self._visits = 0

    def shuffled(self, visits: Sequence[Visit]) -> list[Visit]:
        order = list(visits)
        self.rng.shuffle(order)
        return order

    def visited(self, candidate: str, payload: str, place: float) -> None:
        """A recorded visit, at this place of its round: 0 is the first, 1 the last."""
        self._digest.update(f"{candidate}\n{payload}\n".encode())
        total, visits = self._places.get(candidate, (0.0, 0))
        self._places[candidate] = total + place, visits + 1
        self._visits += 1

    def summary(self) -> dict[str, Any]:
        """For the sample: how many visits, their digest, and where each candidate came."""
        places = {name: (total / visits, visits) for name, (total, visits) in self._places.items()}
        return {
            "visits": self._visits,
            "digests": [self._digest.hexdigest()],
            "places": places,
        }
