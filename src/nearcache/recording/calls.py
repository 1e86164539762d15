"""One noted call: how it was called, what its answer says, and how long the cache took."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from nearcache.recording.recorder import Recorder
from nearcache.recording.trace import Outcome

NOTHING = object()
clock = time.perf_counter_ns

# Where arguments behind the first one are, when they are given by position.
PLACES: dict[str, dict[str, int]] = {
    "get": {"default": 0, "version": 1},
    "set": {"value": 0, "timeout": 1, "version": 2},
    "add": {"value": 0, "timeout": 1, "version": 2},
    "touch": {"timeout": 0, "version": 1},
    "delete": {"version": 0},
    "has_key": {"version": 0},
    "incr": {"delta": 0, "version": 1},
    "decr": {"delta": 0, "version": 1},
    "incr_version": {"delta": 0, "version": 1},
    "decr_version": {"delta": 0, "version": 1},
    "get_or_set": {"default": 0, "timeout": 1, "version": 2},
    "get_many": {"version": 0},
    "set_many": {"timeout": 0, "version": 1},
    "delete_many": {"version": 0},
    "clear": {},
}
MANY = {"get_many": "keys", "set_many": "data", "delete_many": "keys"}  # and their first argument
COUNTING = frozenset({"incr", "decr", "incr_version", "decr_version"})


@dataclass
class Arguments:
    """What a method was called with, behind its first argument."""

    operation: str
    by_place: tuple[Any, ...]
    by_name: dict[str, Any]

    def value_of(self, name: str, otherwise: Any = None) -> Any:
        if name in self.by_name:
            return self.by_name[name]
        place = PLACES[self.operation].get(name, len(self.by_place))
        return self.by_place[place] if place < len(self.by_place) else otherwise

    def with_default(self, default: Any) -> Arguments:
        """The same with another ``default``, which is always the first."""
        if self.by_place:
            return Arguments(self.operation, (default, *self.by_place[1:]), self.by_name)
        return Arguments(self.operation, (), {**self.by_name, "default": default})


class Call:
    """The account of one call; ``keys`` are those of its ``of`` that are in the sample."""

    def __init__(
        self,
        recorder: Recorder,
        arguments: Arguments,
        keys: Collection[Any],
        of: int,
        *,
        own_version: Any,
        ttl_ms: int | None,
        values: Mapping[Any, Any],
        is_async: bool,
    ) -> None:
        self.recorder = recorder
        self.operation = arguments.operation
        self.keys = keys
        self.of = of
        version = arguments.value_of("version")
        self.version = None if version == own_version else version
        self.ttl_ms = ttl_ms
        self.values = values
        self.flags = Outcome.ASYNC if is_async else 0
        self.computed: bool | None = None  # whether get_or_set had to; None: nobody knows
        self.elsewhere_ns = 0  # the time that took: the application's, not the cache's
        self.arguments = self._telling(arguments)
        self.began_ns = clock()

    def answered(self, answer: Any) -> None:
        """Never raises."""
        latency_ns = clock() - self.began_ns - self.elsewhere_ns
        try:
            for key in self.keys:
                outcome, value = self._outcome(key, answer)
                self._note(key, latency_ns, outcome, value)
        except Exception as error:  # noqa: BLE001 - a backend may answer anything
            self.recorder.forgive(error)

    def failed(self, error: BaseException) -> None:
        latency_ns = clock() - self.began_ns - self.elsewhere_ns
        # Django's way to say that there is nothing under this key to count with.
        no_key = isinstance(error, ValueError) and self.operation in COUNTING
        for key in self.keys:
            self._note(key, latency_ns, Outcome.MISS if no_key else Outcome.ERROR, NOTHING)

    def _telling(self, given: Arguments) -> Arguments:
        """Arguments for the wrapped cache, changed so that the answer says hit or miss."""
        if self.operation == "get":
            return given.with_default(NOTHING)
        default = given.value_of("default") if self.operation == "get_or_set" else None
        return given.with_default(self._timed(default)) if callable(default) else given

    def _timed(self, compute: Callable[[], Any]) -> Callable[[], Any]:
        self.computed = False
        if inspect.iscoroutinefunction(compute):

            @functools.wraps(compute)
            async def awaited() -> Any:
                started_ns = self._computes()
                try:
                    return await compute()
                finally:
                    self.elsewhere_ns += clock() - started_ns

            return awaited

        def called() -> Any:
            started_ns = self._computes()
            try:
                return compute()
            finally:
                self.elsewhere_ns += clock() - started_ns

        return called

    def _computes(self) -> int:
        self.computed = True
        return clock()

    def _outcome(self, key: Any, answer: Any) -> tuple[int, Any]:
        """(flags, the value if there is one)."""
        operation = self.operation
        if operation == "get":
            return _found(answer)
        if operation == "get_many":
            return _found(answer.get(key, NOTHING))
        if operation == "get_or_set":
            if self.computed is None:
                return 0, answer
            return (Outcome.MISS if self.computed else Outcome.HIT), answer
        if operation == "has_key":
            return (Outcome.HIT if answer else Outcome.MISS), NOTHING
        return (Outcome.REFUSED if answer is False else 0), self.values.get(key, NOTHING)

    def _note(self, key: Any, latency_ns: int, outcome: int, value: Any) -> None:
        self.recorder.note(
            self.operation,
            key,
            self.version,
            latency_ns,
            outcome | self.flags,
            value=value,
            has_value=value is not NOTHING,
            ttl_ms=self.ttl_ms,
            of=self.of,
        )


def _found(value: Any) -> tuple[int, Any]:
    return (Outcome.MISS if value is NOTHING else Outcome.HIT), value
