"""JSON by orjson if that is installed, else by the standard library; each reads the other.

Both take the same values and give the same back, so that installing orjson changes speed and
nothing else. Where orjson would not (it refuses integers beyond 64 bits and reads them as
floats, writes NaN as null, refuses keys that are not text), the standard library writes, with
a space before the text: JSON allows it, and the reader takes the same library.
"""

from __future__ import annotations

import enum
import json
import uuid
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

from nearcache.codec.errors import library

_NOT_JSON = (b"NaN", b"Infinity")


def dump(value: Any) -> bytes:
    return _dumper()(value)


def load(payload: bytes) -> Any:
    return _loader()(payload)


@cache
def _dumper() -> Callable[[Any], bytes]:
    return _dump_fast if find_spec("orjson") else _dump_plain


@cache
def _loader() -> Callable[[bytes], Any]:
    return _load_fast if find_spec("orjson") else json.loads


def _dump_fast(value: Any) -> bytes:
    orjson = library("orjson")
    options = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS
    try:
        fast: bytes = orjson.dumps(value, option=options)
    except TypeError:
        return _dump_plain(value)
    # A null is a None, or a NaN that should stay one. Reading it back tells sooner than writing
    # again; a tuple comes back as a list, and is then written again to know.
    if b"null" not in fast or orjson.loads(fast) == value:
        return fast
    plain = _dump_plain(value)
    return plain if any(word in plain for word in _NOT_JSON) else fast


def _load_fast(payload: bytes) -> Any:
    if payload[:1] == b" ":
        return json.loads(payload)
    return library("orjson").loads(payload)


def _dump_plain(value: Any) -> bytes:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_other)
    try:
        return b" " + text.encode()
    except UnicodeEncodeError:  # lone surrogates, which are JSON when they are escaped
        return b" " + json.dumps(value, separators=(",", ":"), default=_other).encode()


def _other(value: Any) -> Any:
    """What orjson takes beyond the standard library."""
    if isinstance(value, enum.Enum):
        return value.value
    if type(value) is uuid.UUID:
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def dump_ujson(value: Any) -> bytes:
    ujson = library("ujson")
    try:
        text = ujson.dumps(value, ensure_ascii=False, escape_forward_slashes=False)
        return bytes(text.encode())
    except UnicodeEncodeError:
        return bytes(ujson.dumps(value, escape_forward_slashes=False).encode())


def load_ujson(payload: bytes) -> Any:
    return library("ujson").loads(payload)
