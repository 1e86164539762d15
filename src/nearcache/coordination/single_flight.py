"""Single flight: of all callers that miss a key at once, one computes the value for all.

There are two rings, one inside the other:

    process   The first caller that misses leads a *crew*. The other callers of this process
              (threads, greenlets or tasks) take a seat in the crew and sleep until the leader
              lands. The leader leaves them the bytes. A leader that failed leaves one of them
              the lead.
    store     The leaders of all processes try to *claim* the key (:mod:`.claims`). The leader that
              has the claim computes. The other leaders look for the value again, ever less
              often. When the value is there, all of them land with it. When the claim is over,
              as its owner died, one of them gets it.

So a store sees one waiter per process and key, however many threads there are. A value that the
store refuses still reaches every caller of the process.

Every wait is bounded. A caller that has waited that long computes as well, as if there were no
single flight: that is slow, and never stuck. The caller also breaks its crew up, so that later
callers do not wait for a leader that may never land (a loop that was stopped, a lost greenlet).

A caller does not wait for what cannot happen while it waits. A computation that asks for its own
key computes at once. So does a plain call inside the event loop whose task has the lead.

Any caller may be interrupted at any instruction, by a signal handler that raises or a greenlet that
is killed. So there is no lock here that could stay held: dicts and deques change by operations
that happen or do not. Rules:

F1  The turns of a crew are numbered. ``setdefault`` takes the turn after a turn that is over, so
    one caller leads at a time. A turn is over when its flight said so. A turn is also over when
    its flight is gone: nobody refers to it, as all frames of its call have ended, after an
    interrupt within an interrupt. (There is no ``__del__``: an interrupt that hits a ``__del__``
    is lost, and every call would have one.)
F2  A caller that takes a seat looks at the crew afterwards. A leader that lands changes the crew
    before it wakes the seats. A caller that gives up a seat looks whether the lead is free, and
    wakes another caller if it is.
F3  A wake-up may be lost together with the caller that was to give it. The first of the seats
    looks around every ``LOOK_S``, the other seats every ``LOOK_AGAIN_S``.
F4  A crew is closed by taking its next turn for good. A caller that has a seat by then boards anew.

This module knows nothing of caches or values. It knows bytes, and functions that look for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from nearcache.base.clock import Clock
from nearcache.base.counters import Counters
from nearcache.base.per_process import OfProcess
from nearcache.base.sans_io import Flow, Pause, Run
from nearcache.base.threads import this_task, this_thread
from nearcache.coordination.claims import Claim

R = TypeVar("R")

Look = Callable[[], Flow[bytes | None]]
"""A flow that looks for the value in the store; None if it is not there."""

FIRST_LOOK_S = 0.005
LONGEST_LOOK_S = 0.100
PACE_S = 0.1
"""How long a process does not ask about a key again that another process refreshes."""
LOOK_S, LOOK_AGAIN_S = 0.1, 1.0

_PACED_MAX = 1024

Leader = tuple[object, Callable[[], object]]
"""A thread (greenlet), and a reference to a task or to nothing."""


class Seat:
    """What a thread or a greenlet sleeps on."""

    def __init__(self) -> None:
        # Not an Event: an interrupt inside of one would leave its lock held.
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self) -> bool:
        """False if it is sure that nobody is there to be woken."""
        with contextlib.suppress(RuntimeError):  # it was woken before
            self._lock.release()
        return True

    def wait(self, seconds: float) -> Any:
        return self._lock.acquire(timeout=seconds)


class TaskSeat(Seat):
    """What a task of an event loop sleeps on. A thread may wake it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()

    def wake(self) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def _wake(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self, seconds: float) -> Any:
        await asyncio.wait([self._future], timeout=seconds)
        if self._future.done():
            self._future = self._loop.create_future()


class Threads:
    """How plain calls wait."""

    @staticmethod
    def seat() -> Seat:
        return Seat()

    @staticmethod
    def leader() -> Leader:
        """The caller as a leader: its thread (under gevent its greenlet), and its task."""
        return this_thread(), _nobody

    @staticmethod
    def cannot_wait_for(leader: Leader) -> bool:
        return leader[0] is this_thread()


