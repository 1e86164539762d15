"""Which Python types come back from a cache as what they were: tried, one by one.

A serializer that answers fast and gives a list for a tuple has not done the same work.
Every specimen is stored in the live cache and read again; the outcome is one of

    exact     the same type and the same value, all the way down
    becomes   something else, and what
    refused   an exception, and which: nothing wrong is stored, but the call fails

Here is also what a pickle that somebody else has put into the store can do
(:func:`runs_planted_code`), because the types a pickle keeps are paid for with that.
"""

from __future__ import annotations

import datetime as dt
import enum
import math
import pickle
import struct
import uuid
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

EXACT = "exact"
TIMEOUT_S = 60


@dataclass
class Point:
    x: int
    y: float


class Colour(enum.Enum):
    RED = "red"


class Count(int):
    """A number that knows what it counts."""


class Level(enum.IntEnum):
    HIGH = 3


Pair = namedtuple("Pair", "left right")  # noqa: PYI024 - the kind people have


def specimens() -> dict[str, Any]:
    """One value for each type, by the name a report gives it. Django must be set up."""
    from django.utils.safestring import mark_safe

    moment = dt.datetime.fromisoformat("2024-02-29T23:59:58.123456")  # naive
    found: dict[str, Any] = {
        "None": None,
        "bool": True,
        "int": 42,
        "int beyond 64 bits": 2**80,
        "float": 0.1,
        "negative zero": -0.0,
        "NaN": math.nan,
        "infinity": math.inf,
        "str": "naïve ☃",
        "bytes": b"\x00\xff",
        "list": [1, "two"],
        "dict": {"a": 1},
        "tuple": (1, 2),
        "set": {1, 2},
        "frozenset": frozenset({1}),
        "int keys": {1: "one"},
        "tuple keys": {(1, 2): "pair"},
        "Decimal": Decimal("1.10"),
        "datetime": moment,
        "aware datetime": moment.replace(tzinfo=dt.UTC),
        "zoned datetime": moment.replace(tzinfo=ZoneInfo("Europe/Berlin")),
        "date": moment.date(),
        "time": moment.time(),
        "timedelta": dt.timedelta(days=1, microseconds=1),
        "UUID": uuid.UUID(int=7),
        "SafeString": mark_safe("<b>"),
        "namedtuple": Pair(1, 2),
        "OrderedDict": OrderedDict(a=1),
        "enum": Colour.RED,
        "IntEnum": Level.HIGH,
        "int subclass": Count(3),
        "dataclass": Point(1, 2.0),
        "nested": [{"rows": [(1, {2})]}],
    }
    if model := _model():
        found["model instance"] = model
    return found


def _model() -> Any | None:
    """An unsaved row of a model that comes with Django, where that is installed."""
    from django.apps import apps

    if not apps.is_installed("django.contrib.contenttypes"):
        return None
    return apps.get_model("contenttypes", "ContentType")(app_label="shop", model="order")


def try_types(cache: Any, prefix: str, named: Mapping[str, Any] | None = None) -> dict[str, str]:
    """What becomes of each specimen: name -> "exact", "becomes ..." or "refused: ..."."""
    values = specimens() if named is None else named
    return {
        name: fate_of(cache, f"{prefix}:{at}", value)
        for at, (name, value) in enumerate(values.items())
    }


def fate_of(cache: Any, key: str, value: Any) -> str:
    """Store it, read it, and say what came back."""
    nothing = object()
    try:
        cache.set(key, value, TIMEOUT_S)
        found = cache.get(key, nothing)
    except Exception as error:  # noqa: BLE001 - every library has its own
        return f"refused: {type(error).__name__}"
    finally:
        cache.delete(key)
    if found is nothing:
        return "becomes a miss"
    if type(found) is not type(value):
        return f"becomes {type(found).__name__}"
    wrong = difference(value, found)
    return f"becomes {wrong}" if wrong else EXACT


