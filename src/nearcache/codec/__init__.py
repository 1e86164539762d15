"""Values as bytes: one header byte, a serializer, maybe a compressor.

    bit   7   6 5 4        3 2 1 0
        +---+------------+------------+
        | 1 | compressor | serializer |      then the payload
        +---+------------+------------+

An exact ``int`` that fits 64 bits has no header: it is its decimal digits, so that engines
can add to it. Digits and ``-`` are below 0x80, so the two never look alike. The numbers are
in :mod:`~nearcache.codec.serializers` and :mod:`~nearcache.codec.compressors`; they are in
files that outlive the process, so a number, once given, keeps its meaning.

Any codec reads what any other wrote: settings may change under a warm cache. What it does not
read are pickles where options forbid them, pickles without the right signature, and what
unpacks to more than is allowed. All that raises :class:`Undecodable`, like bytes that nobody
can read, which the adapter counts and serves as a miss.

:func:`make_codec` and :func:`foreign_codec` make codecs from plain arguments, :func:`codec_for`
from the options of a backend. Formats of other backends are in :mod:`~nearcache.codec.foreign`.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from nearcache.base.interrupts import is_interrupt
from nearcache.base.options import COMPRESSORS as COMPRESSION
from nearcache.base.options import KIB, CacheOptions, ServerCacheOptions
from nearcache.base.options import SERIALIZERS as LIBRARIES
from nearcache.codec.compressors import COMPRESSORS, ZSTD_DICTIONARY, Pack, Unpack, compressor_named
from nearcache.codec.errors import Undecodable, Unencodable, library
from nearcache.codec.foreign import ForeignCodec, ForeignReader
from nearcache.codec.serializers import (
    CHOICES,
    PICKLE,
    SERIALIZERS,
    SIGNED,
    Load,
    Serializer,
    dump_pickle,
)
from nearcache.codec.signing import Signer
from nearcache.codec.zstd import Dictionaries

__all__ = [
    "Codec",
    "HeaderCodec",
    "Undecodable",
    "Unencodable",
    "codec_for",
    "foreign_codec",
    "make_codec",
]

HEADER = 0x80
_COUNTER = re.compile(rb"0|-?[1-9][0-9]*")
_INT64 = range(-(2**63), 2**63)
_DICTIONARY_MIN_BYTES = 64


class Codec(Protocol):
    """What an adapter needs: each of the two is the other's inverse."""

    def encode(self, value: Any) -> bytes:
        """The bytes of a value; raises Unencodable, or what pickle raises."""

    def decode(self, raw: bytes) -> Any:
        """The value of bytes from anywhere; raises Undecodable, or MemoryError."""


@dataclass(frozen=True, slots=True)
class Packing:
    """How payloads from a certain size on are compressed."""

    number: int
    pack: Pack
    min_bytes: int


@dataclass(frozen=True, slots=True)
class HeaderCodec:
    """Our own format."""

    serializers: tuple[Serializer, ...]  # the first that takes the value writes it
    packing: Packing | None
    loads: Mapping[int, Load]  # by serializer number
    unpacks: Mapping[int, Unpack]  # by compressor number
    unpacked_max_bytes: int
    foreign: ForeignReader | None

    def encode(self, value: Any) -> bytes:
        # `type(...) is`: a bool or an IntEnum is an int, and must come back as what it was.
        if type(value) is int and value in _INT64:
            return b"%d" % value
        number, payload = self.payload(value)
        packing = self.packing
        if packing and packing.min_bytes <= len(payload) <= self.unpacked_max_bytes:
            packed = packing.pack(payload)
            # Kept raw when packing does not pay: a reader then has nothing to unpack.
            if len(packed) < len(payload):
                return bytes((HEADER | packing.number << 4 | number,)) + packed
        return bytes((HEADER | number,)) + payload

    def payload(self, value: Any) -> tuple[int, bytes]:
        """The serializer's number and its bytes, before compression."""
        for serializer in self.serializers:
            payload = serializer.dump(value)
            if payload is not None:
                return serializer.number, payload
        raise Unencodable(
            f"this {type(value).__name__} has no exact form (it is, or holds, another type, or"
            " itself), and pickle is not allowed"
        )

    def decode(self, raw: bytes) -> Any:
        if not raw or raw[0] < HEADER or (self.foreign and self.foreign.claims(raw)):
            return self._decode_headless(raw)
        header = raw[0]
        try:
            payload = raw[1:]
            if header & 0x70:
                payload = self.unpacks[header >> 4 & 0x07](payload, self.unpacked_max_bytes)
            return self.loads[header & 0x0F](payload)
        except MemoryError:
            raise  # not the value's fault
        except Exception as error:
            if is_interrupt(error):
                raise
            # Anything: unpickling runs the code of classes that may have changed or gone. The
            # error itself is only the cause: even asking for its text could run their code.
            raise Undecodable(f"header 0x{header:02x}: {type(error).__name__}") from error

    def _decode_headless(self, raw: bytes) -> Any:
        # int() alone would also take b" 1_000 ", and refuses 4,301 digits with another error.
        if len(raw) <= 20 and _COUNTER.fullmatch(raw):
            return int(raw)
        if self.foreign:
            return self.foreign.decode(raw)
        raise Undecodable(f"neither header nor counter: {raw[:20]!r}")


