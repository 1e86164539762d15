"""Pages that are asked for in several spellings, and an nginx whose keys a rule has made one.

nginx cannot lower-case; a ``map`` with every URL of a plan in it can stand for any rule.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable

from nearcache._core import NginxKeyRules


def spelled(chance: random.Random, page: int, path: str = "/s") -> str:
    """A page as somebody asks for it: where from, and in which case."""
    value = chance.choice(["song", "song", "SONG", "Song"])
    source = chance.choice(["", "", "&utm_source=a", "&utm_source=b&utm_medium=c"])
    return f"{path}?q={value}{page}{source}"


def map_of(targets: Iterable[str], rules: str, variable: str) -> str:
    """A ``map`` that makes of each target what these rules make of it."""
    made = NginxKeyRules(rules)
    # Plain cases would be told apart without their case.
    cases = (
        f'"~^{re.escape(each)}$" "{made.apply(each.encode()).decode()}";'
        for each in dict.fromkeys(targets)
    )
    return f"map $request_uri ${variable} {{ {' '.join(cases)} }}"
