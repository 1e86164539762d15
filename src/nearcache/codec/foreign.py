"""The formats of Django's own RedisCache and of django-redis, to share a cache or to move one.

    django        int: digits                      else a pickle, of the highest protocol
    django-redis  int, subclasses but bool and     else pickle, JSON or msgpack; longer ones
                  enums included: digits           then compressed. Nothing says which

:class:`ForeignCodec` writes and reads one format, with one setting of it. :class:`ForeignReader`
reads what either wrote, beside our own format.

Where they try (``int`` on anything, then the decompressor, then take the bytes as they are), we
look: digits are strictly what they write for an int, and each compressor's output begins as
nothing uncompressed of theirs does. So corrupt bytes are corrupt and not another value.

Pickles begin with 0x80, where no value of ours does. Plain msgpack can begin with any header of
ours, so only a :class:`ForeignCodec` reads it.
"""

from __future__ import annotations

import datetime as dt
import gzip
import json
import lzma
import pickle
import re
import sys
import uuid
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, Self

from nearcache.base.interrupts import is_interrupt
from nearcache.codec.compressors import (
    Pack,
    Unpack,
    finished,
    unpack_gzip,
    unpack_lzma,
    unpack_zlib,
)
from nearcache.codec.errors import Undecodable, library, refusing
from nearcache.codec.serializers import Load
from nearcache.codec.zstd import Zstd, unpack_zstd

_DIGITS = re.compile(rb"0|-?[1-9][0-9]*")
_MAX_DIGITS = 4300  # int() takes no more, and theirs do not either
_PICKLE = 0x80


def _digits(raw: bytes) -> bool:
    return len(raw) <= _MAX_DIGITS and _DIGITS.fullmatch(raw) is not None


# -- serializers ---------------------------------------------------------------------------


def _as_django_json(value: Any) -> Any:
    """What Django's JSON encoder makes of values that JSON has no form for."""
    if isinstance(value, dt.datetime):
        return _milliseconds(value).removesuffix("+00:00") + _zulu(value)
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, dt.time):
        if value.utcoffset() is not None:
            raise ValueError("a time of day with a time zone is not JSON")
        return _milliseconds(value)
    if isinstance(value, dt.timedelta):
        return _iso_duration(value)
    if isinstance(value, Decimal | uuid.UUID) or _is_lazy_text(value):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _milliseconds(value: dt.datetime | dt.time) -> str:
    # Of three digits, not six, and of none if it is whole: JavaScript's.
    return value.isoformat(timespec="milliseconds" if value.microsecond else "seconds")


def _zulu(value: dt.datetime) -> str:
    return "Z" if value.isoformat().endswith("+00:00") else ""


