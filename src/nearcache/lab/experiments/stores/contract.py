"""What the ``stores`` experiment asks of each of its stores, and how durability is proven."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


class WrongDurability(Exception):
    """The store promises more or less than its name says; the message says what."""


@dataclass(frozen=True)
class Durability:
    """What becomes of a write that was acknowledged, and how one knows."""

    promise: str  # in words, for the report
    settings: str  # as the server itself says
    evidence: str  # what was seen when it was tried


class Store(ABC):
    """Keeps JSON under whole numbers. One connection, which opens when it is needed."""

    def create(self) -> None:  # noqa: B027 - most need nothing
        """Make what the values are kept in."""

    @abstractmethod
    def write(self, identity: int, value: Any) -> None:
        """Store a new number's value; acknowledged when this returns."""

    @abstractmethod
    def read(self, identity: int) -> Any:
        """The value as Python's dicts and lists. Raises if there is none."""

    @abstractmethod
    def read_elsewhere(self, identity: int) -> Any:
        """The same, as somebody with a client and a connection of his own finds it."""

    @abstractmethod
    def disconnect(self) -> None:
        """Drop the connection; the next call makes a new one."""

    @abstractmethod
    def empty(self) -> None:
        """Forget everything that was written. Not timed."""

    @abstractmethod
    def durability(self, write: Callable[[], None]) -> Durability:
        """What the server says of itself, on another connection, and what ``write`` showed.

        Raises:
            WrongDurability: it is not what this candidate stands for.
        """

    def proof(self) -> Mapping[str, str]:
        """What this store really is, from its live objects."""
        return {}

    def parts(self) -> dict[str, float]:
        """Mean ns of the parts of what was timed since the last call, for stores of several."""
        return {}
