"""One attempt to get a named lock: asking, waiting in its queue, giving up.

An interrupt may come after the store was asked and before its answer was kept. So an attempt knows
at every moment what the store may have given. It depends on how the store answers:

    over a network   the ticket tells, a number that is made here before the store is asked
    at once          the answer tells. Native code puts it into a list, so no instruction lies
                     between the lock and the list
"""

from __future__ import annotations

import contextlib
import math
from itertools import starmap
from typing import Any, Protocol

from nearcache.base.clock import Clock
from nearcache.base.sans_io import Flow, Pause, ask, steps_of
from nearcache.coordination.leases import lock_epoch
from nearcache.coordination.lock_renewal import renewer_of
from nearcache.errors import ConnectionFailed, EngineError, EngineUnavailable, ReplyTimeout

FIRST_PAUSE_S = 0.001
QUEUE_PAUSE_S = 0.005
"""The longest pause between two looks of a waiter that cannot be woken."""
WAIT_MS = 1000
"""The longest single wait of an engine. Between two waits signals are handled, and the place in the
queue is renewed."""
OUTAGE_S = 15.0
"""How long a store may be away before callers that wait get its error."""
LEAVE_AGAIN_S = 1.0
"""A place is given up twice, the second time so much later: the first time may overtake the request
for the place."""


class LockEngine(Protocol):
    """The part of an engine that locks need, with ``a`` twins if it is ``native_async``.

    An engine may have more:

    ``lock_ttl_ms``   the time of locks made without one, which are renewed like any other. For
                      an engine that does not notice that the holder's process is gone
    ``lock_ticket``   makes tickets up; ``lock_acquire`` then takes one, too. For an engine whose
                      answers may get lost
    ``lock_server``   the server of a lock, by the lock's name. For an engine of several servers
    """

    def lock_acquire(self, name: bytes, ttl_ms: int) -> int | None: ...
    def lock_renew(self, name: bytes, token: int, ttl_ms: int) -> bool: ...
    def lock_release(self, name: bytes, token: int) -> bool: ...
    def lock_wait(
        self, name: bytes, ticket: int | None, ttl_ms: int, wait_ms: int
    ) -> tuple[int | None, int | None]: ...
    def lock_leave(self, name: bytes, ticket: int) -> None: ...


