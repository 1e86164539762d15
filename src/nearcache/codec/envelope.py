"""A value with what stampede protection knows of it in front: serializer number 7.

    byte    0        1          9           17          25          29
         +------+----------+------------+----------+-----------+---------------------------
         | 0x87 | soft_ms  | quiet_ms   | grace_ms | delta_ms  | the value, as another codec
         |      | u64      | u64        | u64      | u32       | wrote it: header and all
         +------+----------+------------+----------+-----------+---------------------------

    soft_ms    since the Unix epoch; from then on the value is *stale*
    quiet_ms   since the Unix epoch; a computation failed, and none is tried before then
    grace_ms   how long the store keeps it after ``soft_ms``, for those who ask for stale values
    delta_ms   how long it took to compute, measured

Big-endian. To everybody who does not ask, a stale value is a miss: :class:`EnvelopeCodec`
reads the value inside before ``soft_ms`` and raises :class:`Stale` afterwards. An envelope is
never inside an envelope, and never around a counter that somebody may want to increment.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Any, Protocol

from nearcache.base.clock import Clock
from nearcache.codec import HeaderCodec
from nearcache.codec.errors import Undecodable
from nearcache.codec.serializers import ENVELOPE

HEADER = 0x80 | ENVELOPE
_HEAD = struct.Struct(">BQQQI")
HEAD_BYTES = _HEAD.size
NEVER_MS = 2**64 - 1
"""A soft deadline that no clock reaches."""

_MAX_DELTA_MS = 2**32 - 1

assert HEAD_BYTES == 29, "stored bytes: give a new layout a new serializer number"


class Stale(Undecodable):
    """The value is behind its soft deadline: a miss, and nobody's fault, so it is not counted."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """What the head of this module draws; times in ms."""

    soft_ms: int
    grace_ms: int
    delta_ms: int
    inner: bytes
    quiet_ms: int = 0

    def sealed(self) -> bytes:
        """As the bytes to store."""
        delta_ms = min(self.delta_ms, _MAX_DELTA_MS)
        head = _HEAD.pack(HEADER, self.soft_ms, self.quiet_ms, self.grace_ms, delta_ms)
        return head + self.inner

    @property
    def expires_at_ms(self) -> int | None:
        """The deadline that the store is told: the end of the grace."""
        return None if self.soft_ms == NEVER_MS else self.soft_ms + self.grace_ms

    def moved(self, soft_ms: int | None) -> Envelope:
        """With another soft deadline (None: never) and the same grace."""
        return replace(self, soft_ms=NEVER_MS if soft_ms is None else soft_ms)

    def quiet_until(self, quiet_ms: int) -> Envelope:
        """As it is after a computation failed."""
        return replace(self, quiet_ms=quiet_ms)


def opened(raw: bytes) -> Envelope | None:
    """The envelope of stored bytes; None if they are a value without one, or a damaged one."""
    if raw[:1] != b"\x87" or len(raw) <= HEAD_BYTES:
        return None
    _, soft_ms, quiet_ms, grace_ms, delta_ms = _HEAD.unpack_from(raw)
    return Envelope(soft_ms, grace_ms, delta_ms, raw[HEAD_BYTES:], quiet_ms)


class Inner(Protocol):
    """The codec of the values inside; see nearcache.codec.Codec."""

    def encode(self, value: Any) -> bytes: ...
    def decode(self, raw: bytes) -> Any: ...


@dataclass(frozen=True, slots=True)
class EnvelopeCodec:
    """Any codec, that also reads what is in an envelope. Writes none: :meth:`Envelope.sealed`.

    The value inside is read by the same codec, so that what it refuses (pickles, bad
    signatures, what unpacks to too much) is refused in an envelope too.
    """

    inner: Inner
    clock: Clock

    def encode(self, value: Any) -> bytes:
        return self.inner.encode(value)

    def decode(self, raw: bytes) -> Any:
        envelope = opened(raw)
        if envelope is None:
            return self.inner.decode(raw)
        if envelope.soft_ms <= self.clock.now_ms():
            raise Stale("behind its soft deadline")
        return self.inner.decode(envelope.inner)


def with_envelopes(codec: Any, clock: Clock) -> Any:
    """A codec that reads envelopes too, if it writes our own format: others leave no room."""
    return EnvelopeCodec(codec, clock) if isinstance(codec, HeaderCodec) else codec
