"""D and L: what an API or a search answers, a JSON document of 20 kB, and one of 1 MB.

Only what JSON has: dicts with text keys, lists, text, whole numbers, floats, booleans and
null. So no serializer has an excuse, and those that keep more types than these show what
that costs. The head carries key, version and seal.
"""

from __future__ import annotations

import json
import random
from typing import Any, ClassVar

from nearcache.lab.workloads.fragment import WORDS
from nearcache.lab.workloads.payload import Payload


class Document(Payload):
    letter = "D"
    title = "20 kB JSON document"
    product_count: ClassVar[int] = 78

    def build(self, rng: random.Random) -> None:
        products = [_product(rng, number) for number in range(self.product_count)]
        # As parsed from a response: equal words are objects of their own, which pickle
        # would otherwise write only once.
        self.body = json.loads(json.dumps(products))

    def make(self, key: str, version: int) -> dict[str, Any]:
        return {
            "query": {"q": key, "page": version, "cursor": self.seal(key, version).hex()},
            "took_ms": 12.75,
            "total": self.product_count,
            "results": self.body,
        }

    def stamp_of(self, value: Any) -> object:
        return tuple(value["query"].values())


class LargeDocument(Document):
    letter = "L"
    title = "1 MB JSON document"
    key_count = 4
    product_count = 3900


def _product(rng: random.Random, number: int) -> dict[str, Any]:
    return {
        "id": rng.randrange(10**6),
        "slug": "-".join(rng.choices(WORDS, k=3)),
        "name": " ".join(rng.choices(WORDS, k=4)).title(),
        "price": {"amount": rng.randrange(10**4) / 100, "currency": "EUR"},
        "in_stock": rng.random() < 0.8,
        "discount": None if rng.random() < 0.7 else round(rng.random() / 2, 2),
        "tags": rng.choices(WORDS, k=rng.randint(1, 5)),
        "rating": rng.random() * 5,
        "image": f"/media/{rng.getrandbits(48):012x}.jpg",
        "rank": number,
    }