def codec_for(options: CacheOptions) -> Codec:
    """The codec that a backend's options ask for; raises OptionError if a library is missing."""
    if isinstance(options, ServerCacheOptions) and options.compat != "none":
        return _foreign_codec_for(options)
    if needed := LIBRARIES[options.serializer]:
        library(needed)
    dictionaries = None
    if options.compress_dictionaries:
        dictionaries = Dictionaries(options.compress_dictionaries, _level(options))
    return HeaderCodec(
        serializers=_serializers(options),
        packing=_packing(options, dictionaries),
        loads=_loads(options),
        unpacks=_unpacks(dictionaries),
        unpacked_max_bytes=options.unpacked_max_bytes,
        foreign=_foreign_reader(options),
    )


@dataclass(frozen=True, kw_only=True)
class _Arguments(ServerCacheOptions):
    """Options without a backend."""

    backend: ClassVar[str] = "nearcache.codec"

    location: str = ""


def make_codec(
    serializer: str = "auto",
    compressor: str | None = None,
    compress_min_bytes: int | None = None,
    **options: Any,
) -> Codec:
    """The codec of these options, named as the fields of CacheOptions and ServerCacheOptions."""
    return codec_for(
        _Arguments(
            serializer=serializer,
            compressor=compressor or "none",
            compress_min_bytes=compress_min_bytes,
            **options,
        )
    )


def foreign_codec(format: str, **options: Any) -> Codec:  # noqa: A002 - the best word
    """A codec that writes and reads as another backend does: "django" or "django-redis"."""
    return make_codec(compat=format, **options)


def reads_pickles(options: CacheOptions) -> bool:
    """Whether pickles may be read: as asked for, else whether the serializer writes them."""
    if options.allow_pickle is not None:
        return options.allow_pickle
    return PICKLE in CHOICES[options.serializer]


def _serializers(options: CacheOptions) -> tuple[Serializer, ...]:
    chosen = CHOICES[options.serializer]
    if not reads_pickles(options):
        return CHOICES["exact"] if PICKLE in chosen else chosen
    if options.sign_keys:
        signed = _signed(Signer(options.sign_keys))
        return tuple(signed if each is PICKLE else each for each in chosen)
    return chosen


def _signed(signer: Signer) -> Serializer:
    return Serializer(
        SIGNED,
        "signed",
        lambda value: signer.sign(dump_pickle(value)),
        lambda payload: pickle.loads(signer.verified(payload)),
    )


def _refuse_pickle(_payload: bytes) -> Any:
    raise ValueError("a pickle, and options do not allow it")


def _loads(options: CacheOptions) -> dict[int, Load]:
    loads = {number: each.load for number, each in SERIALIZERS.items()}
    loads[SIGNED] = _refuse_pickle
    if options.sign_keys or not reads_pickles(options):
        loads[PICKLE.number] = _refuse_pickle
    if options.sign_keys and reads_pickles(options):
        loads[SIGNED] = _signed(Signer(options.sign_keys)).load
    return loads


def _level(options: CacheOptions) -> int:
    given = options.compress_level
    return COMPRESSION[options.compressor].default if given is None else given


def _packing(options: CacheOptions, dictionaries: Dictionaries | None) -> Packing | None:
    if options.compressor == "none":
        return None
    given = options.compress_min_bytes
    if dictionaries is not None:
        min_bytes = _DICTIONARY_MIN_BYTES if given is None else given
        return Packing(ZSTD_DICTIONARY, dictionaries.pack, min_bytes)
    compressor = compressor_named(options.compressor)
    pack = compressor.packer(_level(options))
    return Packing(compressor.number, pack, KIB if given is None else given)


def _unpacks(dictionaries: Dictionaries | None) -> dict[int, Unpack]:
    unpacks = {number: each.unpack for number, each in COMPRESSORS.items()}
    if dictionaries is not None:
        unpacks[ZSTD_DICTIONARY] = dictionaries.unpack
    return unpacks


def _foreign_reader(options: CacheOptions) -> ForeignReader | None:
    formats = options.read_formats if isinstance(options, ServerCacheOptions) else ()
    if not formats:
        return None
    allowed = reads_pickles(options) and not options.sign_keys
    return ForeignReader(
        formats=frozenset(formats),
        load_pickle=pickle.loads if allowed else _refuse_pickle,
        unpacked_max_bytes=options.unpacked_max_bytes,
    )


def _foreign_codec_for(options: ServerCacheOptions) -> ForeignCodec:
    serializer = "pickle" if options.serializer == "auto" else options.serializer
    if needed := LIBRARIES[serializer]:
        library(needed)
    return ForeignCodec.of(
        options.compat,
        serializer,
        options.compressor,
        level=options.compress_level,
        min_bytes=options.compress_min_bytes,
        unpacked_max_bytes=options.unpacked_max_bytes,
    )
