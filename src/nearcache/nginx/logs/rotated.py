"""The names of rotated logs: which log a file belongs to, and which of its files is newer.

Not here: reading any of them (``files.py``), and what is copied away while it is followed
(``copied.py``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

PACKED = re.compile(r"\.(gz|zst|zstd|bz2|xz)$")
_NUMBER = re.compile(r"\.(\d{1,5})$")
_DATE = re.compile(r"[-_.]?(\d{4}-?\d\d-?\d\d(?:[-_T]?\d{2,6})?)(?!\d)")


def is_access_log(name: str) -> bool:
    """By its name: ``access.log``, ``site.log-20261121.gz``, ``access_log.3``; no error log."""
    base, _ = rotation(name)
    return base.endswith("log") and "error" not in base


def rotation(path: str) -> tuple[str, tuple[int, str, int]]:
    """The log that a file belongs to, and its place in time: the greater, the newer."""
    directory, name = os.path.split(path)
    name = PACKED.sub("", name)
    number = _NUMBER.search(name)
    name = _NUMBER.sub("", name)
    date = _DATE.search(name)
    base = os.path.join(directory, _DATE.sub("", name))
    if date:
        return base, (0, re.sub(r"\D", "", date[1]), -int(number[1]) if number else 0)
    return base, (1, "", -int(number[1])) if number else (2, "", 0)


def in_order_of_time(names: Sequence[str]) -> list[str]:
    """Files of one log from the oldest to the newest; logs as they were first named."""
    bases: dict[str, list[str]] = {}
    for name in names:
        bases.setdefault(rotation(name)[0], []).append(name)
    return [
        name for each in bases.values() for name in sorted(each, key=lambda name: rotation(name)[1])
    ]