class LockAttempt:
    """One attempt. It knows what the store was asked, and what the store may have given."""

    __slots__ = (
        "_answers",
        "_asks_far",
        "_clock",
        "_engine",
        "_name",
        "_ttl_ms",
        "has_place",
        "lock_epoch",
        "ticket",
    )

    def __init__(
        self, engine: LockEngine, name: bytes, ttl_ms: int, clock: Clock, asks_far: bool
    ) -> None:
        self._engine: Any = engine
        self._name = name
        self._ttl_ms = ttl_ms
        self._clock = clock
        self._asks_far = asks_far
        self._answers: list[Any] = []
        self.has_place = False
        self.lock_epoch: int | None = None  # of the store, before it was last asked
        make = getattr(engine, "lock_ticket", None) if asks_far else None
        self.ticket: int | None = make() if make else None

    def made(self, wait_s: float | None, blocks: bool) -> Flow[tuple[int | None, float]]:
        """The token, and when the store was asked for it. The token is None if the time is over."""
        token: int | None = None
        asked_at_s = self._clock.monotonic_s()
        give_up_at_s = math.inf if wait_s is None else asked_at_s + wait_s
        if not self._asks_far:
            token = self._told_at_once("lock_acquire", self._name, self._ttl_ms)
        elif wait_s == 0:
            made_up = () if self.ticket is None else (self.ticket,)
            self.lock_epoch = lock_epoch(self._engine)
            asked = steps_of(self._engine, "lock_acquire", self._name, self._ttl_ms, *made_up)
            token = yield from asked
        else:  # one round trip, whether it is free or not
            wait_ms = self._wait_ms(wait_s if wait_s is not None else math.inf)
            token = yield from self._ask_to_wait(wait_ms)
        if token is None and wait_s != 0:
            return (yield from self._queue(give_up_at_s, blocks))
        return token, asked_at_s

    def _queue(self, give_up_at_s: float, blocks: bool) -> Flow[tuple[int | None, float]]:
        outage = Absence(self._clock)
        pause_s = FIRST_PAUSE_S
        while True:
            asked_at_s = self._clock.monotonic_s()
            left_s = max(0.0, give_up_at_s - asked_at_s)
            try:
                token = yield from self._ask_to_wait(self._wait_ms(left_s) if blocks else 0)
                outage.is_over()
            except EngineUnavailable as error:
                if not self.has_place:
                    raise
                token, pause_s = None, outage.goes_on(error)
            if token is not None:
                return token, asked_at_s
            if not left_s:
                break
            if outage.since_s is not None or not blocks:
                yield Pause(min(pause_s, left_s))
                pause_s = min(pause_s * 1.5, QUEUE_PAUSE_S)
        yield from self._leave_queue()
        return None, 0.0

    def _ask_to_wait(self, wait_ms: int) -> Flow[int | None]:
        question = "lock_wait", self._name, self.ticket, self._ttl_ms, wait_ms
        if self._asks_far:
            self.lock_epoch = lock_epoch(self._engine)
            token, ticket = yield from steps_of(self._engine, *question)
        else:
            token, ticket = self._told_at_once(*question)
        self.ticket, self.has_place = ticket or self.ticket, token is None
        return token  # type: ignore[no-any-return]

    def _wait_ms(self, left_s: float) -> int:
        # The lease is counted from before the wait. It must not lose much of its time to that.
        longest_ms = min(WAIT_MS, self._ttl_ms // 4) or 1
        return longest_ms if left_s * 1000 >= longest_ms else math.ceil(left_s * 1000)

    def withdraw(self, error: BaseException) -> None:
        """Gives back what the store gave, or may have given. Waits for nothing."""
        token = self.token
        if token is not None:
            tell(self._engine, self._name, "lock_release", token, self._ttl_ms)
        elif self.ticket is not None and (self.has_place or may_have_happened(error)):
            tell(self._engine, self._name, "lock_leave", self.ticket, self._ttl_ms)
            if self._asks_far:
                self._leave_later(LEAVE_AGAIN_S)

    def _leave_queue(self) -> Flow[None]:
        if self.ticket is None:
            return
        try:
            yield ask("lock_leave", self._name, self.ticket)
        except EngineUnavailable:
            self._leave_later()

    def _leave_later(self, after_s: float = 0.0) -> None:
        ticket, ttl_ms = self.ticket or 0, self._ttl_ms
        tell_later(self._engine, self._name, "lock_leave", ticket, ttl_ms, after_s)

    def _told_at_once(self, method: str, *args: Any) -> Any:
        self.lock_epoch = lock_epoch(self._engine)
        # `starmap` calls, and `extend` keeps the answer: all between two instructions of Python.
        answers = self._answers
        del answers[:-1]
        answers.extend(starmap(getattr(self._engine, method), (args,)))
        return answers[-1]

    @property
    def token(self) -> int | None:
        """The token that a store which answers at once gave last."""
        last = self._answers[-1] if self._answers else None
        if not isinstance(last, tuple):
            return last
        token, ticket = last
        self.ticket = ticket or self.ticket
        return token  # type: ignore[no-any-return]


def may_have_happened(error: BaseException) -> bool:
    """False if the store refused, or was not asked: then it gave nothing."""
    return not isinstance(error, EngineError) or isinstance(error, ReplyTimeout | ConnectionFailed)


class Absence:
    """A store that is away while a caller waits: for how long, and when to look again."""

    def __init__(self, clock: Clock) -> None:
        self.since_s: float | None = None
        self._clock = clock

    def is_over(self) -> None:
        self.since_s = None

    def goes_on(self, error: EngineUnavailable) -> float:
        """Seconds to pause. Raises the error if the store has been away for too long."""
        now_s = self._clock.monotonic_s()
        if self.since_s is None:
            self.since_s = now_s
        if now_s - self.since_s > OUTAGE_S:
            raise error
        return 0.1


def native_async(engine: Any) -> bool:
    return bool(getattr(engine, "native_async", False))


def tell(engine: Any, name: bytes, method: str, number: int, ttl_ms: int) -> None:
    """Tells a store that answers at once now, and any other from the renewer's thread."""
    if not native_async(engine):
        with contextlib.suppress(EngineUnavailable):
            getattr(engine, method)(name, number)
            return
    tell_later(engine, name, method, number, ttl_ms)


def tell_later(
    engine: Any, name: bytes, method: str, number: int, ttl_ms: int, after_s: float = 0.0
) -> None:
    """Has the renewer tell the store, until it answers or the lock's time is over."""
    renewer = renewer_of(engine, name)
    renewer.later(lambda: getattr(engine, method)(name, number), ttl_ms / 1000, after_s)
