"""The bytes of one log, unpacked: plain, gzip, zstd, bzip2 or xz, told apart by how it begins.

A name proves nothing: rotated logs are renamed, and a pipe has none. Memory is bounded
however well a file was packed. Not here: which files there are (``files.py``).
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from nearcache.errors import NginxError

CHUNK_BYTES = 1 << 20
# zstd unpacks all of what it is given, so it is given little: 128 kB can lie in 4 bytes,
# so 16 MB in this.
ZSTD_BITE_BYTES = 512
ZSTD_WINDOW_BYTES = 1 << 27  # what `zstd --long` writes and every zstd reads
MAGIC_BYTES = 6

MAGIC = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
}
DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError)


class Raw(io.RawIOBase):
    """A descriptor that can be looked at before it is read, a pipe too, and counts its bytes."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.read_bytes = 0
        self._ahead = b""
        while len(self._ahead) < MAGIC_BYTES and (more := os.read(descriptor, MAGIC_BYTES)):
            self._ahead += more

    @property
    def packing(self) -> str:
        """How it is packed; empty if it is not."""
        found = (name for magic, name in MAGIC.items() if self._ahead.startswith(magic))
        return next(found, "")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._ahead:
            count = min(len(self._ahead), len(buffer))
            buffer[:count] = self._ahead[:count]
            self._ahead = self._ahead[count:]
        else:
            count = os.readv(self.descriptor, [buffer])
        self.read_bytes += count
        return count

    def close(self) -> None:
        if not self.closed:
            os.close(self.descriptor)
        super().close()


class Readable(Protocol):
    def read1(self, size: int, /) -> bytes: ...


UNPACKERS: dict[str, Callable[[Any], Readable]] = {
    "gzip": lambda file: gzip.GzipFile(fileobj=file),
    "bzip2": bz2.BZ2File,
    "xz": lzma.LZMAFile,
}


def chunks_of(raw: Raw) -> Iterator[bytes]:
    """What a log holds, about 1 MiB at once.

    Raises :class:`NginxError` with what is wrong if it is damaged or breaks off: what came
    before was yielded.
    """
    packing = raw.packing
    try:
        if packing:
            yield from _gathered(_unpacked(packing, raw))
        else:  # a pipe is given out as it comes
            yield from iter(lambda: raw.read(CHUNK_BYTES), b"")
    except DAMAGED as error:
        if not packing:
            raise NginxError(f"cannot be read: {error}") from error
        said = "it breaks off" if isinstance(error, EOFError) else str(error)
        raise NginxError(f"is damaged {packing} ({said}); what comes before is counted") from error


def _gathered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Pieces put together. What came before an error is given out, and then the error."""
    gathered, damage = bytearray(), None
    while True:
        try:
            piece = next(pieces, None)
        except DAMAGED as error:
            piece, damage = None, error
        gathered += piece or b""
        if len(gathered) >= CHUNK_BYTES or (piece is None and gathered):
            yield bytes(gathered)
            gathered.clear()
        if damage:
            raise damage
        if piece is None:
            return


def _unpacked(packing: str, raw: Raw) -> Iterator[bytes]:
    packed = io.BufferedReader(raw, CHUNK_BYTES)
    if packing == "zstd":
        yield from _zstd(packed)
    else:
        # read1: read would lose what it has when the file breaks off.
        file = UNPACKERS[packing](packed)
        yield from iter(lambda: file.read1(CHUNK_BYTES), b"")


def _zstd(packed: io.BufferedReader[Raw]) -> Iterator[bytes]:
    try:
        import zstandard
    except ImportError as error:
        raise NginxError("is zstd, which needs: pip install 'nearcache[nginx]'") from error
    new = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES).decompressobj
    frame, begun = new(), False
    while bite := packed.read(ZSTD_BITE_BYTES):
        while bite:
            try:
                yield frame.decompress(bite)
            except zstandard.ZstdError as error:
                raise OSError(str(error)) from error
            begun, bite = True, b""
            if frame.eof:
                bite, frame, begun = frame.unused_data, new(), False
    if begun:
        raise EOFError
