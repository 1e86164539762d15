"""Values as bytes: one header byte, a serializer, maybe a compressor.

    bit   7   6 5 4        3 2 1 0
        +---+------------+------------+
        | 1 | compressor | serializer |      then the payload
        +---+------------+------------+

An exact ``int`` that fits 64 bits has no header: it is its decimal digits, so that engines
can add to it. Digits and ``-`` are below 0x80, so the two never look alike. The numbers are
in :mod:`~nearcache.codec.serializers` and :mod:`~nearcache.codec.compressors`; they are in
files that outlive the process, so a number, once given, keeps its meaning.

Any codec reads what any other wrote: settings may change under a warm cache. What no codec
can read raises :class:`Undecodable`, which the adapter counts and serves as a miss.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from nearcache.codec.compressors import COMPRESSORS, Compressor
from nearcache.codec.serializers import SERIALIZERS, Serializer, chosen

__all__ = ["Codec", "Undecodable", "make_codec"]

HEADER = 0x80
_COUNTER = re.compile(rb"-?(0|[1-9][0-9]*)")
_INT64 = range(-(2**63), 2**63)


class Undecodable(ValueError):
    """These bytes are no value that this version and its libraries can read."""


@dataclass(frozen=True, slots=True)
class Codec:
    """How one backend writes; reading is the same for all."""

    serializers: tuple[Serializer, ...]  # the first that takes the value writes it
    compressor: Compressor | None = None
    compress_min_bytes: int = 0

    def encode(self, value: Any) -> bytes:
        # `type(...) is`: a bool or an IntEnum is an int, and must come back as what it was.
        if type(value) is int and value in _INT64:
            return b"%d" % value
        for serializer in self.serializers:
            payload = serializer.dump(value)
            if payload is not None:
                return self._framed(serializer.number, payload)
        raise TypeError(f"no serializer takes a {type(value).__name__}")

    def _framed(self, number: int, payload: bytes) -> bytes:
        if self.compressor and len(payload) >= self.compress_min_bytes:
            packed = self.compressor.pack(payload)
            # Kept raw when packing does not pay: a reader then has nothing to unpack.
            if len(packed) < len(payload):
                return bytes((HEADER | self.compressor.number << 4 | number,)) + packed
        return bytes((HEADER | number,)) + payload

    def decode(self, raw: bytes) -> Any:
        if not raw or raw[0] < HEADER:
            return _counter(raw)
        try:
            payload = COMPRESSORS[raw[0] >> 4 & 0x07].unpack(raw[1:])
            return SERIALIZERS[raw[0] & 0x0F].load(payload)
        except MemoryError:
            raise  # not the value's fault
        except Exception as error:
            # Anything: unpickling runs the code of classes that may have changed or gone.
            raise Undecodable(f"header 0x{raw[0]:02x}: {error!r}") from error


def make_codec(serializer: str, compressor: str | None, compress_min_bytes: int) -> Codec:
    """The codec that options name."""
    packing = next((each for each in COMPRESSORS.values() if each.name == compressor), None)
    return Codec(chosen(serializer), packing, compress_min_bytes)


def _counter(raw: bytes) -> int:
    # int() alone would also take b" 1_000 ", and refuses 4,301 digits with another error.
    if len(raw) > 20 or not _COUNTER.fullmatch(raw):
        raise Undecodable(f"neither header nor counter: {raw[:20]!r}")
    return int(raw)
