"""The name of a call: the same text for the same function and arguments, in every process.

    shop.prices.total:5b1f…    module and qualified name, then a hash of the arguments

Arguments are bound to the function's signature first. So it makes no difference how an argument was
passed, and whether a default was left out. Then each argument becomes bytes: a tag for its exact
type, its length, its content. So 1, 1.0 and True are three calls, and so are ("ab", "c") and
("a", "bc"). Dicts and sets are sorted by these bytes: neither their order nor the seed of Python's
hashes is in the key.

A value without an identity that outlives the process is a TypeError, because ``<object at 0x7f…>``
would make a key that never hits, or one that hits wrongly. An instance of a model stands for its
row of the database. A lazy object stands for what it wraps. A class or a function stands for its
name, if that name leads to it.

A variable that a nested function captured is an argument like those that are passed: for two
tenants ``def of(tenant): @memoize def total(): ...`` makes two functions of one name. The same
holds for arguments of decorators, and for defaults of captured functions.

What a function asks elsewhere is not in the key: the language, the time zone, the schema or the
tenant of the thread. It has to be passed, or be in ``key=``.

The source of a function is not in its name. To change what a function returns, change a version.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import functools
import hashlib
import inspect
import pathlib
import re
import struct
import sys
import types
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

NAME_MAX_CHARS = 160  # Django warns of keys above 250; the hash covers what is cut off
HASH_BYTES = 16

LAZY = "django.utils.functional"
ANONYMOUS = "django.contrib.auth.models.AnonymousUser"
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

_BASES: tuple[Any, ...] = (str, bytes, int, float, tuple)
_PLAIN: dict[type, Callable[[Any], Any]] = {
    str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    int: int.__pos__,
    float: float.__pos__,
    tuple: lambda value: tuple.__getitem__(value, slice(None)),
}
"""What an object of a derived class holds, whatever that class makes of it."""
MOST_LAYERS = 100
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
    captured: bool = True,
) -> str:
    """The name of ``function(*args, **kwargs)``; see the head of this module.

    Parameters named in ``ignore`` make no difference (``self``, a request). ``more`` is hashed with
    the arguments. So is what the function captured, unless ``captured`` is False.

    Raises:
        TypeError: the arguments do not fit the signature, one of them has no stable identity, or
            the function has no name of its own.
    """
    name = function_name(function)
    bound = _signature(function).bind(*args, **(kwargs or {}))
    bound.apply_defaults()
    digest = hashlib.blake2b(_framed(b"f", name.encode()), digest_size=HASH_BYTES)
    digest.update(canonical(more))
    for parameter, value in bound.arguments.items():
        if parameter not in ignore:
            digest.update(_framed(b"p", parameter.encode()))
            digest.update(_of_argument(name, "argument", parameter, value))
    if captured:
        for variable, value, tell in _captured(function, ignore):
            digest.update(_framed(b"q", variable.encode()))
            digest.update(_of_argument(name, "captured variable", variable, value, tell))
    return f"{name[:NAME_MAX_CHARS]}:{digest.hexdigest()}"


def captured_names(function: Callable[..., Any]) -> set[str]:
    """The variables that :func:`call_key` finds in a function, beside its parameters."""
    return {variable for variable, *_ in _captured(function, ())}


def _captured(
    function: Callable[..., Any], ignore: Collection[str]
) -> Iterator[tuple[str, Any, Callable[[Any], bytes]]]:
    """What a function and its decorators captured: name, content, and what makes bytes of it.

    Of a captured function the name becomes bytes, and what that function captured follows.
    """
    known = list(_layers(function))
    # Defaults of the function itself are arguments already.
    held = [*_closure(known[-1]), *(each for layer in known[:-1] for each in _held(layer))]
    while held:
        variable, content = held.pop(0)
        layers = _layers(content)
        # `super()` makes every method capture its class, and recursion a function itself.
        if variable in {"__class__", *ignore} or any(layers[-1] is each for each in known):
            continue
        if not isinstance(layers[-1], types.FunctionType):
            yield variable, content, canonical
        else:
            yield variable, content, _name_of
            known += layers
            held[:0] = [each for layer in layers for each in _held(layer)]


def _name_of(function: Callable[..., Any]) -> bytes:
    return canonical(function_name(function))


def _held(layer: Any) -> Iterator[tuple[str, Any]]:
    """What a function holds; nothing if its name leads to it, as the name then says all."""
    if isinstance(layer, functools.partial):
        yield "partial", (layer.args, layer.keywords)
    elif isinstance(layer, types.FunctionType) and not _is_found(layer):
        yield from _closure(layer)
        yield from _defaults(layer)


def _closure(function: Any) -> Iterator[tuple[str, Any]]:
    cells = getattr(function, "__closure__", None) or ()
    for variable, cell in zip(function.__code__.co_freevars if cells else (), cells, strict=True):
        yield variable, _content(cell)


def _defaults(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    values = function.__defaults__ or ()
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    yield from zip(names[len(names) - len(values) :], values, strict=True)
    yield from (function.__kwdefaults__ or {}).items()


def _layers(function: Any) -> tuple[Any, ...]:
    """A function and what it wraps, the outermost first."""
    layers = [function]
    while hasattr(layers[-1], "__wrapped__") and len(layers) < MOST_LAYERS:
        layers.append(layers[-1].__wrapped__)
    return tuple(layers)


def _is_found(function: types.FunctionType) -> bool:
    """True if the function's name leads to it, or to what wraps it."""
    return any(function is each for each in _layers(_found(function)))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def value_key(function: Callable[..., Any], value: Any) -> str:
    """The name of a call of the function; ``value`` tells it from other calls."""
    name = function_name(function)
    digest = hashlib.blake2b(_framed(b"v", name.encode()), digest_size=HASH_BYTES)
    digest.update(canonical(value))
    return f"{name[:NAME_MAX_CHARS]}:{digest.hexdigest()}"


