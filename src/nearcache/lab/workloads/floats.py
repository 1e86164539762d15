"""F: a list of 1,000 floats, what seed 003 stored at the end of its run.

The first four carry key, version and the two halves of the seal. All are full
mantissas below one, like the timings they stand for.
"""

from __future__ import annotations

import random
from typing import Any

from nearcache.lab.workloads.payload import Payload, number_of

COUNT = 1000


class Floats(Payload):
    letter = "F"
    title = "list of 1,000 floats"

    def build(self, rng: random.Random) -> None:
        self.body = [rng.random() / 100 for _ in range(COUNT - 4)]

    def make(self, key: str, version: int) -> list[float]:
        seal = self.seal(key, version)
        # 52 bits fit a float exactly, so the comparison is exact as well.
        halves = (int.from_bytes(seal[:8]) >> 12, int.from_bytes(seal[8:]) >> 12)
        return [
            number_of(key) / 2**32,
            version / 2**32,
            halves[0] / 2**52,
            halves[1] / 2**52,
            *self.body,
        ]

    def stamp_of(self, value: Any) -> object:
        return tuple(value[:4])
