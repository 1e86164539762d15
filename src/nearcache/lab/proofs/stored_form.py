"""What stored bytes are, found out without the code that wrote them.

Here are the marks of the formats and their own libraries, and nothing of
``nearcache.codec`` or django-redis: a setting that is ignored must show.

    first bytes        compressor         first byte   serializer
    78                 zlib               80 .. "."    pickle
    1f 8b              gzip               parses       JSON
    fd 37 7a 58 5a 00  lzma (.xz)         parses       MessagePack
    04 22 4d 18        lz4, a frame
    28 b5 2f fd        zstd, a frame

Values of nearcache have a byte in front that says both (see nearcache/codec/__init__.py),
and what it says is tried out as well.
"""

from __future__ import annotations

import gzip
import json
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

MARKS = (
    (b"\x1f\x8b", "gzip"),
    (b"\xfd7zXZ\x00", "lzma"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x78", "zlib"),  # last: the shortest mark
)
HEADER_SERIALIZERS = {
    1: "text",
    2: "exact",
    3: "pickle",
    4: "json",
    5: "ujson",
    6: "msgpack",
    8: "signed pickle",
    9: "bytes",
}
HEADER_COMPRESSORS = {0: "none", 1: "zlib", 2: "gzip", 3: "lzma", 4: "lz4", 5: "zstd", 6: "dict"}
# Which of them who can read. Anything else only Python, or only nearcache, can.
READERS = {"json": "JSON", "ujson": "JSON", "msgpack": "MessagePack", "text": "text", "bytes": "-"}


class UnknownForm(Exception):
    """Stored bytes are in no format that this module knows, or not in the one they claim."""


@dataclass(frozen=True)
class StoredForm:
    """Of one stored value."""

    serializer: str
    compressor: str
    payload: bytes  # what the serializer wrote
    has_header: bool = False

    def __str__(self) -> str:
        packed = "" if self.compressor == "none" else f", {self.compressor}"
        return f"{self.serializer}{packed}"

    @property
    def readers(self) -> str:
        """Who can read it: "Python only", "nearcache only", or any language."""
        if self.serializer.endswith("pickle"):
            return "Python only"
        if self.serializer not in READERS:
            return "nearcache only"
        steps = [READERS[self.serializer]]
        if self.serializer == "msgpack" and self.has_header:
            steps[0] += " (types beyond it are extensions)"
        if self.compressor != "none":
            steps.append(self.compressor)
        if self.has_header:
            steps.append("a header byte in front")
        return f"any language: {', '.join(steps)}"


def form_of(raw: bytes, *, has_header: bool, dictionary: bytes | None = None) -> StoredForm:
    """The form of a stored value; raises UnknownForm."""
    try:
        return _with_header(raw, dictionary) if has_header else _without_header(raw)
    except UnknownForm:
        raise
    except Exception as error:  # each library has its own
        raise UnknownForm(f"stored bytes {raw[:12]!r} are not what they claim: {error}") from error


def _with_header(raw: bytes, dictionary: bytes | None) -> StoredForm:
    header = raw[0]
    serializer = HEADER_SERIALIZERS.get(header & 0x0F)
    compressor = HEADER_COMPRESSORS.get(header >> 4 & 0x07)
    if header < 0x80 or serializer is None or compressor is None:
        raise UnknownForm(f"0x{header:02x} is no header of a stored value")
    payload = _unpackers(dictionary)[compressor](raw[1:])
    return StoredForm(_confirmed(serializer, payload), compressor, payload, has_header=True)


def _without_header(raw: bytes) -> StoredForm:
    for mark, compressor in MARKS:
        if raw.startswith(mark):
            payload = _unpackers(None)[compressor](raw)
            return StoredForm(_guessed(payload), compressor, payload)
    return StoredForm(_guessed(raw), "none", raw)


def _unpackers(dictionary: bytes | None) -> dict[str, Callable[[bytes], bytes]]:
    def lz4(packed: bytes) -> bytes:
        framed = packed.startswith(b"\x04\x22\x4d\x18")
        module: Any = import_module("lz4.frame" if framed else "lz4.block")
        unpacked: bytes = module.decompress(packed)
        return unpacked

    def zstd(packed: bytes, known: bytes | None = None) -> bytes:
        module: Any = import_module("zstandard")
        shared = module.ZstdCompressionDict(known) if known else None
        with module.ZstdDecompressor(dict_data=shared).stream_reader(packed) as reader:
            unpacked: bytes = reader.read()
        return unpacked

    return {
        "none": lambda packed: packed,
        "zlib": zlib.decompress,
        "gzip": gzip.decompress,
        "lzma": lzma.decompress,
        "lz4": lz4,
        "zstd": zstd,
        "dict": lambda packed: zstd(packed, dictionary),
    }


def _confirmed(serializer: str, payload: bytes) -> str:
    """The serializer that a header names, after its payload was read as that."""
    if serializer in ("json", "ujson"):
        json.loads(payload)
    elif serializer == "msgpack":
        _read_msgpack(payload)
    elif serializer == "pickle" and not _is_pickle(payload):
        raise UnknownForm("a header says pickle, and what follows is none")
    return serializer


def _guessed(payload: bytes) -> str:
    if _is_pickle(payload):
        return "pickle"
    try:
        json.loads(payload)
    except ValueError:
        _read_msgpack(payload)
        return "msgpack"
    return "json"


def _is_pickle(payload: bytes) -> bool:
    return payload[:1] == b"\x80" and payload[-1:] == b"."


def _read_msgpack(payload: bytes) -> None:
    msgpack: Any = import_module("msgpack")
    msgpack.unpackb(payload, strict_map_key=False)
