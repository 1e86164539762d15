"""The group of a key: keys that differ only in ids are one.

``http://127.0.0.1:8000/song/5246889/amazon`` is ``/song/<n>/amazon``: the groups of logs, by
the same native code (``groups.rs``), so that reports can be laid side by side.
"""

from __future__ import annotations

import re

from nearcache._core import nginx_group

UPSTREAM = re.compile(r"(?::\d+|//[\d.]+|//[^./]+|\])$")  # what begins a key, if it ends so


def split_key(key: str) -> tuple[str, str]:
    """(what stands before the path, path with arguments); the latter is empty without a slash."""
    scheme_ends = key.find("://")
    begin = key.find("/", scheme_ends + 3 if 0 <= scheme_ends < key.find("/") else 0)
    return (key[:begin], key[begin:]) if begin >= 0 else (key, "")


def shape_of(key: str) -> str:
    _, uri = split_key(key)
    if not uri:
        return "(keys without a path)"
    return nginx_group(uri.encode("utf-8", "backslashreplace")).decode("utf-8", "replace")


def is_tracking(argument: str) -> bool:
    """Does it only tell where a visitor came from? Groups leave such arguments out."""
    return shape_of(f"/?{argument}") == "/"
