"""X: 2 MB of text that does not compress, to see who refuses it and how.

Not measured unless asked for: memcached keeps nothing above 1 MB by default.
"""

from __future__ import annotations

import random
from typing import Any

from nearcache.lab.workloads.payload import Payload

SIZE_CHARS = 2_000_000


class Oversize(Payload):
    letter = "X"
    title = "2 MB text"
    key_count = 4  # 8 MB are enough to see

    def build(self, rng: random.Random) -> None:
        self.body = rng.randbytes(SIZE_CHARS // 2).hex()

    def make(self, key: str, version: int) -> str:
        return f"{key} {version} {self.seal(key, version).hex()}\n" + self.body

    def stamp_of(self, value: Any) -> object:
        return value[:200].split("\n")[0]
