"""The child's end of :mod:`nearcache.lab.arms.child`: one line of JSON in, one out.

It imports almost nothing, so that a child may patch the standard library before anything
that matters has been loaded. What others print goes to standard error: on the pipe every
line is an answer.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


class Link:
    """To the parent. Make it first: whatever is printed earlier would be taken for an answer."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def hear(self) -> dict[str, Any] | None:
        """What is asked; None when the parent has hung up."""
        line = sys.stdin.readline()
        return json.loads(line) if line else None

    def say(self, answer: object) -> None:
        self._answers.write(json.dumps(answer) + "\n")
        self._answers.flush()

    def fail(self, error: BaseException) -> None:
        """Say in one line what went wrong, in the words of who noticed."""
        said = (str(error).strip().splitlines() or [""])[0]
        own = type(error).__module__.startswith("nearcache.lab")
        self.say({"failed": said if own else f"{type(error).__name__}: {said}"})

    def miss(self, reason: str, install: str) -> None:
        """Say that something is not installed, and what to type."""
        self.say({"missing": reason, "install": install})