class Tasks(Threads):
    """How awaited calls wait."""

    @staticmethod
    def seat() -> Seat:
        return TaskSeat() if this_task() else Seat()

    @staticmethod
    def leader() -> Leader:
        task = this_task()
        return this_thread(), weakref.ref(task) if task else _nobody

    @staticmethod
    def cannot_wait_for(leader: Leader) -> bool:
        if leader[0] is not this_thread():
            return False
        # While we wait, another task of this loop can go on. A plain call further up cannot.
        task = this_task()
        return task is None or leader[1] is _nobody or leader[1]() is task


def _nobody() -> None:
    return None


class _Turn:
    """One flight's lead of a crew."""

    __slots__ = ("_flight", "leader", "over")

    def __init__(self, flight: Flight, leader: Leader) -> None:
        self.over = False
        self.leader = leader
        self._flight = weakref.ref(flight)

    @property
    def is_free(self) -> bool:
        return self.over or self._flight() is None


class _Closed(_Turn):
    """The last turn of a crew. It is nobody's turn, and it is never over."""

    __slots__ = ()
    is_free = False

    def __init__(self) -> None:
        self.leader = (None, _nobody)


_CLOSED = _Closed()


class _Crew:
    """The callers of this process that want one key. The leader has no seat."""

    def __init__(self, engine: object) -> None:
        self.engine = engine  # kept, so that its id is not given to another engine meanwhile
        self.seats: deque[Seat] = deque()
        self.turns: dict[int, _Turn] = {}
        self.number = 0  # of the last turn, or of an earlier one
        self.raw: bytes | None = None
        self.over = False

    def last(self) -> _Turn | None:
        """The turn that is on, or else the last turn."""
        number = self.number
        while number + 1 in self.turns:
            number += 1
        self.number = number
        return self.turns.get(number)

    def take(self, turn: _Turn) -> bool:
        """True if nobody led: then this turn is on now (F1)."""
        number = self.number
        while (last := self.turns.get(number)) is not None:
            if not last.is_free:
                return False
            number += 1
        return self.turns.setdefault(number, turn) is turn

    def is_free(self) -> bool:
        last = self.last()
        return last is not None and last.is_free

    def wake_one(self) -> None:
        for seat in list(self.seats):
            if seat.wake():
                return

    def wake_all(self) -> None:
        for seat in list(self.seats):
            seat.wake()


class _Field:
    """All crews of this process. Leaders of its parent will never land here."""

    def __init__(self) -> None:
        self.crews: dict[tuple[int, bytes], _Crew] = {}
        self.paced: dict[tuple[int, bytes], float] = {}


_field = OfProcess(_Field)


