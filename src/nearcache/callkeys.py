"""The name of a call: the same text for the same function and arguments, in every process.

    shop.prices.total:5b1f…    module and qualified name, then a hash of the arguments

Arguments are bound to the function's signature first, so it is all the same how they were
passed, and whether a default was left out. Then each becomes bytes: a tag for its exact type,
its length, its content. So 1, 1.0 and True are three calls, and so are ("ab", "c") and
("a", "bc"). Dicts and sets are sorted by these bytes: neither their order nor the seed of
Python's hashes is in them.

What has no identity that outlives the process is refused with a TypeError, because
``<object at 0x7f…>`` would be a key that never hits, or one that hits wrongly.

The source of a function is not in its name: who changes what it returns changes a version.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import functools
import hashlib
import inspect
import pathlib
import struct
import types
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

NAME_MAX_CHARS = 160  # Django warns of keys above 250; the hash covers what is cut off
HASH_BYTES = 16

_BASES: tuple[Any, ...] = (str, bytes, int, float, tuple)
_SPELLED = (
    complex,
    dt.datetime,
    dt.date,
    dt.time,
    dt.timedelta,
    dt.timezone,
    Decimal,
    Fraction,
    uuid.UUID,
    range,
    pathlib.PurePosixPath,
    pathlib.PosixPath,
)
"""Types whose ``repr`` says all there is."""


def call_key(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    ignore: Collection[str] = (),
    more: Any = None,
) -> str:
    """The name of ``function(*args, **kwargs)``; see the head of this module.

    Parameters named in ``ignore`` make no difference (``self``, a request). ``more`` is
    hashed with the arguments. TypeError: the arguments do not fit the signature, one has no
    stable identity, or the function has no name of its own.
    """
    name = function_name(function)
    bound = _signature(function).bind(*args, **(kwargs or {}))
    bound.apply_defaults()
    digest = hashlib.blake2b(_framed(b"f", name.encode()), digest_size=HASH_BYTES)
    digest.update(canonical(more))
    for parameter, value in bound.arguments.items():
        if parameter not in ignore:
            digest.update(_framed(b"p", parameter.encode()))
            digest.update(_of_argument(name, parameter, value))
    return f"{name[:NAME_MAX_CHARS]}:{digest.hexdigest()}"


def value_key(function: Callable[..., Any], value: Any) -> str:
    """The name of a call that ``value`` tells from others of the same function."""
    name = function_name(function)
    digest = hashlib.blake2b(_framed(b"v", name.encode()), digest_size=HASH_BYTES)
    digest.update(canonical(value))
    return f"{name[:NAME_MAX_CHARS]}:{digest.hexdigest()}"


def function_name(function: Callable[..., Any]) -> str:
    """Module and qualified name; TypeError for what has none, or shares it with others."""
    function = inspect.unwrap(function)
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if not module or not name or "<lambda>" in name:
        raise TypeError(f"{function!r} has no name of its own; give key=")
    return f"{module}.{name}"


def canonical(value: Any) -> bytes:
    """Bytes of a value: equal for equal values of equal types, in every process.

    TypeError: the value, or one inside it, has no stable identity.
    """
    kind = type(value)
    write = _EXACT.get(kind)
    if write is not None:
        return write(value)
    if isinstance(value, enum.Enum):
        return _framed(b"e", _named(kind) + canonical(value.name))
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
        return _framed(b"n", function_name(value).encode())
    if kind in _SPELLED:
        return _framed(b"r", _named(kind) + repr(value).encode())
    if hasattr(kind, "_meta") and hasattr(value, "pk"):
        return _of_model(value)
    if dataclasses.is_dataclass(value):
        fields = [(each.name, getattr(value, each.name)) for each in dataclasses.fields(value)]
        return _framed(b"c", _named(kind) + canonical(fields))
    if isinstance(value, _BASES) and not getattr(value, "__dict__", None):
        # A named tuple, Django's SafeString: what it is derived from, under its own name.
        base = next(each for each in _BASES if isinstance(value, each))
        return _framed(b"b", _named(kind) + _EXACT[base](base(value)))
    raise TypeError(f"a {kind.__module__}.{kind.__qualname__} has no identity that a key can hold")


def _of_argument(name: str, parameter: str, value: Any) -> bytes:
    try:
        return canonical(value)
    except (TypeError, RecursionError) as error:
        raise TypeError(
            f"{name}(): argument {parameter!r} cannot be part of a key ({error}); give key=, a"
            f" function that makes the key, or ignore=({parameter!r},)"
        ) from error


def _of_model(value: Any) -> bytes:
    """An instance of a Django model: the row it stands for, whatever was loaded of it."""
    if value.pk is None:
        raise TypeError(f"an unsaved {value._meta.label} has no primary key")
    return _framed(b"m", canonical(value._meta.label_lower) + canonical(value.pk))


def _framed(tag: bytes, content: bytes) -> bytes:
    return b"%b%d:%b" % (tag, len(content), content)


def _named(kind: type) -> bytes:
    return _framed(b"n", f"{kind.__module__}.{kind.__qualname__}".encode())


def _text(value: str) -> bytes:
    return _framed(b"s", value.encode("utf-8", "surrogatepass"))


def _number(value: int) -> bytes:
    # Hexadecimal: Python refuses to write 4,301 decimal digits.
    return _framed(b"i", b"%x" % value)


def _float(value: float) -> bytes:
    return _framed(b"d", struct.pack(">d", value))


def _joined(tag: bytes) -> Callable[[Iterable[Any]], bytes]:
    return lambda values: _framed(tag, b"".join(map(canonical, values)))


def _sorted(tag: bytes) -> Callable[[Iterable[Any]], bytes]:
    return lambda values: _framed(tag, b"".join(sorted(map(canonical, values))))


def _dict(value: dict[Any, Any]) -> bytes:
    return _framed(b"D", b"".join(sorted(canonical(k) + canonical(v) for k, v in value.items())))


_EXACT: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: b"0:",
    bool: lambda value: b"T:" if value else b"F:",
    int: _number,
    float: _float,
    str: _text,
    bytes: lambda value: _framed(b"y", value),
    tuple: _joined(b"t"),
    list: _joined(b"l"),
    set: _sorted(b"S"),
    frozenset: _sorted(b"Z"),
    dict: _dict,
}


@functools.lru_cache(maxsize=4096)
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)
