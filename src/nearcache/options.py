"""Options of backends: frozen values that carry their unit, their range and their documentation.

A class of options is a dataclass whose fields are made with :func:`option`. From that one
place come the check of what a user wrote (unknown names get the nearest right one), the
conversion of units, and ``docs/options.md``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar, Self

from nearcache.errors import OptionError

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", start=1):
    # A cache is sized in what memory comes in: "256MB" is 256 MiB here, as in nginx and Redis.
    _UNITS |= dict.fromkeys((_letter, f"{_letter}B", f"{_letter}IB"), 1024**_power)

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


def option(
    name: str,
    doc: str,
    parse: Callable[[Any], Any],
    *,
    default: Any,
    shown_default: str | None = None,
) -> Any:
    """A field of an options class: ``name`` in ``OPTIONS``, and how to read its value."""
    shown = shown_default if shown_default is not None else f"`{default!r}`"
    return field(
        default=default, metadata={"name": name, "doc": doc, "parse": parse, "default": shown}
    )


@dataclass(frozen=True, kw_only=True)
class Options:
    """The base of all options classes."""

    backend: ClassVar[str]
    """The class a user names, for messages."""

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """The options a user wrote, checked; raises OptionError."""
        known = {each.metadata["name"]: each for each in option_fields(cls)}
        values = {}
        for name, value in given.items():
            if name not in known:
                raise OptionError.unknown(cls.backend, name, known)
            values[known[name].name] = cls._value(known[name], value)
        return cls(**values)

    @classmethod
    def _value(cls, each: Field[Any], value: Any) -> Any:
        try:
            return each.metadata["parse"](value)
        except ValueError as error:
            raise OptionError(cls.backend, each.metadata["name"], str(error)) from error


def option_fields(cls: type[Options]) -> Iterator[Field[Any]]:
    """The fields of an options class that a user may set."""
    return (each for each in fields(cls) if "name" in each.metadata and each.default is not MISSING)


def size_bytes(value: Any, at_least: int = 1, at_most: int = 2**46) -> int:
    """Bytes from a number or from text like ``"256MB"`` (units are powers of 1024)."""
    amount = _size(value)
    if not at_least <= amount <= at_most:
        raise ValueError(
            f"is {human_bytes(amount)}; it must be from {human_bytes(at_least)}"
            f" to {human_bytes(at_most)}"
        )
    return amount


def _size(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[2].upper() not in _UNITS:
        raise ValueError(f'is {value!r}; write a number of bytes, or a size like "256MB"')
    return int(float(match[1]) * _UNITS[match[2].upper()])


def sized(at_least: int, at_most: int) -> Callable[[Any], int]:
    """A parser of sizes in a range."""
    return lambda value: size_bytes(value, at_least, at_most)


def one_of(*names: str) -> Callable[[Any], str]:
    """A parser that knows these names only."""

    def parse(value: Any) -> str:
        if value not in names:
            raise ValueError(f"is {value!r}; it must be one of {', '.join(map(repr, names))}")
        return str(value)

    return parse


def seconds(value: Any) -> float:
    """A parser of durations: seconds, not negative."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value < float("inf"):
        raise ValueError(f"is {value!r}; write a number of seconds, 0 or more")
    return float(value)


def whole(at_least: int) -> Callable[[Any], int]:
    """A parser of whole numbers, also as digits in text, as Django takes them."""

    def parse(value: Any) -> int:
        text = str(value)
        if not re.fullmatch(r"-?[0-9]{1,18}", text) or int(text) < at_least:
            raise ValueError(f"is {value!r}; write a whole number, {at_least} or more")
        return int(text)

    return parse


def human_bytes(amount: int) -> str:
    """``268435456`` as ``256 MiB``: at most one decimal, and none that says nothing."""
    scaled, unit = float(amount), "B"
    for bigger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(scaled) < 1024:
            break
        scaled, unit = scaled / 1024, bigger
    text = f"{scaled:.1f}".removesuffix(".0")
    return f"{text} {unit}"


def human_duration(milliseconds: int) -> str:
    """``5400000`` as ``1 h 30 min``: the two largest units that are not zero."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    left, parts = milliseconds // 1000, []
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


@dataclass(frozen=True, kw_only=True)
class CacheOptions(Options):
    """What every cache of this package understands in ``OPTIONS``."""

    location: str
    serializer: str = option(
        "serializer",
        "How values become bytes. `auto` keeps exact types in a compact form and pickles the"
        " rest; `pickle` pickles everything; `json` takes what JSON holds, and a tuple comes"
        " back as a list. Values written under another setting stay readable.",
        one_of("auto", "pickle", "json"),
        default="auto",
    )
    compressor: str = option(
        "compressor",
        "`none` or `zlib`. A value that does not get smaller is kept as it is.",
        one_of("none", "zlib"),
        default="none",
    )
    compress_min_bytes: int = option(
        "compress_min",
        "Values below this size are not compressed.",
        sized(0, GIB),
        default=KIB,
        shown_default='`"1KB"`',
    )
    single_flight_s: float = option(
        "single_flight",
        "Seconds that `get_or_set` waits for another caller of this host to compute the same"
        " missing key, before it computes it as well. 0: everybody computes at once.",
        seconds,
        default=30.0,
    )
    max_entries: int | None = option(
        "MAX_ENTRIES",
        "Django's: the number of items at which some are culled. Memory is bounded by `size`"
        " anyway, so leave it out unless you mean a number of items; each `set` then looks"
        " first whether its key is new.",
        whole(0),
        default=None,
        shown_default="no limit",
    )
    cull_frequency: int = option(
        "CULL_FREQUENCY",
        "Django's: 1 in so many items goes when `MAX_ENTRIES` is reached; 0 empties the cache.",
        whole(0),
        default=3,
    )
