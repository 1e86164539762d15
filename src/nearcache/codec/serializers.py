"""Serializers, numbered as in the header byte. One registry line each.

     0            never: 0x80 is how a pickle of protocol 2 or later begins, and other programs
                  leave theirs in the same stores
     1  str       UTF-8
     2  exact     None, bool, int, float, str, bytes, dates, Decimal, UUID and tuples, lists,
                  dicts and sets of them, in a compact form of our own: exact types come back
     3  pickle    everything that pickles; unpickling runs code
     4  json      what JSON holds: tuples come back as lists, keys as text
     5  ujson     the same, by another library; it also takes Decimals, and gives floats
     6  msgpack   exact types, see :mod:`~nearcache.codec.msgpack_types`
     7  envelope  a value with what stampede protection knows of it in front, see
                  :mod:`~nearcache.codec.envelope`
     8  signed    a signature and a pickle, see :mod:`~nearcache.codec.signing`
     9  bytes     as they are
    13            never: with compressor 7 its header would be 0xfd, where an .xz begins, and
                  :mod:`~nearcache.codec.foreign` has to tell them apart

``auto`` takes the first of 9, 1, 2, 3 that fits: pickle only where exact types would be lost
otherwise. Nothing but 3 and 8 can run code when it is read.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nearcache import _core
from nearcache.codec import json_text, msgpack_types, unshared
from nearcache.codec.errors import refusing

Dump = Callable[[Any], bytes | None]  # None: this value is not for this serializer
Load = Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class Serializer:
    number: int
    name: str
    dump: Dump
    load: Load


def _dump_bytes(value: Any) -> bytes | None:
    return value if type(value) is bytes else None


def _load_bytes(payload: bytes) -> bytes:
    return payload


def _dump_str(value: Any) -> bytes | None:
    if type(value) is not str:
        return None
    try:
        return value.encode()
    except UnicodeEncodeError:  # a lone surrogate: no UTF-8, but it pickles
        return None


def dump_pickle(value: Any) -> bytes:
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


BYTES = Serializer(9, "bytes", _dump_bytes, _load_bytes)
STR = Serializer(1, "str", _dump_str, bytes.decode)
EXACT = Serializer(2, "exact", _core.encode, _core.decode)
TREE = Serializer(2, "exact", unshared.dump, _core.decode)  # a second try, where pickle is not
PICKLE = Serializer(3, "pickle", dump_pickle, pickle.loads)
JSON = Serializer(4, "json", refusing("json", json_text.dump), json_text.load)
UJSON = Serializer(5, "ujson", refusing("ujson", json_text.dump_ujson), json_text.load_ujson)
MSGPACK = Serializer(6, "msgpack", refusing("msgpack", msgpack_types.dump), msgpack_types.load)
ENVELOPE = 7
SIGNED = 8

SERIALIZERS = {each.number: each for each in (BYTES, STR, EXACT, PICKLE, JSON, UJSON, MSGPACK)}

CHOICES = {
    "auto": (BYTES, STR, EXACT, PICKLE),
    "pickle": (PICKLE,),
    "json": (JSON,),
    "ujson": (UJSON,),
    "msgpack": (MSGPACK,),
    "exact": (BYTES, STR, EXACT, TREE),
}
"""What an option's value stands for, in the order they are tried."""
