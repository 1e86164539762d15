"""Options of backends: frozen values that carry their unit, their range and their documentation.

A class of options is a dataclass whose fields are made with :func:`option`. From that one
place come the check of what a user wrote (unknown names get the nearest right one), the
conversion of units, and ``docs/options.md``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from importlib.util import find_spec
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
            return parsed(each.metadata["parse"], value)
        except ValueError as error:
            raise OptionError(cls.backend, each.metadata["name"], str(error)) from error


def parsed(parse: Callable[[Any], Any], value: Any) -> Any:
    """What a parser makes of a value; ValueError for a value of a type that it does not know."""
    try:
        return parse(value)
    except (TypeError, OverflowError) as error:
        problem = f"is of the type {type(value).__name__}, which it cannot be; see docs/options.md"
        raise ValueError(problem) from error


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
    if not _is_finite(value) or value < 0:
        raise ValueError(f"is {value!r}; write a number of seconds, 0 or more")
    return float(value)


def some_seconds(value: Any) -> float:
    """A parser of timeouts: seconds above 0."""
    if not _is_finite(value) or value <= 0:
        raise ValueError(f"is {value!r}; write a number of seconds above 0")
    return float(value)


def _is_finite(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(value) < float("inf")


def share(value: Any) -> float:
    """A parser of parts of one: 0 to 1."""
    if not _is_finite(value) or not 0 <= value <= 1:
        raise ValueError(f"is {value!r}; write a number from 0 to 1")
    return float(value)


def whole(at_least: int, at_most: int | None = None) -> Callable[[Any], int]:
    """A parser of whole numbers, also as digits in text, as Django takes them."""
    most = 10**18 if at_most is None else at_most
    wanted = f"{at_least} or more" if at_most is None else f"{at_least} to {at_most}"

    def parse(value: Any) -> int:
        digits = str(value)
        if not re.fullmatch(r"-?[0-9]{1,18}", digits) or not at_least <= int(digits) <= most:
            raise ValueError(f"is {value!r}; write a whole number, {wanted}")
        return int(digits)

    return parse


def text(value: Any) -> str:
    """A parser of text; its errors do not repeat it, as it may be a password."""
    if not isinstance(value, str):
        raise ValueError(f"is a {type(value).__name__}; write text")
    return value


def yes_or_no(value: Any) -> bool:
    """A parser of True and False."""
    if not isinstance(value, bool):
        raise ValueError(f"is {value!r}; write True or False")
    return value


def installed(libraries: Mapping[str, str | None]) -> Callable[[Any], str]:
    """A parser of names, each with the library that it needs, which must be there."""
    known = one_of(*libraries)

    def parse(value: Any) -> str:
        name = known(value)
        library = libraries[name]
        if library and find_spec(library) is None:
            raise ValueError(f'is {name!r}, which needs {library}: pip install "nearcache[codecs]"')
        return name

    return parse


def several_of(*names: str) -> Callable[[Any], tuple[str, ...]]:
    """A parser of one or several of these names."""
    known = one_of(*names)
    return lambda value: tuple(known(each) for each in _listed(value))


class Secret(bytes):
    """Bytes that do not show in logs, tracebacks and the ``repr`` of options."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<secret>"

    __str__ = __repr__


def secrets(value: Any) -> tuple[Secret, ...]:
    """A parser of one secret or several, as text or bytes. Its errors do not repeat them."""
    found = []
    for each in _listed(value):
        if not isinstance(each, str | bytes):
            raise ValueError(f"holds a {type(each).__name__}; write text or bytes")
        found.append(Secret(each.encode() if isinstance(each, str) else each))
        if len(found[-1]) < SECRET_MIN_BYTES:
            raise ValueError(
                f"has {len(found[-1])} bytes; a secret needs {SECRET_MIN_BYTES} or more"
            )
    return tuple(found)


SECRET_MIN_BYTES = 16


def zstd_dictionaries(value: Any) -> tuple[str, ...]:
    """A parser of the paths of trained zstd dictionaries, one or several."""
    paths = tuple(os.fspath(each) for each in _listed(value))
    for path in paths:
        try:
            with open(path, "rb") as file:
                trained = file.read(4) == b"\x37\xa4\x30\xec"
        except OSError as error:
            raise ValueError(f"is {path!r}, which cannot be read ({error.strerror})") from error
        if not trained:
            raise ValueError(f"is {path!r}, no zstd dictionary; `nearcache codec train` makes one")
    return paths


