"""The head of a stored response: what the upstream sent before the body, byte by byte.

nginx stores what it read and not what it understood, so the same response looks
different behind each kind of upstream:

    proxy (HTTP/1), uwsgi, scgi   lines of text
    fastcgi                       the same text in records: eight bytes of frame before
                                  each piece, and a piece may end in the middle of a line
    proxy over HTTP/2             frames with compressed headers (since nginx 1.29.4)

Text is read whole. Of HTTP/2 only the status is, and only where it stands in the static
table: the rest would need the decoder's state, and is said to be unknown.

Sources: FastCGI 1.0 section 3.3; RFC 9113 section 4.1; RFC 7541 section 6.1 and appendix A.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Kind = Literal["text", "fastcgi", "http2", "binary"]

STATUS = re.compile(rb"(?:HTTP/[\d.]+|[Ss]tatus:) *(\d{3})\b")

BINARY = re.compile(rb"[\x00-\x08]")

FCGI_FRAME = 8  # version, type, request id (2), length (2), padding, reserved
FCGI_STDOUT, FCGI_STDERR = 6, 7

H2_FRAME = 9  # length (3), type, flags, stream (4)
H2_HEADERS, H2_LAST_TYPE = 1, 9
H2_PADDED, H2_PRIORITY = 0x08, 0x20
# What a header block begins with if its first field is a :status of the static table.
H2_STATUS = {0x88: 200, 0x89: 204, 0x8A: 206, 0x8B: 304, 0x8C: 400, 0x8D: 404, 0x8E: 500}


@dataclass(frozen=True)
class Head:
    """A stored head, as its bytes."""

    raw: bytes

    @cached_property
    def kind(self) -> Kind:
        if _is_fastcgi(self.raw):
            return "fastcgi"
        if not BINARY.search(self.raw, 0, 64):
            return "text"
        return "http2" if any(True for _ in _frames(self.raw)) else "binary"

    @cached_property
    def lines(self) -> tuple[bytes, ...]:
        """Its lines; empty if it is not text."""
        if self.kind == "fastcgi":
            return tuple(b"".join(_stdout(self.raw)).splitlines())
        return tuple(self.raw.splitlines()) if self.kind == "text" else ()

    @cached_property
    def status(self) -> int | None:
        """The status of the response; None if it cannot be known from these bytes."""
        if self.kind == "http2":
            return next((H2_STATUS.get(block[0]) for block in _blocks(self.raw) if block), None)
        for line in self.lines:
            found = STATUS.match(line)
            if found:
                return int(found.group(1))
        # uwsgi, scgi and fastcgi may leave it out: then it is 200.
        return 200 if any(b":" in line for line in self.lines) else None

    def values(self, name: str) -> list[str]:
        """The values of a header, in their order."""
        wanted = name.lower().encode() + b":"
        return [
            line.partition(b":")[2].strip().decode("latin-1")
            for line in self.lines
            if line.lower().startswith(wanted)
        ]


def _is_fastcgi(raw: bytes) -> bool:
    return len(raw) > FCGI_FRAME and raw[0] == 1 and raw[1] in (FCGI_STDOUT, FCGI_STDERR)


def _stdout(raw: bytes) -> Iterator[bytes]:
    """What the application wrote, without frames and without what it said on stderr."""
    at = 0
    while at + FCGI_FRAME <= len(raw) and raw[at] == 1:
        kind, length, padding = raw[at + 1], int.from_bytes(raw[at + 4 : at + 6]), raw[at + 6]
        at += FCGI_FRAME
        if kind == FCGI_STDOUT:
            yield raw[at : at + length]  # the last goes on in the body
        at += length + padding


def _frames(raw: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(type, flags, payload) as far as frames make sense."""
    at = 0
    while at + H2_FRAME <= len(raw):
        length = int.from_bytes(raw[at : at + 3])
        kind, flags, stream = raw[at + 3], raw[at + 4], raw[at + 5]
        if kind > H2_LAST_TYPE or stream & 0x80 or at + H2_FRAME + length > len(raw):
            return
        yield kind, flags, raw[at + H2_FRAME : at + H2_FRAME + length]
        at += H2_FRAME + length


def _blocks(raw: bytes) -> Iterator[bytes]:
    """Header blocks, without what may stand before them in their frames."""
    for kind, flags, payload in _frames(raw):
        if kind == H2_HEADERS:
            begin = bool(flags & H2_PADDED) + 5 * bool(flags & H2_PRIORITY)
            yield _without_table_size(payload[begin:])


def _without_table_size(block: bytes) -> bytes:
    """An encoder may first say how large its table is: 001 and an integer of five bits or more."""
    at = 0
    while at < len(block) and block[at] & 0xE0 == 0x20:
        more = block[at] & 0x1F == 0x1F
        at += 1
        while more and at < len(block):
            more = bool(block[at] & 0x80)
            at += 1
    return block[at:]
