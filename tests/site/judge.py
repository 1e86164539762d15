"""What is excused when, and what is not.

A fault opens a window, and says what it excuses. Something that happened between two moments
is excused if a window that excuses it was open for a part of that time: a value that was there
before the server lost its data may be found missing long after.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

NEVER_EXCUSED = ("foreign", "wrong", "torn", "token", "hanging")
"""Tokens grow even when the store lost all it had (docs/locks.md)."""
MOST_KEPT = 20
"""Violations that are written down; the others are counted."""


@dataclass
class Window:
    excuses: frozenset[str]
    began: float
    ended: float = math.inf

    def open_within(self, since: float, until: float) -> bool:
        return self.began <= until and since <= self.ended


@dataclass
class Judge:
    windows: list[Window] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    excused: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _lines_read: int = 0

    def opens(self, excuses: Iterable[str]) -> Window:
        window = Window(frozenset(excuses), time.monotonic())
        self.windows.append(window)
        return window

    def count(self, what: str, more: int = 1) -> None:
        with self._lock:
            self.counts[what] += more

    def blame(self, names: Iterable[str], text: str, since: float, where: str = "") -> None:
        """Something is not as it should be; it is excused under any of its names.

        ``where`` it was is counted with what is excused.
        """
        names, until = list(names), time.monotonic()
        with self._lock:
            if self._is_excused(names, since, until):
                self.excused[f"{names[0]} in {where}" if where else names[0]] += 1
                return
            self.counts["violations"] += 1
            if len(self.violations) < MOST_KEPT:
                self.violations.append(f"{names[0]}: {text}")

    def _is_excused(self, names: list[str], since: float, until: float) -> bool:
        if set(names) & set(NEVER_EXCUSED):
            return False
        return any(
            window.open_within(since, until) and window.excuses & set(names)
            for window in self.windows
        )

    def hear(self, told: Path, reaches_back_s: float) -> None:
        """What the site itself has told since the last time (project/alone.py)."""
        lines = told.read_text().splitlines() if told.exists() else []
        for line in lines[self._lines_read :]:
            found = json.loads(line)
            self.blame([found["kind"]], found["text"], found["at"] - reaches_back_s)
        self._lines_read = len(lines)
