"""What the site stores and answers: values that say whose they are, of which key and version.

A value is a dict with a checksum over all that it says, so that a reader can tell the right one
from another user's, from another key's, from an older one and from a torn one.
"""

from __future__ import annotations

import itertools
import os
import zlib
from typing import Any

EVERYBODY = "everybody"
_numbers = itertools.count()


class Wrong(Exception):
    """An answer is not what it must be."""


def make(
    user: str, key: str, version: int | None = None, filler_bytes: int = 200
) -> dict[str, Any]:
    """A value; without a version it gets one that no other has."""
    if version is None:
        version = os.getpid() << 32 | next(_numbers)
    value = {"user": user, "key": key, "version": version}
    words = f"{user}/{key}/{version}."
    value["filler"] = (words * (filler_bytes // len(words) + 1))[:filler_bytes]
    value["sum"] = checksum(value)
    return value


def checksum(value: dict[str, Any]) -> int:
    told = "|".join(str(value[name]) for name in ("user", "key", "version", "filler"))
    return zlib.crc32(told.encode())


def read(user: str, key: str, value: Any) -> int:
    """The version of a value; raises Wrong if it is torn or not this user's of this key."""
    if not isinstance(value, dict) or value.keys() != {"user", "key", "version", "filler", "sum"}:
        raise Wrong(f"torn: {value!r:.300} is none of our values")
    if checksum(value) != value["sum"]:
        raise Wrong(f"torn: the checksum of {value!r:.300}")
    if (value["user"], value["key"]) != (user, key):
        raise Wrong(f"foreign: {user} asked for {key} and got {value!r:.300}")
    version: int = value["version"]
    return version
