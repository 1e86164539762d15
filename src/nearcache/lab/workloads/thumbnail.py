"""T: a thumbnail of 10 kB with its type, which is what does not compress.

Compressing it costs time and gains nothing; JSON cannot hold bytes at all. The name
carries the key, ``etag`` the version and the seal.
"""

from __future__ import annotations

import random
from typing import Any

from nearcache.lab.workloads.payload import Payload

SIZE_BYTES = 10_000


class Thumbnail(Payload):
    letter = "T"
    title = "10 kB of compressed image"

    def build(self, rng: random.Random) -> None:
        self.body = rng.randbytes(SIZE_BYTES)

    def make(self, key: str, version: int) -> dict[str, Any]:
        return {
            "name": f"{key}.webp",
            "etag": f"{version}-{self.seal(key, version).hex()}",
            "type": "image/webp",
            "content": self.body,
        }

    def stamp_of(self, value: Any) -> object:
        return value["name"], value["etag"]
