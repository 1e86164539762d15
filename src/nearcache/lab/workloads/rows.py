"""Q: what ``list(queryset.values())`` gives, about 100 kB pickled.

Rows of int, str, Decimal, bool and aware datetime: types that a JSON serializer
would change. The first row carries key, version and seal.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from nearcache.lab.workloads.payload import Payload, number_of

ROW_COUNT = 955
EPOCH = datetime(2024, 1, 1, tzinfo=UTC)


class Rows(Payload):
    letter = "Q"
    title = "100 kB list of rows"
    key_count = 20  # get_many(20) asks for all of them

    def build(self, rng: random.Random) -> None:
        self.body = [_row(rng, identity) for identity in range(1, ROW_COUNT)]

    def make(self, key: str, version: int) -> list[dict[str, Any]]:
        first = {
            "id": number_of(key),
            "name": self.seal(key, version).hex(),
            "price": Decimal(version),
            "active": True,
            "created": EPOCH,
        }
        return [first, *self.body]

    def stamp_of(self, value: Any) -> object:
        return value[0]["id"], value[0]["price"], value[0]["name"]


def _row(rng: random.Random, identity: int) -> dict[str, Any]:
    return {
        "id": identity,
        "name": f"{rng.getrandbits(128):032x}" + "-product" * rng.randint(1, 3),
        "price": Decimal(rng.randrange(10**5)) / 100,
        "active": rng.random() < 0.8,
        "created": EPOCH + timedelta(seconds=rng.randrange(10**8)),
    }
