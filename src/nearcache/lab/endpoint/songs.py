"""Look-ups of songs: large JSON blobs in a database, of which a page needs little.

The article's endpoint read a blob of an affiliate's API, scrubbed it of what a page does not
need (one part in 23 was left), and sent that as JSON. Same seed, same songs: whoever asks
can say what the answer must be without asking Django.
"""

from __future__ import annotations

import hashlib
import json
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from nearcache.lab.workloads.fragment import WORDS

SONGS = 200
MATCHES = 12  # of which the first is sent
SENT = ("title", "url", "price")


class Songs:
    """All songs of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        rng = random.Random(f"songs:{seed}")
        self._matches = [_match(rng) for _ in range(MATCHES)]

    def blob(self, song_id: int) -> dict[str, Any]:
        """What the database holds of a song, about 8 kB as JSON."""
        first = song_id % MATCHES
        return {
            "song": song_id,
            "seal": self._seal(song_id),
            "matches": self._matches[first:] + self._matches[:first],
        }

    def body(self, song_id: int) -> bytes:
        """What the endpoint must answer."""
        return json.dumps(scrubbed(self.blob(song_id))).encode()

    def _seal(self, song_id: int) -> str:
        text = f"{self.seed}:{song_id}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def scrubbed(blob: dict[str, Any]) -> dict[str, Any]:
    """The little that is sent: song and seal, and of the best match a few fields."""
    best = blob["matches"][0]
    return {
        "song": blob["song"],
        "seal": blob["seal"],
        "match": {name: best[name] for name in SENT},
    }


def make_database(path: Path, songs: Songs, ids: Sequence[int]) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE lookup (song INTEGER PRIMARY KEY, blob TEXT NOT NULL)")
        rows = ((song_id, json.dumps(songs.blob(song_id))) for song_id in ids)
        database.executemany("INSERT INTO lookup VALUES (?, ?)", rows)


def _match(rng: random.Random) -> dict[str, Any]:
    return {
        "title": " ".join(rng.choices(WORDS, k=5)).title(),
        "url": f"https://shop.example/{rng.getrandbits(64):016x}?tag=songs",
        "price": f"{rng.randrange(2000) / 100:.2f}",
        "product_type_name": "DOWNLOADABLE_MUSIC_TRACK",
        "studio": " ".join(rng.choices(WORDS, k=3)),
        "track_sequence": rng.randrange(20),
        "artists": [" ".join(rng.choices(WORDS, k=2)) for _ in range(4)],
        "description": " ".join(rng.choices(WORDS, k=45)),
    }
