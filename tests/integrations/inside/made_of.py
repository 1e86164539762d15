"""Types that pickles refer to by name, so they must have one."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import IntegerChoices, TextChoices
from pydantic import BaseModel


class Colour(enum.Enum):
    RED = "red"


class Rank(enum.IntEnum):
    LOW = 1


class Flags(enum.Flag):
    A = 1
    B = 2


class Name(enum.StrEnum):
    ADA = "ada"


class Size(TextChoices):
    BIG = "b", "big one"


class Step(IntegerChoices):
    FIRST = 1, "first one"


@dataclass
class Plain:
    name: str
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Frozen:
    price: Decimal
    rank: Rank


class Point(NamedTuple):
    x: int
    y: float


class Order(BaseModel):
    id: UUID
    price: Decimal
    tags: set[str]
    more: dict[str, Any] = {}


class Text(str):  # noqa: SLOT000 - as people write it
    """A str that is more."""
