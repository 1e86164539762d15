"""What goes wrong between values and bytes, and the libraries that may be missing."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from nearcache.errors import OptionError


class Undecodable(ValueError):
    """These bytes are no value that this codec and its libraries can or may read."""


class Unencodable(TypeError, pickle.PicklingError):
    """This value is not for this serializer.

    A TypeError for who reads it, and pickle's error for Django, which demands one from every
    backend's ``set`` for a value that cannot be stored.
    """


@cache
def library(name: str) -> Any:
    """A module of the extra ``codecs``, imported when its codec is first used."""
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        problem = f'needs {package}: pip install "nearcache[codecs]"'
        raise OptionError("nearcache.codec", package, problem) from error


def refusing(name: str, dump: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """``dump`` whose own errors about a value are :class:`Unencodable`."""

    def refuse_or_dump(value: Any) -> bytes:
        try:
            return dump(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise Unencodable(f"{name} cannot hold this {type(value).__name__}: {error}") from error

    return refuse_or_dump
