"""S: the small dict of seed 004, 5 fields, about 110 bytes pickled.

``from`` carries the key, ``weight`` the version, ``address`` the seal.
"""

from __future__ import annotations

import uuid
from typing import Any

from nearcache.lab.workloads.payload import Payload, number_of


class SmallDict(Payload):
    letter = "S"
    title = "small dict"

    def make(self, key: str, version: int) -> dict[str, Any]:
        return {
            "from": f"359{number_of(key):09d}",
            "address": str(uuid.UUID(bytes=self.seal(key, version))),
            "hour": "12:30",
            "weight": version % 256,  # one byte of pickle, as the original 5 was
            "type": 1,
        }

    def stamp_of(self, value: Any) -> object:
        return value["from"], value["weight"], value["address"]
