"""Compressors, numbered as in the header byte: 0 none, 1 zlib. One registry line each.

Reserved: 2 gzip, 3 lzma, 4 lz4, 5 zstd, 6 zstd with a dictionary, 7 brotli.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Compressor:
    number: int
    name: str
    pack: Callable[[bytes], bytes]
    unpack: Callable[[bytes], bytes]


def _same(payload: bytes) -> bytes:
    return payload


COMPRESSORS = {
    each.number: each
    for each in (
        Compressor(0, "none", _same, _same),
        Compressor(1, "zlib", zlib.compress, zlib.decompress),
    )
}
