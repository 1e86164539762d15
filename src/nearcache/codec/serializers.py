"""Serializers, numbered as in the header byte. One registry line each.

    0  bytes    as they are
    1  str      UTF-8
    2  exact    None, bool, int, float, str, bytes and tuples, lists, dicts and sets of
                them, in a compact form of our own: every type comes back as it was
    3  pickle   everything that pickles; a cache file is as trusted as the code
    4  json     what JSON holds: tuples come back as lists, keys as text

Reserved: 5 ujson, 6 msgpack. ``auto`` takes the first of 0, 1, 2, 3 that fits: pickle only
where exact types would be lost otherwise.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nearcache import _core


@dataclass(frozen=True, slots=True)
class Serializer:
    number: int
    name: str
    dump: Callable[[Any], bytes | None]  # None: this value is not for this serializer
    load: Callable[[bytes], Any]


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


def _dump_pickle(value: Any) -> bytes:
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def _dump_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


BYTES = Serializer(0, "bytes", _dump_bytes, _load_bytes)
STR = Serializer(1, "str", _dump_str, bytes.decode)
EXACT = Serializer(2, "exact", _core.encode, _core.decode)
PICKLE = Serializer(3, "pickle", _dump_pickle, pickle.loads)
JSON = Serializer(4, "json", _dump_json, json.loads)

SERIALIZERS = {each.number: each for each in (BYTES, STR, EXACT, PICKLE, JSON)}

CHOICES = {
    "auto": (BYTES, STR, EXACT, PICKLE),
    "pickle": (PICKLE,),
    "json": (JSON,),
}


def chosen(name: str) -> tuple[Serializer, ...]:
    """The serializers that an option's value stands for, in the order they are tried."""
    return CHOICES[name]