def _listed(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


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
    """``5400000`` as ``1 h 30 min``: the largest unit, and what is left in the next one."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    left, counts = milliseconds // 1000, list[tuple[int, str]]()
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count or counts:
            counts.append((count, unit))
    return " ".join(f"{count} {unit}" for count, unit in counts[:2] if count)


@dataclass(frozen=True)
class Compression:
    """What options know of a compressor; its code is in ``nearcache.codec.compressors``."""

    library: str | None = None
    levels: range = range(0)
    default: int = 0

    @property
    def level_range(self) -> str:
        return f"{self.levels[0]} to {self.levels[-1]}"


SERIALIZERS: dict[str, str | None] = {
    "auto": None,
    "pickle": None,
    "json": None,
    "ujson": "ujson",
    "msgpack": "msgpack",
    "exact": None,
}
"""Names of serializers, each with the library it needs."""

COMPRESSORS = {
    "none": Compression(),
    "zlib": Compression(None, range(1, 10), 6),
    "gzip": Compression(None, range(1, 10), 6),
    "lzma": Compression(None, range(10), 1),  # its own default, 6, takes 94 MiB to pack
    "lz4": Compression("lz4", range(13), 0),
    "zstd": Compression("zstandard", range(-50, 23), 3),
    "brotli": Compression("brotli", range(12), 4),  # its own default, 11, is for static files
}


@dataclass(frozen=True, kw_only=True)
class CacheOptions(Options):
    """What every cache of this package understands in ``OPTIONS``."""

    unnamed_location: ClassVar[str] = "default"
    """Stands for a ``LOCATION`` that is empty or missing."""

    location: str
    serializer: str = option(
        "serializer",
        "How values become bytes. `auto` keeps exact types in a compact form and pickles the"
        " rest; `exact` is `auto` without pickle; `pickle` pickles everything; `json` (by orjson"
        " if that is installed) and `ujson` take what JSON holds, and a tuple comes back as a"
        " list; `msgpack` keeps exact types. What a serializer cannot hold raises a TypeError."
        " Values written under another setting stay readable, but see `allow_pickle`.",
        installed(SERIALIZERS),
        default="auto",
    )
    compressor: str = option(
        "compressor",
        "`none`, `zlib`, `gzip`, `lzma`, `lz4`, `zstd` or `brotli`. A value that does not get"
        " smaller is kept as it is. Values written under another setting stay readable.",
        installed({name: each.library for name, each in COMPRESSORS.items()}),
        default="none",
    )
    compress_level: int | None = option(
        "compress_level",
        "The compressor's own level: "
        + ", ".join(
            f"{name} {each.level_range}" for name, each in COMPRESSORS.items() if each.levels
        )
        + ". Higher is smaller and slower.",
        whole(-100),
        default=None,
        shown_default=", ".join(
            f"{name} {each.default}" for name, each in COMPRESSORS.items() if each.levels
        ),
    )
    compress_min_bytes: int | None = option(
        "compress_min",
        "Values below this size are not compressed.",
        sized(0, GIB),
        default=None,
        shown_default='`"1KB"`; with a dictionary `64`',
    )
    compress_dictionaries: tuple[str, ...] = option(
        "compress_dictionary",
        "For `zstd`: the path of a dictionary that `nearcache codec train` made of your values,"
        " which makes small ones a few times smaller. Every process needs the same file. A list"
        " of paths: the first is written with, the others still read.",
        zstd_dictionaries,
        default=(),
        shown_default="none",
    )
    unpacked_max_bytes: int = option(
        "max_unpacked",
        "What a compressed value may at most unpack to. More is a miss, and counted, so that a"
        " few hostile bytes cannot fill the memory.",
        sized(KIB, 64 * GIB),
        default=512 * MIB,
        shown_default='`"512MB"`',
    )
    allow_pickle: bool | None = option(
        "allow_pickle",
        "Whether pickles are read. Unpickling runs whatever code the bytes ask for, so who can"
        " write the cache can run code here. `False`: a pickle is a miss, and counted; and `auto`"
        " is as `exact`. `True` beside another serializer: pickles from before stay readable.",
        yes_or_no,
        default=None,
        shown_default="whether `serializer` writes them",
    )
    sign_keys: tuple[Secret, ...] = option(
        "sign_key",
        "A secret of 16 bytes or more: pickles are signed with it (HMAC-SHA256), and one that is"
        " unsigned or signed with another is a miss, and counted. A list: the first signs, the"
        " others are still accepted. `[SECRET_KEY, *SECRET_KEY_FALLBACKS]` will do. Values that"
        " are no pickles run no code and are not signed.",
        secrets,
        default=(),
        shown_default="none",
    )
    single_flight_s: float = option(
        "single_flight",
        "Seconds that `get_or_set` waits for another caller, in whatever process, to compute the"
        " same missing key, before it computes it as well. 0: everybody computes at once.",
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

    tests: str = option(
        "tests",
        "What a test run gets. `apart`: a cache of its own for each of its workers, which ends"
        " with the run, so that no test reads or clears what a live site holds. `live`: the"
        " cache as it is configured, for tests that have one of their own.",
        one_of("apart", "live"),
        default="apart",
    )

    codec_fields: ClassVar[tuple[str, ...]] = (
        "serializer",
        "compressor",
        "compress_level",
        "compress_min_bytes",
        "compress_dictionaries",
        "unpacked_max_bytes",
        "allow_pickle",
        "sign_keys",
    )

    @property
    def codec_key(self) -> Hashable:
        """What the codec depends on: caches that agree in it share one."""
        return tuple(getattr(self, name) for name in self.codec_fields)

    @property
    def native_codec(self) -> bool:
        """Whether the codec is the native module's own, which also unpickles what it reads."""
        plain = self.serializer == "auto" and self.compressor == "none"
        return plain and self.allow_pickle is not False and not self.sign_keys

    def __post_init__(self) -> None:
        levels = COMPRESSORS[self.compressor].levels
        if self.compress_level is not None and self.compress_level not in levels:
            allowed = COMPRESSORS[self.compressor].level_range if levels else "left out"
            problem = f"is {self.compress_level}; with {self.compressor!r} it must be {allowed}"
            self._refuse("compress_level", problem)
        if self.compress_dictionaries and self.compressor != "zstd":
            self._refuse("compress_dictionary", "needs compressor 'zstd'")
        if self.serializer == "pickle" and self.allow_pickle is False:
            self._refuse("allow_pickle", "is False, and serializer is 'pickle'")

    def _refuse(self, name: str, problem: str) -> None:
        raise OptionError(self.backend, name, problem)


FOREIGN_FORMATS: dict[str, tuple[set[str], set[str]]] = {
    "django": ({"auto", "pickle"}, {"none"}),
    "django-redis": (
        {"auto", "pickle", "json", "msgpack"},
        {"none", "zlib", "gzip", "lzma", "lz4", "zstd"},
    ),
}
"""Formats of other backends, with the serializers and the compressors that they know."""


@dataclass(frozen=True, kw_only=True)
class ServerCacheOptions(CacheOptions):
    """What a cache on a server understands besides, which other programs may have filled."""

    compat: str = option(
        "compat",
        "Write and read values exactly as another backend does, to share the cache with it:"
        " `django` (Django's own RedisCache) or `django-redis`, whose `serializer` and"
        " `compressor` are set here as there. `none`: our own format.",
        one_of("none", *FOREIGN_FORMATS),
        default="none",
    )
    read_formats: tuple[str, ...] = option(
        "read_formats",
        "Formats of other backends that are read besides our own, for a move without a cold"
        " cache: `django`, `django-redis` or both. Pickles and JSON are told apart, compressed"
        " or not; msgpack and pickle protocols 0 and 1 cannot be.",
        several_of(*FOREIGN_FORMATS),
        default=(),
        shown_default="none",
    )

    codec_fields = (*CacheOptions.codec_fields, "compat", "read_formats")

    @property
    def native_codec(self) -> bool:
        return super().native_codec and self.compat == "none" and not self.read_formats

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.compat == "none":
            return
        serializers, compressors = FOREIGN_FORMATS[self.compat]
        if self.serializer not in serializers or self.compressor not in compressors:
            self._refuse(
                "compat",
                f"{self.compat!r} knows the serializers {', '.join(sorted(serializers))}"
                f" and the compressors {', '.join(sorted(compressors))}",
            )
        if self.sign_keys or self.compress_dictionaries or self.read_formats:
            self._refuse(
                "compat",
                f"{self.compat!r} has no room for sign_key, compress_dictionary or read_formats",
            )
        if self.serializer in {"auto", "pickle"} and self.allow_pickle is False:
            self._refuse("allow_pickle", f"is False, and compat {self.compat!r} writes pickles")
