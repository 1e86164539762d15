"""The exact form of values that hold one object in two places, for when pickle is not allowed.

The native encoder declines such values, because a tree would lose the sharing, and `auto` then
pickles them. Without pickle they are copied here into a tree and written: what was one list
comes back as two equal ones, as it would from JSON. Values with a cycle, and those that would
become more than :data:`MAX_NODES` objects, are declined.
"""

from __future__ import annotations

from typing import Any

from nearcache import _core

MAX_NODES = 1_000_000  # a few nested pairs of one object can stand for any number


def dump(value: Any) -> bytes | None:
    try:
        return _core.encode(_Copier().copy(value))
    except (_TooLargeError, RecursionError):
        return None


class _TooLargeError(Exception):
    pass


class _Copier:
    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MAX_NODES

    def copy(self, value: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise _TooLargeError
        kind = type(value)
        if kind in (str, bytes):
            return value[:1] + value[1:]  # another object, if it is long enough to matter
        if kind in (list, tuple, set, frozenset):
            return kind([self.copy(item) for item in value])
        if kind is dict:
            return {self.copy(key): self.copy(item) for key, item in value.items()}
        return value
