"""The header of an nginx cache file: where each member lies, for every version and machine.

nginx writes the C structure ``ngx_http_file_cache_header_t`` as it lies in memory, so
its members move with the version of nginx, the size of a word and of ``time_t``, the
alignment and the byte order. Each combination is a :class:`Layout` with its offsets
computed as a C compiler would; which one a file has is decided in cachefile.py by what
can be proven from the file.

    version   nginx                 what came with it
    none      up to 1.7.2           three times, crc32, offsets
    1         1.7.3 in development  the version itself
    2         1.7.3 to 1.7.6        etag of at most 42 bytes
    3         1.7.7 to 1.11.9       vary of at most 42 bytes, variant
    4         1.11.10 in development  updating_sec, error_sec
    5         1.11.10 to this day   etag and vary of at most 128 bytes

Source: src/http/ngx_http_cache.h in the history of nginx.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from struct import Struct
from typing import Any, Literal

ByteOrder = Literal["little", "big"]
Member = tuple[str, str]  # name, type: "word", "time", "u32", "u16", "u8" or a number of bytes

_TIMES: Sequence[Member] = (("last_modified", "time"), ("date", "time"))
_OFFSETS: Sequence[Member] = (
    ("crc32", "u32"),
    ("valid_msec", "u16"),
    ("header_start", "u16"),
    ("body_start", "u16"),
)
_STALE: Sequence[Member] = (("updating_sec", "time"), ("error_sec", "time"))
_VERSION: Sequence[Member] = (("version", "word"),)
_VALID: Sequence[Member] = (("valid_sec", "time"),)


def _etag(length: int) -> Sequence[Member]:
    return (("etag_len", "u8"), ("etag", str(length)))


def _vary(length: int) -> Sequence[Member]:
    return (("vary_len", "u8"), ("vary", str(length)), ("variant", "16"))


MEMBERS: Mapping[int | None, Sequence[Member]] = {
    5: (*_VERSION, *_VALID, *_STALE, *_TIMES, *_OFFSETS, *_etag(128), *_vary(128)),
    3: (*_VERSION, *_VALID, *_TIMES, *_OFFSETS, *_etag(42), *_vary(42)),
    2: (*_VERSION, *_VALID, *_TIMES, *_OFFSETS, *_etag(42)),
    4: (*_VERSION, *_VALID, *_STALE, *_TIMES, *_OFFSETS, *_etag(42), *_vary(42)),
    1: (*_VERSION, *_VALID, *_TIMES, *_OFFSETS),
    None: (*_VALID, *_TIMES, *_OFFSETS),
}


@dataclass(frozen=True)
class Machine:
    """What a C compiler must know to lay out the structure."""

    name: str
    order: ByteOrder
    word: int  # bytes of ngx_uint_t
    time: int  # bytes of time_t
    widest: int  # no member is aligned to more than this


MACHINES = (
    Machine("64-bit", "little", 8, 8, 8),
    Machine("64-bit, big endian", "big", 8, 8, 8),
    Machine("32-bit", "little", 4, 4, 4),
    Machine("32-bit, 64-bit time", "little", 4, 8, 8),
    Machine("i386, 64-bit time", "little", 4, 8, 4),
    Machine("32-bit, big endian", "big", 4, 4, 4),
    Machine("32-bit, 64-bit time, big endian", "big", 4, 8, 8),
)


def _up(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


@dataclass(frozen=True)
class Field:
    offset: int
    size: int
    kind: str

    @property
    def signed(self) -> bool:
        return self.kind == "time"

    @property
    def code(self) -> str:
        """As the module struct has it."""
        if self.kind.isdigit():
            return f"{self.kind}s"
        letter = {1: "B", 2: "H", 4: "I", 8: "Q"}[self.size]
        return letter.lower() if self.signed else letter


@dataclass(frozen=True)
class Layout:
    """One version on one kind of machine. ``fields`` has only what this version has."""

    version: int | None
    machine: Machine

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        return self._placed[0]

    @cached_property
    def size(self) -> int:
        """Bytes of the structure, with the padding at its end; the key marker follows."""
        return self._placed[1]

    @cached_property
    def _placed(self) -> tuple[dict[str, Field], int]:
        fields: dict[str, Field] = {}
        offset, widest = 0, 1
        for name, kind in MEMBERS[self.version]:
            size, alignment = self._measures(kind)
            offset = _up(offset, alignment)
            fields[name] = Field(offset, size, kind)
            offset += size
            widest = max(widest, alignment)
        return fields, _up(offset, widest)

    def _measures(self, kind: str) -> tuple[int, int]:
        """(size, alignment) of a type."""
        sizes = {"word": self.machine.word, "time": self.machine.time, "u32": 4, "u16": 2, "u8": 1}
        if kind not in sizes:
            return int(kind), 1
        return sizes[kind], min(sizes[kind], self.machine.widest)

    def values(self, head: bytes) -> dict[str, Any]:
        """All members by name: numbers, and counted strings as far as their length says."""
        found = dict(zip(self.fields, self._struct.unpack_from(head), strict=True))
        for name in ("etag", "vary"):
            if name in found:
                found[name] = found[name][: found[f"{name}_len"]]
        return found

    @cached_property
    def _struct(self) -> Struct:
        parts, at = [], 0
        for field in self.fields.values():
            parts.append(f"{field.offset - at}x{field.code}")
            at = field.offset + field.size
        order = {"little": "<", "big": ">"}[self.machine.order]
        return Struct(f"{order}{''.join(parts)}{self.size - at}x")

    def pack_number(self, name: str, value: int) -> bytes:
        field = self.fields[name]
        return value.to_bytes(field.size, self.machine.order, signed=field.signed)

    def __str__(self) -> str:
        version = "without version" if self.version is None else f"version {self.version}"
        return f"{version}, {self.machine.name}"


# In the order in which they are tried: today's first.
LAYOUTS = tuple(Layout(version, machine) for machine in MACHINES for version in MEMBERS)
BY_SIZE = {
    size: tuple(layout for layout in LAYOUTS if layout.size == size)
    for size in dict.fromkeys(layout.size for layout in LAYOUTS)
}
LARGEST = max(BY_SIZE)
assert Layout(5, MACHINES[0]).size == 336
assert Layout(3, MACHINES[0]).size == 144
assert Layout(2, MACHINES[0]).size == 88
assert Layout(None, MACHINES[0]).size == 40