class Flight:
    """One caller's flight for one key. :meth:`flown` runs the caller's steps, and lands.

    The steps are :meth:`join` or :meth:`try_join`. If these say so, the caller then computes and
    stores. ``raw`` is what the crew gets.
    """

    def __init__(
        self,
        engine: Any,
        key: bytes,
        wait_s: float,
        lease_s: float,
        clock: Clock,
        counters: Counters,
        ways: type[Threads],
    ) -> None:
        self.raw: bytes | None = None
        self._name = (id(engine), key)
        self._engine = engine
        self._wait_s = wait_s
        self._clock = clock
        self._counters = counters
        self._ways = ways
        self._claim = Claim(engine, key, lease_s, wait_s, clock)
        self._field = _field.here()
        self._crew: _Crew | None = None  # the one we lead
        self._turn: _Turn | None = None

    def flown(self, steps: Flow[R]) -> Flow[R]:
        """Returns what the steps return. Lands after them, however they end."""
        try:
            outcome = yield from steps
        except Exception:
            yield from self.leave()
            raise
        except BaseException:
            self.abandon()
            raise
        yield from self.leave()
        return outcome

    def join(self, look: Look) -> Flow[bytes | None]:
        """The value as another caller has it; None if this caller has to compute."""
        give_up_at_s = self._clock.monotonic_s() + self._wait_s
        raw = yield from self._board(give_up_at_s)
        if raw is not None:
            self._counters.local_follows += 1
            return raw
        if self._crew is None:
            return None
        return (yield from self._lead(look, self._clock.monotonic_s() + self._wait_s))

    def try_join(self) -> Flow[bool]:
        """True if this caller may compute, and nobody else does; never waits."""
        now_s = self._clock.monotonic_s()
        if self._field.paced.get(self._name, 0) > now_s:
            return False
        crew = self._crew_now()
        if not self._takes(crew):
            return False
        if (yield from self._claim.take()):
            self._counters.flight_leads += 1
            return True
        if len(self._field.paced) >= _PACED_MAX:
            self._field.paced.clear()
        self._field.paced[self._name] = now_s + PACE_S
        return False

    def moved_here(self) -> None:
        """Notes that this thread or task computes, and not the one that joined."""
        if self._turn is not None:
            self._turn.leader = self._ways.leader()

    def leave(self) -> Flow[None]:
        """Lands: leaves ``raw`` to the crew, or without it the lead. May be called twice."""
        try:
            self._land(self.raw)
            yield from self._claim.give_up()
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """:meth:`leave` after an interrupt: without a step that could take time."""
        self._land(self.raw)
        self._claim.abandon()

    # -- the ring of the process -------------------------------------------------------------

    def _crew_now(self) -> _Crew:
        crew = self._field.crews.get(self._name)
        if crew is None or crew.over:
            if crew is not None:
                self._disband(crew)
            crew = self._field.crews.setdefault(self._name, _Crew(self._engine))
        return crew

    def _takes(self, crew: _Crew) -> bool:
        """True if this flight leads the crew now."""
        self._crew, self._turn = crew, _Turn(self, self._ways.leader())
        if crew.take(self._turn):
            self._counters.local_leads += 1
            return True
        self._crew = self._turn = None
        return False

    def _board(self, give_up_at_s: float) -> Flow[bytes | None]:
        """The bytes that a leader left; None for a caller that leads, or cannot wait any longer."""
        while True:
            crew = self._crew_now()
            if self._takes(crew):
                return None
            last = crew.last()
            if last is not None and self._ways.cannot_wait_for(last.leader):
                return None
            seat = self._ways.seat()
            crew.seats.append(seat)
            try:
                over = yield from self._sit(crew, seat, give_up_at_s)
            finally:
                self._rise(crew, seat)
            if not over or crew.raw is not None:
                return crew.raw

    def _sit(self, crew: _Crew, seat: Seat, give_up_at_s: float) -> Flow[bool]:
        """True when the crew is over; False if this caller leads it now, or waited in vain."""
        while not crew.over:  # F2
            if crew.is_free() and self._takes(crew):
                return False
            left_s = give_up_at_s - self._clock.monotonic_s()
            if left_s <= 0:
                self._counters.local_timeouts += 1
                self._disband(crew)
                return False
            look_s = min(left_s, LOOK_S if crew.seats[0] is seat else LOOK_AGAIN_S)
            yield Run(functools.partial(seat.wait, look_s))
        return True

    def _rise(self, crew: _Crew, seat: Seat) -> None:
        if not crew.over:
            with contextlib.suppress(ValueError):
                crew.seats.remove(seat)
            if crew.is_free():  # F2
                self._hand_on(crew)

    def _land(self, raw: bytes | None) -> None:
        """Every step may be repeated, because an interrupt may have cut an earlier call short."""
        crew, turn = self._crew, self._turn
        if crew is None or turn is None or self._field is not _field.here():
            return  # we do not lead; or we were forked, and the seats are of the parent's threads
        if raw is not None:
            crew.raw = raw
            crew.over = True
            self._disband(crew)
            crew.wake_all()
        turn.over = True
        if raw is None and not crew.over:
            self._hand_on(crew)
        self._crew = self._turn = None

    def _hand_on(self, crew: _Crew) -> None:
        if crew.seats:
            crew.wake_one()
        elif crew.take(_CLOSED):  # F4
            crew.over = True
            self._disband(crew)
            crew.wake_all()

    def _disband(self, crew: _Crew) -> None:
        # A crew that came in between may go as well. That costs a second leader here, which finds
        # the claim of the first.
        if self._field.crews.get(self._name) is crew:
            self._field.crews.pop(self._name, None)

    # -- the ring of the store ---------------------------------------------------------------

    def _lead(self, look: Look, give_up_at_s: float) -> Flow[bytes | None]:
        pause_s = FIRST_LOOK_S
        while True:
            held = yield from self._claim.take()
            # It looks with the claim, too: the value may have been stored since the miss.
            raw = yield from look()
            if raw is not None:
                self._counters.flight_follows += 1
                return raw
            left_s = give_up_at_s - self._clock.monotonic_s()
            if held or left_s <= 0:
                break
            yield Pause(min(pause_s, left_s))
            pause_s = min(pause_s * 1.5, LONGEST_LOOK_S)
        if held:
            self._counters.flight_leads += 1
        else:
            self._counters.flight_timeouts += 1
        return None
