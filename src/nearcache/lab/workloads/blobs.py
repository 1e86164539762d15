"""What a shop's API answered about one song: the JSON that seed 002 kept, in three sizes.

A list of matches, each a dict of some twenty fields, as an affiliate API returns them. The
head carries key, version and seal. Only types that JSON has, so that whatever stores it
as JSON gives back what it got.
"""

from __future__ import annotations

import json
import random
from typing import Any, ClassVar

from nearcache.lab.workloads.fragment import WORDS
from nearcache.lab.workloads.payload import Payload


class Blob(Payload):
    """``size_bytes`` of JSON, within a few per cent."""

    size_bytes: ClassVar[int]

    def build(self, rng: random.Random) -> None:
        self.matches: list[dict[str, Any]] = []
        room = self.size_bytes - len(json.dumps(self.make("key", 1)))
        while room > 0:
            match = _match(rng)
            # The last one is cut: an editorial review has any length.
            match["review"] = match["review"][: max(0, room - len(json.dumps(match)) + 200)]
            self.matches.append(match)
            room -= len(json.dumps(match)) + 2

    def make(self, key: str, version: int) -> dict[str, Any]:
        return {
            "song": key,
            "version": version,
            "seal": self.seal(key, version).hex(),
            "matches": self.matches,
        }

    def stamp_of(self, value: Any) -> object:
        return value["song"], value["version"], value["seal"]


class Blob1k(Blob):
    letter = "1k"
    title = "1 kB JSON blob"
    size_bytes = 1_000
    key_count = 30


class Blob10k(Blob):
    letter = "10k"
    title = "10 kB JSON blob"
    size_bytes = 10_000
    key_count = 30


class Blob100k(Blob):
    letter = "100k"
    title = "100 kB JSON blob"
    size_bytes = 100_000
    key_count = 10


BLOBS: dict[str, type[Blob]] = {blob.letter: blob for blob in (Blob1k, Blob10k, Blob100k)}


def _match(rng: random.Random) -> dict[str, Any]:
    asin = f"B{rng.getrandbits(40):09X}"[:10]
    return {
        "ASIN": asin,
        "DetailPageURL": f"https://www.amazon.com/dp/{asin}?tag={rng.choice(WORDS)}-20",
        "Title": " ".join(rng.choices(WORDS, k=4)).title(),
        "Artist": " ".join(rng.choices(WORDS, k=2)).title(),
        "ProductTypeName": "DOWNLOADABLE_MUSIC_TRACK",
        "TrackSequence": rng.randint(1, 20),
        "RunningTime": rng.randint(60, 600),
        "Price": {"Amount": rng.randint(69, 2999), "CurrencyCode": "USD"},
        "ReleaseDate": f"{rng.randint(1960, 2019)}-{rng.randint(1, 12):02}-01",
        "SalesRank": None if rng.random() < 0.3 else rng.randrange(10**6),
        "Image": f"https://images.example/I/{rng.getrandbits(56):014x}.jpg",
        "review": " ".join(rng.choices(WORDS, k=rng.randint(10, 60))),
    }
