"""The file of a recording: blocks of records, each block complete in itself.

    block     4 bytes  "NCR1"
              4        length of the head      all numbers big-endian
              4        number of records
              4        CRC-32 of head and records
              head     JSON: process, share, backend, prefixes, types, lost, errors
              records  36 bytes each

    record    8  time       ns since 1970, by the monotonic clock: it never runs backwards
              8  key        keyed BLAKE2b of key and version; nobody without the salt can undo it
              4  latency    ns; the greatest value means "as long or longer"
              4  size       bytes of the value, pickled unless it is text, bytes or a number;
                            the greatest value means "not known"
              4  ttl        ms; 0 none given, the greatest value "never expires"
              2  prefix     number in the head's list: the first word of the key
              2  of         keys in the call, of which this is one
              1  operation  number in ``OPERATIONS``
              1  outcome    bits: see ``Outcome``
              1  type       number in the head's list: the type of the value
              1  squeezed   255 x what zlib makes of the value's first 16 kB; 0 not known

Many processes append to one file, each block with one ``write`` to a descriptor opened with
``O_APPEND``. A process that dies in the middle, or a disk that fills, leaves a torn block: a
reader counts it, looks for the next magic whose checksum is right, and goes on. Big-endian,
so that records sort by time as plain bytes.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from pathlib import Path
from typing import Any, NamedTuple

MAGIC = b"NCR1"
FORMAT = 1
HEADER = struct.Struct(">4sIII")
RECORD = struct.Struct(">QQIIIHHBBBB")
assert RECORD.size == 36, "the format: another layout is another magic"

MOST_U32 = 2**32 - 1
MOST_U16 = 2**16 - 1
UNKNOWN_SIZE = NEVER_EXPIRES = MOST_U32
MOST_BLOCK_BYTES = 16 * 1024 * 1024  # a torn length must not make a reader ask for 4 GB

OPERATIONS = (
    "get",
    "set",
    "add",
    "delete",
    "touch",
    "has_key",
    "incr",
    "decr",
    "get_many",
    "set_many",
    "delete_many",
    "get_or_set",
    "incr_version",
    "decr_version",
    "clear",
)
NUMBER_OF = {name: number for number, name in enumerate(OPERATIONS)}


class Outcome(IntFlag):
    """How a call ended. A plain write that succeeded has none of these."""

    HIT = 1
    MISS = 2
    ERROR = 4  # it raised
    REFUSED = 8  # it answered False: add of a key that is there, delete of one that is not
    ASYNC = 16  # it was awaited


class Record(NamedTuple):
    """One key of one recorded call."""

    time_ns: int
    key: int
    latency_ns: int
    size: int | None
    ttl_ms: int | None  # 0: none given. None: never expires
    prefix: str
    of: int
    operation: str
    outcome: Outcome
    type: str
    squeezed: float | None  # size after zlib by size before

    @property
    def hit(self) -> bool:
        return bool(self.outcome & Outcome.HIT)

    @property
    def miss(self) -> bool:
        return bool(self.outcome & Outcome.MISS)


@dataclass
class Names:
    """Texts that records name by number. Number 0 is the empty text, also once it is full."""

    most: int
    texts: dict[str, int] = field(default_factory=lambda: {"": 0})

    def number(self, text: str) -> int:
        known = self.texts.get(text)
        if known is None:
            if len(self.texts) > self.most:
                return 0
            known = self.texts[text] = len(self.texts)
        return known


def block(head: dict[str, Any], records: Sequence[bytes]) -> bytes:
    """The bytes of one block."""
    text = json.dumps({"format": FORMAT, **head}, separators=(",", ":")).encode()
    body = text + b"".join(records)
    return HEADER.pack(MAGIC, len(text), len(records), zlib.crc32(body)) + body


@dataclass
class Recording:
    """Everything that a file, or several, hold; in the order of time."""

    share: float = 1.0  # of the keys
    backends: list[str] = field(default_factory=list)
    processes: int = 0
    blocks: int = 0
    torn: int = 0  # blocks that cannot be read
    lost: int = 0  # records that their processes could not write
    errors: int = 0  # of recording itself; none of them reached the application
    cut: int = 0  # records beyond ``most``
    prefixes: Names = field(default_factory=lambda: Names(MOST_U16))
    types: Names = field(default_factory=lambda: Names(255))
    rows: list[bytes] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Record]:
        prefixes, types = list(self.prefixes.texts), list(self.types.texts)
        for row in self.rows:
            (
                time_ns, key, latency, size, ttl, prefix, of, operation, outcome, kind, squeezed
            ) = RECORD.unpack(row)  # fmt: skip
            yield Record(
                time_ns,
                key,
                latency,
                None if size == UNKNOWN_SIZE else size,
                None if ttl == NEVER_EXPIRES else ttl,
                prefixes[prefix],
                of,
                OPERATIONS[operation],
                Outcome(outcome),
                types[kind],
                squeezed / 255 if squeezed else None,
            )

    @property
    def seconds(self) -> float:
        """From the first call to the last."""
        if not self.rows:
            return 0.0
        first, last = (RECORD.unpack(row)[0] for row in (self.rows[0], self.rows[-1]))
        return float(last - first) / 1e9


class NotARecording(ValueError):
    """The file holds no block at all."""


def read(paths: Iterable[Path], most: int = 2_000_000) -> Recording:
    """The records of all these files; beyond ``most`` they are counted and left out.

    Raises:
        NotARecording: a file that has no block, whole or torn.
        OSError: it cannot be read.
    """
    found = Recording(share=0.0)
    processes: set[str] = set()
    for path in paths:
        data = path.read_bytes()
        if data[: len(MAGIC)] != MAGIC:
            raise NotARecording(f"{path} is no recording")
        for head, rows in _blocks(data, found):
            found.blocks += 1
            processes.add(str(head["process"]))
            _take(found, head, rows, most)
    found.rows.sort()  # processes wrote their blocks side by side
    found.processes = len(processes)
    found.share = found.share or 1.0
    return found


def _blocks(data: bytes, found: Recording) -> Iterator[tuple[dict[str, Any], bytes]]:
    at = 0
    while at < len(data):
        read_block = _block_at(data, at)
        if read_block is None:
            found.torn += 1
            at = _next_block(data, at + 1)
            continue
        head, rows, at = read_block
        yield head, rows


def _next_block(data: bytes, at: int) -> int:
    """Where the next whole block begins: one magic may be what is left of a torn one."""
    at = data.find(MAGIC, at)
    while at >= 0 and _block_at(data, at) is None:
        at = data.find(MAGIC, at + 1)
    return len(data) if at < 0 else at


def _block_at(data: bytes, at: int) -> tuple[dict[str, Any], bytes, int] | None:
    if at + HEADER.size > len(data):
        return None
    magic, head_bytes, count, checksum = HEADER.unpack_from(data, at)
    length = head_bytes + count * RECORD.size
    start = at + HEADER.size
    if magic != MAGIC or length > MOST_BLOCK_BYTES or start + length > len(data):
        return None
    body = data[start : start + length]
    if zlib.crc32(body) != checksum:
        return None
    head: dict[str, Any] = json.loads(body[:head_bytes])
    return head, body[head_bytes:], start + length


def _take(found: Recording, head: dict[str, Any], rows: bytes, most: int) -> None:
    # Files with unlike shares count as the larger one: the smaller is then under-represented.
    found.share = max(found.share, float(head["share"]))
    if head["backend"] not in found.backends:
        found.backends.append(head["backend"])
    found.lost += int(head["lost"])
    found.errors += int(head["errors"])
    prefixes = [found.prefixes.number(text) for text in head["prefixes"]]
    types = [found.types.number(text) for text in head["types"]]
    for values in RECORD.iter_unpack(rows):
        if len(found.rows) >= most:
            found.cut += 1
            continue
        fields = list(values)
        fields[5], fields[9] = prefixes[fields[5]], types[fields[9]]
        found.rows.append(RECORD.pack(*fields))
