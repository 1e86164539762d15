"""Compressors, numbered as in the header byte. One registry line each.

    0  none
    1  zlib
    2  gzip    zlib with another frame: for who reads values with other tools
    3  lzma    an .xz
    4  lz4     one block, its size before it
    5  zstd    one frame
    6  zstd    one frame that needs a trained dictionary, which it names
    7  brotli

Every one unpacks to a bounded size, and refuses what is cut short or has a tail: bytes may come
from anywhere, and a kilobyte can stand for a gigabyte.
"""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nearcache.codec.errors import library
from nearcache.codec.zstd import Zstd, unpack_zstd

Pack = Callable[[bytes], bytes]
Unpack = Callable[[bytes, int], bytes]  # to at most so many bytes

GZIP_WBITS = 31
LZMA_MEMORY_BYTES = 128 << 20  # preset 9 asks for 65 MiB to unpack; a hostile .xz for gigabytes
LZ4_BEST_RATIO = 256
LZ4_SIZE_BYTES = 4
LZ4_HIGH_LEVEL = 3  # below, levels of lz4 mean its fast mode


@dataclass(frozen=True, slots=True)
class Compressor:
    number: int
    name: str
    packer: Callable[[int], Pack]  # for a level
    unpack: Unpack


def finished(stream: Any, out: bytes, max_bytes: int) -> bytes:
    """What a decompressor of the standard library gave, if that was all and not too much."""
    if len(out) > max_bytes:
        raise ValueError(f"unpacks to more than {max_bytes} bytes")
    if not stream.eof or stream.unused_data:
        raise ValueError("cut short, or followed by something")
    return out


def unpack_zlib(payload: bytes, max_bytes: int, wbits: int = zlib.MAX_WBITS) -> bytes:
    stream = zlib.decompressobj(wbits)
    # One byte more than allowed: with just as many, the end would not have been looked at.
    return finished(stream, stream.decompress(payload, max_bytes + 1), max_bytes)


def unpack_gzip(payload: bytes, max_bytes: int) -> bytes:
    return unpack_zlib(payload, max_bytes, GZIP_WBITS)


def unpack_lzma(payload: bytes, max_bytes: int) -> bytes:
    stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=LZMA_MEMORY_BYTES)
    return finished(stream, stream.decompress(payload, max_bytes + 1), max_bytes)


def _unpack_lz4(payload: bytes, max_bytes: int) -> bytes:
    size_bytes = int.from_bytes(payload[:LZ4_SIZE_BYTES], "little")
    # lz4 reserves what the size says before it looks at the rest.
    if size_bytes > min(max_bytes, len(payload) * LZ4_BEST_RATIO):
        raise ValueError(f"unpacks to {size_bytes} bytes; allowed are {max_bytes}")
    unpacked: bytes = library("lz4.block").decompress(payload)
    return unpacked


def _unpack_brotli(payload: bytes, max_bytes: int) -> bytes:
    stream = library("brotli").Decompressor()
    out: bytes = stream.process(payload, output_buffer_limit=max_bytes + 1)
    if len(out) > max_bytes or not stream.is_finished():
        raise ValueError(f"cut short, or unpacks to more than {max_bytes} bytes")
    return out


def _zlib_packer(level: int) -> Pack:
    return lambda payload: zlib.compress(payload, level)


def _gzip_packer(level: int) -> Pack:
    return lambda payload: gzip.compress(payload, level, mtime=0)


def _lzma_packer(level: int) -> Pack:
    # A checksum of 4 bytes, not the usual 8: values are small.
    return lambda payload: lzma.compress(payload, check=lzma.CHECK_CRC32, preset=level)


def _lz4_packer(level: int) -> Pack:
    compress = library("lz4.block").compress
    if level < LZ4_HIGH_LEVEL:
        return lambda payload: compress(payload, mode="default")
    return lambda payload: compress(payload, mode="high_compression", compression=level)


def _zstd_packer(level: int) -> Pack:
    return Zstd(level).pack


def _brotli_packer(level: int) -> Pack:
    compress = library("brotli").compress
    return lambda payload: compress(payload, quality=level)


COMPRESSORS = {
    each.number: each
    for each in (
        Compressor(1, "zlib", _zlib_packer, unpack_zlib),
        Compressor(2, "gzip", _gzip_packer, unpack_gzip),
        Compressor(3, "lzma", _lzma_packer, unpack_lzma),
        Compressor(4, "lz4", _lz4_packer, _unpack_lz4),
        Compressor(5, "zstd", _zstd_packer, unpack_zstd),
        Compressor(7, "brotli", _brotli_packer, _unpack_brotli),
    )
}
ZSTD_DICTIONARY = 6


def compressor_named(name: str) -> Compressor:
    return next(each for each in COMPRESSORS.values() if each.name == name)