def function_name(function: Callable[..., Any]) -> str:
    """Module and qualified name; TypeError if there is none, or if others have the same."""
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
    if kind.__module__ == LAZY and hasattr(value, "_wrapped"):
        return canonical(_unwrapped(value))
    if isinstance(value, enum.Enum):
        # The number tells combined flags apart, which have no name.
        told = value.name if value.name is not None else (None, value.value)
        return _framed(b"e", _named(kind) + canonical(told))
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
        return _framed(b"n", _found_name(value).encode())
    if kind in _SPELLED:
        return _framed(b"r", _named(kind) + _spelling(value).encode())
    if hasattr(kind, "_meta") and hasattr(value, "pk"):
        return _of_model(value)
    if f"{kind.__module__}.{kind.__qualname__}" == ANONYMOUS:
        return _named(kind)
    if dataclasses.is_dataclass(value):
        return _framed(b"c", _named(kind) + canonical(_of_dataclass(value)))
    if isinstance(value, _BASES) and not _holds_more(value):
        # A named tuple or Django's SafeString: the value of its base, under its own name.
        base = next(each for each in _BASES if isinstance(value, each))
        # Not base(value): a class may have a __str__ that masks what it holds.
        return _framed(b"b", _named(kind) + _EXACT[base](_PLAIN[base](value)))
    raise TypeError(f"a {kind.__module__}.{kind.__qualname__} has no identity that a key can hold")


def _of_argument(
    name: str, what: str, parameter: str, value: Any, tell: Callable[[Any], bytes] = canonical
) -> bytes:
    try:
        return tell(value)
    except (TypeError, RecursionError) as error:
        raise TypeError(
            f"{name}(): {what} {parameter!r} cannot be part of a key ({error}); give key=, a"
            f" function that makes the key, or ignore=({parameter!r},)"
        ) from error


def _of_model(value: Any) -> bytes:
    """An instance of a Django model as the row that it stands for, whatever was loaded of it.

    The alias of the database is a part of it: with a database per tenant, rows of two tenants have
    one label and one primary key.
    """
    state = getattr(value, "_state", None)
    keys = value.pk if isinstance(value.pk, tuple) else (value.pk,)
    if None in keys:
        raise TypeError(f"an unsaved {value._meta.label} has no primary key")
    told = canonical(value._meta.label_lower) + canonical(getattr(state, "db", None))
    if not getattr(state, "adding", False):
        return _framed(b"m", told + canonical(value.pk))
    # The row is not stored yet, though its key is known: the instance stands for its fields.
    held = [(each.attname, vars(value).get(each.attname)) for each in value._meta.concrete_fields]
    return _framed(b"u", told + canonical(held))


def _of_dataclass(value: Any) -> list[tuple[str, Any]]:
    """Its fields, and whatever else it holds: a class derived from it may have more."""
    names = [each.name for each in dataclasses.fields(value)]
    slots = [name for each in type(value).__mro__ for name in _slots(each)]
    more = sorted({*slots, *getattr(value, "__dict__", {})} - {*names, "__dict__", "__weakref__"})
    more = [name for name in more if hasattr(value, name) and not _is_kept_property(value, name)]
    return [(name, getattr(value, name)) for name in (*names, *more)]


def _is_kept_property(value: Any, name: str) -> bool:
    """True if a ``cached_property`` keeps its result under that name."""
    kind = type(inspect.getattr_static(type(value), name, None))
    return kind.__name__ == "cached_property"


def _slots(kind: type) -> tuple[str, ...]:
    """The names of slots as attributes: a private one begins with the name of the class."""
    slots = kind.__dict__.get("__slots__", ())
    given = (slots,) if isinstance(slots, str) else tuple(slots)
    own = f"_{kind.__name__.lstrip('_')}"
    return tuple(
        own + name if name.startswith("__") and not name.endswith("__") else name for name in given
    )


def _unwrapped(value: Any) -> Any:
    """What a lazy object (``request.user``) stands for; made now unless it was made before."""
    value.__class__  # noqa: B018 - any attribute will do
    return value._wrapped


def _found_name(value: Any) -> str:
    """The name of a class or a function; TypeError if the name does not lead to it."""
    name = function_name(value)
    found = _found(value)
    if found is None or inspect.unwrap(found) is not inspect.unwrap(value):
        raise TypeError(f"{name} cannot be found by that name, or shares it with others")
    return name


def _found(value: Any) -> Any:
    """What the name of a class or a function leads to; None if it leads nowhere."""
    found: Any = sys.modules.get(value.__module__)
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    return found


def _spelling(value: Any) -> str:
    spelled = repr(value)
    if _ADDRESS.search(spelled):  # a time zone of somebody's own
        raise TypeError(f"{spelled} has an address in it, which another process may have as well")
    return spelled


def _holds_more(value: Any) -> bool:
    """True if an object of a class derived from text, a number or a tuple holds more than that."""
    slots = (getattr(each, "__slots__", ()) for each in type(value).__mro__)
    return bool(getattr(value, "__dict__", None)) or any(slots)


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
