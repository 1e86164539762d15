"""Asking where the servers are: by one caller at a time, and not more often than it helps.

A caller that finds the map wrong calls :meth:`Refresh.after`. One caller asks. Callers that come
meanwhile wait for its answer. Callers that come within ``every_s`` after it are told that nothing
is new.

There are no locks: a caller takes the turn by ``dict.setdefault``. Whatever happens to that caller
(a fork, an interrupt, a cancelled task), the turn is free again after ``limit_s``.
"""

from __future__ import annotations

from collections.abc import Callable

from nearcache.base.clock import Clock
from nearcache.base.per_process import generation
from nearcache.base.sans_io import Flow, Pause
from nearcache.errors import EngineError

LOOK_S = 0.002
"""The pause between two looks of a caller that waits."""


class Refresh:
    """``ask`` is a flow that fetches the map and puts it in place. Seconds are float."""

    def __init__(
        self, ask: Callable[[], Flow[None]], clock: Clock, *, every_s: float, limit_s: float
    ) -> None:
        self.number = 0
        """How often the map was fetched. A caller notes it before it reads the map."""
        self._ask = ask
        self._clock = clock
        self._every_s = every_s
        self._limit_s = limit_s
        self._turn: dict[int, tuple[object, float]] = {}
        self._not_before_s = 0.0
        self._last_error: EngineError | None = None

    def after(self, number: int) -> Flow[bool]:
        """True if the map is newer than ``number``; False if it was asked for a moment ago.

        Raises what asking raised, if this caller asked.
        """
        while self.number == number:
            if self._take_turn():
                yield from self._run()
            elif not self._is_running():
                return False
            else:
                yield Pause(LOOK_S)
        return True

    def first(self) -> Flow[None]:
        """Returns when there is a map; otherwise raises the last error of asking for it."""
        if not self.number and not (yield from self.after(0)) and self._last_error is not None:
            raise type(self._last_error)(*self._last_error.args)

    def _run(self) -> Flow[None]:
        try:
            yield from self._asked()
        finally:
            self._turn.pop(generation(), None)

    def _asked(self) -> Flow[None]:
        try:
            yield from self._ask()
            self.number += 1
        except EngineError as error:
            self._last_error = error
            self._rest()
            raise
        # Not after an interrupt: callers that wait would be told that nothing is new.
        self._rest()

    def _rest(self) -> None:
        self._not_before_s = self._clock.monotonic_s() + self._every_s

    def _take_turn(self) -> bool:
        now_s = self._clock.monotonic_s()
        if now_s < self._not_before_s:
            return False
        mine = (object(), now_s + self._limit_s)
        return self._turn.setdefault(generation(), mine) is mine

    def _is_running(self) -> bool:
        """Whether a caller asks now; one that asks for longer than ``limit_s`` is forgotten."""
        turn = self._turn.get(generation())
        if turn is not None and turn[1] < self._clock.monotonic_s():
            self._turn.pop(generation(), None)
        return turn is not None