def _iso_duration(value: dt.timedelta) -> str:
    sign, value = ("-", -value) if value < dt.timedelta(0) else ("", value)
    minutes, seconds = divmod(value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{value.microseconds:06d}" if value.microseconds else ""
    return f"{sign}P{value.days}DT{hours:02d}H{minutes:02d}M{seconds:02d}{fraction}S"


def _is_lazy_text(value: Any) -> bool:
    # Only who has imported this module can have such a value.
    django = sys.modules.get("django.utils.functional")
    return django is not None and isinstance(value, django.Promise)


def _dump_json(value: Any) -> bytes:
    return json.dumps(value, default=_as_django_json).encode()


def _dump_msgpack(value: Any) -> bytes:
    payload: bytes = library("msgpack").packb(value)
    return payload


def _load_msgpack(payload: bytes) -> Any:
    return library("msgpack").unpackb(payload, raw=False)


def _dump_pickle(value: Any) -> bytes:
    return pickle.dumps(value, pickle.DEFAULT_PROTOCOL)


def _dump_newest_pickle(value: Any) -> bytes:
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


_SERIALIZERS: dict[str, tuple[Callable[[Any], bytes], Load]] = {
    "pickle": (_dump_pickle, pickle.loads),
    "json": (refusing("json", _dump_json), json.loads),
    "msgpack": (refusing("msgpack", _dump_msgpack), _load_msgpack),
}


# -- compressors ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Compressor:
    name: str
    begins: tuple[bytes, ...]
    min_bytes: int  # longer ones are compressed
    level: int
    packer: Callable[[int], Pack]
    unpack: Unpack


def _lz4_packer(level: int) -> Pack:
    compress = library("lz4.frame").compress
    return lambda payload: compress(payload, compression_level=level)


def _unpack_lz4(payload: bytes, max_bytes: int) -> bytes:
    stream = library("lz4.frame").LZ4FrameDecompressor()
    return finished(stream, stream.decompress(payload, max_length=max_bytes + 1), max_bytes)


_COMPRESSORS = {
    each.name: each
    for each in (
        _Compressor(
            "zlib",
            tuple(bytes((0x78, flags)) for flags in (0x01, 0x5E, 0x9C, 0xDA)),
            15,
            6,
            lambda level: lambda payload: zlib.compress(payload, level),
            unpack_zlib,
        ),
        _Compressor(
            "gzip",
            (b"\x1f\x8b\x08",),
            15,
            9,
            lambda level: lambda payload: gzip.compress(payload, level, mtime=0),
            unpack_gzip,
        ),
        _Compressor(
            "lzma",
            (b"\xfd7zXZ\x00",),
            100,
            4,
            lambda level: lambda payload: lzma.compress(payload, preset=level),
            unpack_lzma,
        ),
        _Compressor("lz4", (b"\x04\x22\x4d\x18",), 15, 0, _lz4_packer, _unpack_lz4),
        _Compressor(
            "zstd", (b"\x28\xb5\x2f\xfd",), 15, 3, lambda level: Zstd(level).pack, unpack_zstd
        ),
    )
}


def _compressor_of(raw: bytes) -> _Compressor | None:
    return next((each for each in _COMPRESSORS.values() if raw.startswith(each.begins)), None)


def _unpacked(raw: bytes, max_bytes: int) -> bytes:
    compressor = _compressor_of(raw)
    return compressor.unpack(raw, max_bytes) if compressor else raw


# -- codecs --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ForeignCodec:
    """A :class:`~nearcache.codec.Codec` of another backend's format."""

    is_number: Callable[[Any], bool]  # whether the value is written as digits
    dump: Callable[[Any], bytes]
    load: Load
    pack: Pack | None
    min_bytes: int
    compresses: bool
    unpacked_max_bytes: int

    @classmethod
    def of(
        cls,
        format: str,  # noqa: A002
        serializer: str,
        compressor: str,
        *,
        level: int | None,
        min_bytes: int | None,
        unpacked_max_bytes: int,
    ) -> Self:
        dump, load = _SERIALIZERS[serializer]
        packing = _COMPRESSORS.get(compressor)
        return cls(
            is_number=_is_exact_int if format == "django" else _is_plain_int,
            dump=_dump_newest_pickle if format == "django" else dump,
            load=load,
            pack=packing.packer(packing.level if level is None else level) if packing else None,
            min_bytes=packing.min_bytes if packing and min_bytes is None else min_bytes or 0,
            compresses=format == "django-redis",
            unpacked_max_bytes=unpacked_max_bytes,
        )

    def encode(self, value: Any) -> bytes:
        if self.is_number(value):
            return b"%d" % value
        payload = self.dump(value)
        fits = self.min_bytes < len(payload) <= self.unpacked_max_bytes
        return self.pack(payload) if self.pack and fits else payload

    def decode(self, raw: bytes) -> Any:
        if _digits(raw):
            return int(raw)
        try:
            payload = _unpacked(raw, self.unpacked_max_bytes) if self.compresses else raw
            return self.load(payload)
        except MemoryError:
            raise  # not the value's fault
        except Exception as error:
            if is_interrupt(error):
                raise
            raise Undecodable(f"foreign bytes: {type(error).__name__}") from error


def _is_exact_int(value: Any) -> bool:
    return type(value) is int


def _is_plain_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool | Enum)


@dataclass(frozen=True, slots=True)
class ForeignReader:
    """Reads values without a header of ours, from whichever of the formats they are."""

    formats: frozenset[str]
    load_pickle: Load
    unpacked_max_bytes: int

    def claims(self, raw: bytes) -> bool:
        """Whether bytes that could have a header of ours are a foreign value nevertheless."""
        if raw[0] == _PICKLE:
            return True
        return "django-redis" in self.formats and _compressor_of(raw) is not None

    def decode(self, raw: bytes) -> Any:
        if _digits(raw):
            return int(raw)
        try:
            payload = raw
            if "django-redis" in self.formats:
                payload = _unpacked(raw, self.unpacked_max_bytes)
            if payload[:1] == bytes((_PICKLE,)):
                return self.load_pickle(payload)
            if "django-redis" in self.formats:
                return json.loads(payload)
        except MemoryError:
            raise  # not the value's fault
        except Exception as error:
            if is_interrupt(error):
                raise
            raise Undecodable(f"foreign bytes: {type(error).__name__}") from error
        raise Undecodable(f"in none of {', '.join(sorted(self.formats))}: {raw[:20]!r}")
