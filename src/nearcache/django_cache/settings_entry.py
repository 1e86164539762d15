"""An entry of ``CACHES``, checked whole: what stands beside ``OPTIONS`` as well.

Django takes every name there and reads those it knows, so ``"size": "8MB"`` beside OPTIONS would
mean nothing, without a word. The values are checked as Django reads them, because it takes a
timeout that is no number for its default of 300 s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from nearcache.base.options import Options, option_fields, text, whole
from nearcache.errors import OptionError


def check_entry(options: type[Options], params: Mapping[str, Any]) -> None:
    """Raises OptionError for what Django would ignore or trip over."""
    for name, value in params.items():
        if name not in READINGS:
            raise _unknown(options, name)
        try:
            READINGS[name](value)
        except ValueError as error:
            raise OptionError(options.backend, name, str(error)) from error
    for name in params.get("OPTIONS") or ():
        if name in BESIDE and name not in _names(options):
            raise OptionError(options.backend, name, f"belongs beside OPTIONS, {BESIDE[name]}")


def _unknown(options: type[Options], name: Any) -> OptionError:
    plain = {each.lower(): each for each in _names(options)}
    if isinstance(name, str) and name.lower() in plain:
        problem = f'belongs into OPTIONS: "OPTIONS": {{"{plain[name.lower()]}": ...}}'
        return OptionError(options.backend, name, problem)
    return OptionError.unknown(options.backend, name, filter(str.isupper, READINGS))


def _names(options: type[Options]) -> list[str]:
    return [each.metadata["name"] for each in option_fields(options)]


def _timeout(value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    digits = isinstance(value, str) and value.removeprefix("-").isdecimal()
    if not (value is None or digits or (number and abs(value) < float("inf"))):
        raise ValueError(f"is {value!r}; write a number of seconds, or None for ever")


def _options(value: Any) -> None:
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f"is a {type(value).__name__}; write a dict")


def _version(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"is {value!r}; write a whole number")


def _function(value: Any) -> None:
    if value is None or callable(value):
        return
    module, _, name = text(value).rpartition(".")
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
    "KEY_PREFIX": text,
    "VERSION": _version,
    "KEY_FUNCTION": _function,
    "REVERSE_KEY_FUNCTION": _anything,  # django-redis's, which is not needed here
    # As Django reads them beside OPTIONS.
    "timeout": _timeout,
    "max_entries": whole(0),
    "cull_frequency": whole(0),
}
BESIDE = dict.fromkeys(filter(str.isupper, READINGS), "not inside") | {
    "REVERSE_KEY_FUNCTION": "and is not needed here: leave it out"
}
"""What is beside OPTIONS, and not inside unless an option is called so: no near name is meant."""
