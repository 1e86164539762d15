"""Measures serializers and compressors on values: how small, how fast, what comes back.

A quick look at one process with warm caches, for choosing; ``nearcache lab`` measures backends
with servers, processes and a noise floor.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nearcache.codec import Codec, make_codec

MIN_TIMED_S = 0.03
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Combination:
    """What one serializer and one compressor made of the values that the serializer takes."""

    serializer: str
    compressor: str
    taken: int
    same: int  # of those taken: came back equal, of the same type
    mean_bytes: float
    encode_us: float
    decode_us: float


def compare(
    values: Sequence[Any],
    serializers: Sequence[str],
    compressors: Sequence[str],
    dictionaries: tuple[str, ...] = (),
) -> Iterator[Combination]:
    """Every serializer with every compressor, in that order; "zstd+dict" is zstd with them."""
    for serializer in serializers:
        for compressor in compressors:
            codec = codec_named(serializer, compressor, dictionaries)
            yield _measured(serializer, compressor, codec, values)


def codec_named(serializer: str, compressor: str, dictionaries: tuple[str, ...]) -> Codec:
    """A codec that compresses every value, however small."""
    if compressor == "zstd+dict":
        return make_codec(serializer, "zstd", 0, compress_dictionaries=dictionaries)
    return make_codec(serializer, compressor, 0)


def _measured(serializer: str, compressor: str, codec: Codec, values: Sequence[Any]) -> Combination:
    pairs = list(_encoded(codec, values))
    taken, raws = [value for value, _ in pairs], [raw for _, raw in pairs]
    count = len(pairs)
    return Combination(
        serializer,
        compressor,
        taken=count,
        same=sum(_comes_back(codec, value, raw) for value, raw in pairs),
        mean_bytes=sum(map(len, raws)) / count if count else 0.0,
        encode_us=_each_us(codec.encode, taken),
        decode_us=_each_us(codec.decode, raws),
    )


def _encoded(codec: Codec, values: Sequence[Any]) -> Iterator[tuple[Any, bytes]]:
    for value in values:
        try:
            yield value, codec.encode(value)
        except (TypeError, AttributeError, pickle.PickleError):  # not for this serializer
            continue


def _comes_back(codec: Codec, value: Any, raw: bytes) -> bool:
    back = codec.decode(raw)
    if type(back) is not type(value):
        return False
    # An object that knows no equality cannot be compared; its bytes can.
    return bool(back == value) or pickle.dumps(back) == pickle.dumps(value)


def _each_us(call: Callable[[Any], Any], arguments: Sequence[Any]) -> float:
    """Microseconds a call, of the best of some rounds over all arguments."""
    if not arguments:
        return 0.0
    best_s, spent_s, rounds = float("inf"), 0.0, 0
    while rounds < ROUNDS or spent_s < MIN_TIMED_S:
        started = time.perf_counter()
        for argument in arguments:
            call(argument)
        took_s = time.perf_counter() - started
        best_s, spent_s, rounds = min(best_s, took_s), spent_s + took_s, rounds + 1
    return best_s / len(arguments) * 1e6
