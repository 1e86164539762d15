"""Who measures a candidate: one class for each kind of thing, run in the worker process.

An arm becomes its candidate (``begin``), proves that it is what its name says, and
then answers visits until the pipe closes. A new kind is one new file here; experiments
name it by its dotted path, so that a worker loads no other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from nearcache.lab.base.messages import Setup, Visit, Visited


class Unavailable(Exception):
    """Something this candidate needs is not on this machine; ``install`` is what to type."""

    def __init__(self, reason: str, install: str) -> None:
        super().__init__(reason)
        self.install = install


class WrongAnswer(Exception):
    """The candidate answered something else than is right, or failed; the message says where."""


class Arm(ABC):
    """One candidate in its own process. Any exception ends the candidate, with its words."""

    takes_own_aliases: ClassVar[bool] = False  # caches of the user's own settings
    takes_own_data: ClassVar[bool] = False  # values of the user's own, as payloads

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.candidate = setup.candidate

    @abstractmethod
    def begin(self) -> Mapping[str, str]:
        """Load, connect, prove work and treatment. Returns the proof: what it really is.

        Raises:
            Unavailable: something is not installed.
        """

    @abstractmethod
    def visit(self, visit: Visit) -> Visited:
        """One round: the operations of ``visit`` on its payload, every answer checked."""

    def end(self) -> None:  # noqa: B027 - most hold nothing but memory and sockets
        """Stop what was started. Called when the driver hangs up; not after SIGKILL."""
