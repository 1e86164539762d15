"""An entry of ``CACHES``, checked whole: what stands beside ``OPTIONS`` as well.

Django takes every name there and reads those it knows, so ``"size": "8MB"`` beside OPTIONS would
mean nothing, without a word. The values are checked as Django reads them, because it takes a
timeout that is no number for its default of 300 s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

from nearcache.base.options import whole
from nearcache.errors import OptionError


def check_entry(backend: str, params: Mapping[str, Any], inside: Iterable[str]) -> None:
    """Raises OptionError for what Django would ignore or trip over; ``inside``: of OPTIONS."""
    for name, value in params.items():
        reads = READINGS.get(name)
        if reads is None:
            raise _unknown(backend, name, inside)
        try:
            reads(value)
        except ValueError as error:
            raise OptionError(backend, name, str(error)) from error


def _unknown(backend: str, name: Any, inside: Iterable[str]) -> OptionError:
    if not isinstance(name, str):
        return OptionError(backend, name, "is no name of a setting; names are text")
    plain = {each.lower(): each for each in inside}
    if name.lower() in plain:
        right = plain[name.lower()]
        return OptionError(backend, name, f'belongs into OPTIONS: "OPTIONS": {{"{right}": ...}}')
    return OptionError.unknown(backend, name, [each for each in READINGS if each.isupper()])


def _timeout(value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    digits = isinstance(value, str) and value.removeprefix("-").isdecimal()
    if not (value is None or digits or (number and abs(value) < float("inf"))):
        raise ValueError(f"is {value!r}; write a number of seconds, or None for ever")


def _text(value: Any) -> None:
    if not isinstance(value, str):
        raise ValueError(f"is {value!r}; write text")


def _options(value: Any) -> None:
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f"is a {type(value).__name__}; write a dict")


def _version(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"is {value!r}; write a whole number")


def _function(value: Any) -> None:
    if value is None or callable(value):
        return
    _text(value)
    module, _, name = value.rpartition(".")
    try:
        getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"is {value!r}, which does not import ({error})") from error


def _anything(_value: Any) -> None:
    pass


READINGS: dict[str, Callable[[Any], Any]] = {
    "BACKEND": _anything,  # Django takes these two out before
    "LOCATION": _anything,
    "OPTIONS": _options,
    "TIMEOUT": _timeout,
    "KEY_PREFIX": _text,
    "VERSION": _version,
    "KEY_FUNCTION": _function,
    "REVERSE_KEY_FUNCTION": _anything,  # django-redis's, which is not needed here
    # As Django reads them beside OPTIONS.
    "timeout": _timeout,
    "max_entries": whole(0),
    "cull_frequency": whole(0),
}
