"""Cache files as nginx would write them: of every layout, with any number in any place."""

from __future__ import annotations

import zlib

from nearcache.nginx.cachedir.cachefile import MARKER
from nearcache.nginx.cachedir.layout import Layout

KEY = b"http://127.0.0.1:1/a?b=1"
HEAD = b"HTTP/1.1 200 OK\r\nX-A: 1\r\n\r\n"


def made(layout: Layout, key: bytes = KEY, body: bytes = b"body", **changes: int | bytes) -> bytes:
    """A cache file as this layout has it."""
    start = layout.size + len(MARKER) + len(key) + 1
    members = {
        "version": layout.version or 0,
        "valid_sec": 2_000_000_000,
        "updating_sec": 30,
        "error_sec": 60,
        "last_modified": -1,
        "date": 1_900_000_000,
        "crc32": zlib.crc32(key),
        "header_start": start,
        "body_start": start + len(HEAD),
        **changes,
    }
    head = bytearray(layout.size)
    for name, value in members.items():
        if name in layout.fields:
            at = layout.fields[name].offset
            packed = value if isinstance(value, bytes) else layout.pack_number(name, value)
            head[at : at + len(packed)] = packed
    return bytes(head) + MARKER + key + b"\n" + HEAD + body


def made_variant(layout: Layout, key: bytes, name: str, vary: bytes) -> bytes:
    """The file of a variant, to lie under its name."""
    return made(layout, key, vary_len=len(vary), vary=vary, variant=bytes.fromhex(name))