def facts_of(fates: Mapping[str, str]) -> dict[str, str]:
    """The fates of all types as three lines that people can read; back: :func:`fates_in`."""
    kept = [name for name, fate in fates.items() if fate == EXACT]
    lost = {
        word: [f"{name} {fate}" for name, fate in fates.items() if fate.startswith(word)]
        for word in ("becomes", "refused")
    }
    said = {
        "keeps": ", ".join(kept),
        "changes": "; ".join(lost["becomes"]),
        "refuses": "; ".join(lost["refused"]),
    }
    return {fact: text for fact, text in said.items() if text}


def fates_in(facts: Mapping[str, str]) -> dict[str, str]:
    """Name of a type -> its fate, from the facts about a candidate; empty if none were tried."""
    fates = {name: EXACT for name in facts.get("keeps", "").split(", ") if name}
    for fact, word in (("changes", "becomes"), ("refuses", "refused:")):
        for said in filter(None, facts.get(fact, "").split("; ")):
            name, _, how = said.partition(f" {word} ")
            fates[name] = f"{word} {how}"
    return fates


def difference(wanted: Any, found: Any) -> str | None:
    """What ``found`` is instead of ``wanted``, in a word or two; None if they are the same."""
    if type(found) is not type(wanted):
        return f"{type(found).__name__}, was {type(wanted).__name__}"
    compare = _COMPARISONS.get(type(wanted), _plainly)
    return compare(wanted, found)


def types_in(value: Any) -> set[str]:
    """The names of all types in a value; ``int keys`` and the like for keys that are not text."""
    names = {type(value).__name__}
    if isinstance(value, Mapping):
        names |= {f"{type(key).__name__} keys" for key in value if type(key) is not str}
        return names.union(*map(types_in, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return names.union(*map(types_in, value))
    return names


def _plainly(wanted: Any, found: Any) -> str | None:
    if hasattr(wanted, "_meta"):  # a row of a model: equal only if it has been saved
        wanted, found = _fields(wanted), _fields(found)
    # The text as well: 1.10 and 1.1 are equal, and so are times in zones of the same offset.
    same = wanted == found and (repr(wanted) == repr(found) or isinstance(wanted, set | frozenset))
    return None if same else "another value"


def _fields(row: Any) -> dict[str, Any]:
    return {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}


def _floats(wanted: float, found: float) -> str | None:
    same = struct.pack(">d", wanted) == struct.pack(">d", found)
    return None if same or (math.isnan(wanted) and math.isnan(found)) else "another value"


def _items(wanted: Any, found: Any) -> str | None:
    if len(wanted) != len(found):
        return "another length"
    pairs = zip(wanted, found, strict=True)
    return next((wrong for a, b in pairs if (wrong := difference(a, b))), None)


def _mappings(wanted: Mapping[Any, Any], found: Mapping[Any, Any]) -> str | None:
    if wrong := _items(list(wanted), list(found)):
        return f"other keys: {wrong}"
    return _items(list(wanted.values()), list(found.values()))


_COMPARISONS: dict[type, Callable[[Any, Any], str | None]] = {
    float: _floats,
    list: _items,
    tuple: _items,
    dict: _mappings,
    OrderedDict: _mappings,
}

# -- what a planted pickle does -----------------------------------------------------------------

_executed: list[bool] = []


def note_execution() -> str:
    """What the planted pickle calls. Harmless, and it leaves a trace."""
    _executed.append(True)
    return "code ran"


class Planted:
    """Its pickle is a call, as an attacker's would be."""

    def __reduce__(self) -> Any:
        return note_execution, ()


def planted_pickles() -> list[bytes]:
    """The same call as the raw bytes of a value: bare, and behind nearcache's header byte."""
    bare = pickle.dumps(Planted())
    return [bare, b"\x83" + bare]


def runs_planted_code(cache: Any, write_raw: Callable[[str, bytes], None], key: str) -> bool:
    """Whether reading ``key`` runs the code of a pickle that ``write_raw`` has put there."""
    _executed.clear()
    for raw in planted_pickles():
        write_raw(key, raw)
        try:
            cache.get(key)
        except Exception:  # noqa: BLE001, S112 - refusing in any way is what one hopes for
            continue
        finally:
            cache.delete(key)
    return bool(_executed)
