"""Values that say what they are, so that a reader can tell a right one from any wrong one.

    crc32 | owner | sequence | key length | filler length | key | filler

The filler follows from key, owner and sequence: bytes of two values never pass for one.
"""

from __future__ import annotations

import struct
import zlib
from hashlib import blake2b
from typing import NamedTuple

HEAD = struct.Struct("<IHQHI")


class Violation(Exception):
    """The store did what it must never do."""


class Seen(NamedTuple):
    owner: int
    sequence: int


def make(key: str, owner: int, sequence: int, filler_bytes: int) -> bytes:
    raw_key = key.encode()
    rest = raw_key + _filler(raw_key, owner, sequence, filler_bytes)
    head = HEAD.pack(0, owner, sequence, len(raw_key), filler_bytes)[4:]
    return zlib.crc32(rest, zlib.crc32(head)).to_bytes(4, "little") + head + rest


def read(key: str, value: bytes) -> Seen:
    """What the value says of itself; raises Violation if it is torn or another key's."""
    if not isinstance(value, bytes) or len(value) < HEAD.size:
        raise Violation(f"{key}: foreign: {value!r:.200} is none of our values")
    crc, owner, sequence, key_bytes, filler_bytes = HEAD.unpack_from(value)
    about = f"{key}: owner {owner}, sequence {sequence}, {len(value)} bytes"
    if zlib.crc32(memoryview(value)[4:]) != crc:
        raise Violation(f"{about}: torn: wrong checksum")
    if value[HEAD.size : HEAD.size + key_bytes] != key.encode():
        raise Violation(f"{about}: foreign: it is of {value[HEAD.size : HEAD.size + key_bytes]!r}")
    filler = _filler(key.encode(), owner, sequence, filler_bytes)
    if value[HEAD.size + key_bytes :] != filler:
        raise Violation(f"{about}: torn: wrong filler")
    return Seen(owner, sequence)


def _filler(raw_key: bytes, owner: int, sequence: int, size: int) -> bytes:
    block = blake2b(raw_key + owner.to_bytes(2, "little") + sequence.to_bytes(8, "little"))
    return (block.digest() * (size // 64 + 1))[:size]
