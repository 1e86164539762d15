"""msgpack in which exact Python types come back, and which other languages can read.

What msgpack has itself is written plainly: None, bool, int of 64 bits, float, str, bytes,
list, dict (keys of any type). The rest is an array that begins with a mark, or an extension:

    1  mark: the array is a tuple        2  a set        3  a frozenset      (no data)
   16  int        two's complement, big endian
   17  datetime   ISO 8601, then ";1" if `fold`, then "[Zone/Name]" if a ZoneInfo
   18  date       ISO 8601
   19  time       as datetime
   20  timedelta  days, seconds, microseconds: three int32, big endian
   21  Decimal    its text
   22  UUID       16 bytes

Marks, not extensions with the items inside: those would be parsed by a call within a call for
each level, on a C stack that hostile bytes could exhaust.

Everything else, subclasses included, is refused. So are `bytearray` and `memoryview`, which
msgpack would write as bytes.
"""

from __future__ import annotations

import datetime as dt
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

from nearcache.codec.errors import library

_TIMEDELTA = struct.Struct(">iii")
_BIN_OPCODES = (b"\xc4", b"\xc5", b"\xc6")


def dump(value: Any) -> bytes:
    msgpack = library("msgpack")
    try:
        payload: bytes = msgpack.packb(value, default=_extended, strict_types=True)
    except UnicodeEncodeError:  # lone surrogates
        payload = msgpack.packb(
            value, default=_extended, strict_types=True, unicode_errors="surrogatepass"
        )
    # msgpack asks nobody about a bytearray. Without these opcodes there is none.
    if any(opcode in payload for opcode in _BIN_OPCODES):
        _refuse_buffers(value)
    return payload


def load(payload: bytes) -> Any:
    return library("msgpack").unpackb(
        payload,
        list_hook=_unmarked,
        ext_hook=_restored,
        strict_map_key=False,
        unicode_errors="surrogatepass",
    )


class _Mark:
    """Stands first in an array that is no list."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[list[Any]], Any]) -> None:
        self.make = make


_MARKS = {1: _Mark(tuple), 2: _Mark(set), 3: _Mark(frozenset)}


def _unmarked(items: list[Any]) -> Any:
    if items and type(items[0]) is _Mark:
        return items[0].make(items[1:])
    return items


@cache
def _marks() -> dict[type, Any]:
    """The mark of each type, as msgpack writes it."""
    types: dict[int, type] = {1: tuple, 2: set, 3: frozenset}
    return {kind: library("msgpack").ExtType(code, b"") for code, kind in types.items()}


def _extended(value: Any) -> Any:
    kind = type(value)
    mark = _marks().get(kind)
    if mark is not None:
        return [mark, *value]
    if kind not in _EXTENSIONS:
        raise TypeError(f"a {kind.__name__} would not come back as what it is")
    code, write = _EXTENSIONS[kind]
    return library("msgpack").ExtType(code, write(value))


def _restored(code: int, data: bytes) -> Any:
    if code in _MARKS and not data:
        return _MARKS[code]
    return _READERS[code](data)


def _refuse_buffers(value: Any) -> None:
    kind = type(value)
    if kind in (bytearray, memoryview):
        raise TypeError(f"a {kind.__name__} would come back as bytes")
    if kind is dict:
        for item in value.values():
            _refuse_buffers(item)
    elif kind in (list, tuple):
        for item in value:
            _refuse_buffers(item)


# -- extensions ----------------------------------------------------------------------------


def _int(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def _moment(value: dt.datetime | dt.time) -> bytes:
    zone, suffix = value.tzinfo, ";1" if value.fold else ""
    if type(zone) is ZoneInfo and zone.key:
        value, suffix = value.replace(tzinfo=None), f"{suffix}[{zone.key}]"
    elif zone is not None and not _is_plain_offset(zone):
        raise TypeError(f"the time zone {zone!r} would not come back as what it is")
    return f"{value.isoformat()}{suffix}".encode()


def _is_plain_offset(zone: dt.tzinfo) -> bool:
    if type(zone) is not dt.timezone:
        return False
    return repr(zone) == repr(dt.timezone(zone.utcoffset(None)))  # a name of its own shows there


def _moment_from(
    kind: type[dt.datetime | dt.time],
) -> Callable[[bytes], dt.datetime | dt.time]:
    def read(data: bytes) -> dt.datetime | dt.time:
        text, _, zone = data.decode().removesuffix("]").partition("[")
        iso, _, fold = text.partition(";")
        value = kind.fromisoformat(iso).replace(fold=int(fold or 0))
        return value.replace(tzinfo=ZoneInfo(zone)) if zone else value

    return read


def _uuid(value: uuid.UUID) -> bytes:
    if value.is_safe is not uuid.SafeUUID.unknown:
        raise TypeError("a UUID that knows whether it is safe would forget it")
    return value.bytes


_EXTENSIONS: dict[type, tuple[int, Callable[[Any], bytes]]] = {
    int: (16, _int),
    dt.datetime: (17, _moment),
    dt.date: (18, lambda value: value.isoformat().encode()),
    dt.time: (19, _moment),
    dt.timedelta: (
        20,
        lambda value: _TIMEDELTA.pack(value.days, value.seconds, value.microseconds),
    ),
    Decimal: (21, lambda value: str(value).encode()),
    uuid.UUID: (22, _uuid),
}
_READERS: dict[int, Callable[[bytes], Any]] = {
    16: lambda data: int.from_bytes(data, "big", signed=True),
    17: _moment_from(dt.datetime),
    18: lambda data: dt.date.fromisoformat(data.decode()),
    19: _moment_from(dt.time),
    20: lambda data: dt.timedelta(*_TIMEDELTA.unpack(data)),
    21: lambda data: Decimal(data.decode()),
    22: lambda data: uuid.UUID(bytes=data),
}
