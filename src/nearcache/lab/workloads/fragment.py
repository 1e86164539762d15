"""H: a rendered HTML fragment of 10 kB, what ``{% cache %}`` stores.

The opening tag carries key, version and seal as data attributes.
"""

from __future__ import annotations

import random
import re
from typing import Any

from nearcache.lab.workloads.payload import Payload

SIZE_CHARS = 10_000
WORDS = (
    "cache",
    "page",
    "user",
    "order",
    "price",
    "stock",
    "green",
    "small",
    "light",
    "river",
    "stone",
    "paper",
    "cloud",
    "early",
    "north",
    "quiet",
    "simple",
    "useful",
    "garden",
    "window",
    "summer",
    "market",
    "second",
    "letter",
)
STAMP = re.compile(r'<article data-key="([^"]+)" data-version="(\d+)" data-seal="([0-9a-f]+)">')


class Fragment(Payload):
    letter = "H"
    title = "10 kB HTML fragment"

    def build(self, rng: random.Random) -> None:
        lines: list[str] = []
        size = 0
        while size < SIZE_CHARS:
            lines.append(_item(rng))
            size += len(lines[-1])
        self.body = "".join(lines)[:SIZE_CHARS]

    def make(self, key: str, version: int) -> str:
        seal = self.seal(key, version).hex()
        head = f'<article data-key="{key}" data-version="{version}" data-seal="{seal}">\n'
        return head + self.body + "\n</article>\n"

    def stamp_of(self, value: Any) -> object:
        match = STAMP.match(value)
        return match and match.groups()


def _item(rng: random.Random) -> str:
    words = " ".join(rng.choices(WORDS, k=rng.randint(6, 14)))
    number = rng.randrange(10**6)
    return (
        f'<li class="product"><a href="/p/{number}/"><img src="/m/{number}.jpg" alt=""></a>'
        f"<h3>{words.title()}</h3><p>{words}</p><b>{number / 100:.2f}</b></li>\n"
    )
