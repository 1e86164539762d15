"""Single flight: of all who miss a key at once, one computes and the others take its value.

Two rings, one inside the other:

    process   The first who misses leads a *crew*. The others of this process, be they threads,
              greenlets or tasks, take a seat in it and sleep until the leader lands. It hands
              them the bytes, or, if it failed, one of them the lead.
    store     The leaders of all processes try for the engine's named lock. Whoever gets it
              computes. The others wait for the lock and look for the value in between: when
              it is there all of them land with it, and when the holder died one has the lock.

So a store hears of one waiter per process and key, however many threads there are, and a
value that the store refuses still reaches everybody in the process.

Every wait is bounded. Whoever has waited that long computes as well, as if there were no
single flight: slow, and never stuck. He also breaks his crew up, so that who comes next does
not wait for a leader that may never land (a loop that was stopped, a lost greenlet).

A caller does not wait for what cannot happen while it waits: a computation that asks for its
own key, or a plain call inside the event loop whose task has the lead, computes at once.

Knows nothing of caches or values: bytes, and functions that look for them.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from nearcache.clock import Clock
from nearcache.errors import EngineUnavailable, LockLost
from nearcache.flows import Flow, Run
from nearcache.locks import Lock
from nearcache.metrics import Counters
from nearcache.process import Mutex

Look = Callable[[], Flow[bytes | None]]
"""Looks for the value in the store; None if it is not there."""

FIRST_LOOK_S = 0.020
LONGEST_LOOK_S = 0.250
PACE_S = 0.1
"""How long a process that found somebody refreshing a key does not ask about it again."""

_PACED_MAX = 1024


class Seat:
    """Where a thread or a greenlet sleeps."""

    def __init__(self) -> None:
        self.landed = False  # somebody delivered: `raw`, or the lead if that is None
        self.raw: bytes | None = None
        self._event = threading.Event()

    def deliver(self, raw: bytes | None) -> bool:
        """Wakes the sleeper; False if nobody is there to wake. Under the lock of all crews."""
        self.landed, self.raw = True, raw
        self._event.set()
        return True

    def wait(self, seconds: float) -> Any:
        return self._event.wait(seconds)


class TaskSeat(Seat):
    """Where a task of an event loop sleeps; a thread may wake it."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()

    def deliver(self, raw: bytes | None) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:  # the loop is closed
            return False
        self.landed, self.raw = True, raw
        return True

    def _wake(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self, seconds: float) -> Any:
        await asyncio.wait([self._future], timeout=seconds)


def _task() -> object:
    """The running task; None where a coroutine is driven without an event loop."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


class Threads:
    """How plain calls wait."""

    @staticmethod
    def seat() -> Seat:
        return Seat()

    @staticmethod
    def leader() -> tuple[int, object]:
        """Who leads: his thread (under gevent his greenlet), and his task."""
        return threading.get_ident(), None

    @staticmethod
    def cannot_wait_for(leader: tuple[int, object]) -> bool:
        return leader[0] == threading.get_ident()

    @staticmethod
    def acquire(lock: Lock, wait_s: float) -> Any:
        if not wait_s:
            return lock.acquire(blocking=False)
        return lock.acquire(blocking_timeout=wait_s)

    @staticmethod
    def release(lock: Lock) -> Any:
        lock.release()


class Tasks(Threads):
    """How awaited calls wait."""

    @staticmethod
    def seat() -> Seat:
        return TaskSeat() if _task() else Seat()

    @staticmethod
    def leader() -> tuple[int, object]:
        return threading.get_ident(), _task()

    @staticmethod
    def cannot_wait_for(leader: tuple[int, object]) -> bool:
        task = _task()
        if task is None:
            return Threads.cannot_wait_for(leader)
        # Another task of this loop can go on while we wait; a plain call further up cannot.
        return leader == (threading.get_ident(), task) or leader == (threading.get_ident(), None)

    @staticmethod
    def acquire(lock: Lock, wait_s: float) -> Any:
        if not wait_s:
            return lock.aacquire(blocking=False)
        return lock.aacquire(blocking_timeout=wait_s)

    @staticmethod
    def release(lock: Lock) -> Any:
        return lock.arelease()


class _Crew:
    """Those of this process who want one key; the leader is not among the seats."""

    def __init__(self, engine: object) -> None:
        self.engine = engine  # keeps its id from being another one's meanwhile
        self.leader: tuple[int, object] = (0, None)
        self.seats: deque[Seat] = deque()


_crews: dict[tuple[int, bytes], _Crew] = {}
_paced: dict[tuple[int, bytes], float] = {}
_mutex = Mutex()


def _after_fork() -> None:
    # The leaders are threads and tasks of the parent: none of them will ever land here.
    _crews.clear()
    _paced.clear()


os.register_at_fork(after_in_child=_after_fork)


class Flight:
    """One caller's turn at one key.

    :meth:`join` or :meth:`try_join`; compute and store if told to; :meth:`leave` in any case.
    """

    def __init__(
        self,
        lock: Lock,
        engine: object,
        wait_s: float,
        clock: Clock,
        counters: Counters,
        ways: type[Threads],
    ) -> None:
        self._lock = lock
        self._name = (id(engine), lock.name)
        self._engine = engine
        self._wait_s = wait_s
        self._clock = clock
        self._counters = counters
        self._ways = ways
        self._crew: _Crew | None = None  # the one we lead
        self._left = False

    def join(self, look: Look) -> Flow[bytes | None]:
        """The value as another caller has it; None if this caller has to compute."""
        seat = self._board()
        if seat is not None:
            raw = yield from self._sit(seat)
            if raw is not None:
                self._counters.local_follows += 1
                return raw
        if self._crew is None:
            return None
        return (yield from self._lead(look))

    def try_join(self) -> Flow[bool]:
        """True if this caller may compute, and nobody else does; never waits."""
        now_s = self._clock.monotonic_s()
        if _paced.get(self._name, 0) > now_s or not self._board_first():
            return False
        if (yield from self._try_lock()):
            self._counters.flight_leads += 1
            return True
        with _mutex.now():
            if len(_paced) >= _PACED_MAX:
                _paced.clear()
            _paced[self._name] = now_s + PACE_S
        return False

    def moved_here(self) -> None:
        """Says that it is this thread or task that computes, not the one that joined."""
        if self._crew is not None:
            self._crew.leader = self._ways.leader()

    def leave(self, raw: bytes | None = None) -> Flow[None]:
        """Lands: hands ``raw`` to the crew, or the lead if there is none. Harmless twice."""
        if self._left:
            return
        self._left = True
        self._land(raw)
        if self._lock.token is None:
            return
        try:
            yield Run(lambda: self._ways.release(self._lock))
        except (LockLost, EngineUnavailable):
            # Computing took longer than the lock lives, or the store is away: the lock's time
            # frees it. The caller's value is as good as any, so there is nothing to take back.
            return

    # -- the ring of the process -------------------------------------------------------------

    def _board_first(self) -> bool:
        with _mutex.now():
            if self._name in _crews:
                return False
            self._found_crew_locked()
        return True

    def _board(self) -> Seat | None:
        """A seat in somebody's crew; None for who leads one, or must not wait."""
        with _mutex.now():
            crew = _crews.get(self._name)
            if crew is None:
                self._found_crew_locked()
                return None
            if self._ways.cannot_wait_for(crew.leader):
                return None
            seat = self._ways.seat()
            crew.seats.append(seat)
            self._joined = crew
            return seat

    def _found_crew_locked(self) -> None:
        self._crew = _crews[self._name] = _Crew(self._engine)
        self._crew.leader = self._ways.leader()
        self._counters.local_leads += 1

    def _sit(self, seat: Seat) -> Flow[bytes | None]:
        crew = self._joined
        try:
            yield Run(lambda: seat.wait(self._wait_s))
        except BaseException:
            # Cancelled, or the greenlet is killed. Who was handed the lead hands it on.
            if not self._rise(crew, seat, in_vain=False) and seat.raw is None:
                self._crew = crew
            raise
        if self._rise(crew, seat, in_vain=True):
            self._counters.local_timeouts += 1
            return None
        if seat.raw is None:
            self._crew = crew
            crew.leader = self._ways.leader()
            self._counters.local_leads += 1
        return seat.raw

    def _rise(self, crew: _Crew, seat: Seat, in_vain: bool) -> bool:
        """True for who gives the seat up before anything was delivered to it."""
        with _mutex.now():
            if seat.landed:
                return False
            crew.seats.remove(seat)
            if in_vain and _crews.get(self._name) is crew:
                del _crews[self._name]
            return True

    def _land(self, raw: bytes | None) -> None:
        crew, self._crew = self._crew, None
        if crew is None:
            return
        with _mutex.now():
            while crew.seats:
                delivered = crew.seats.popleft().deliver(raw)
                if delivered and raw is None:
                    return  # he leads now
            if _crews.get(self._name) is crew:
                del _crews[self._name]

    # -- the ring of the store ---------------------------------------------------------------

    def _lead(self, look: Look) -> Flow[bytes | None]:
        give_up_at_s = self._clock.monotonic_s() + self._wait_s
        held, pause_s = (yield from self._try_lock()), FIRST_LOOK_S
        while True:
            # Also with the lock: the value may have been stored between the miss and the lock.
            raw = yield from look()
            if raw is not None:
                self._counters.flight_follows += 1
                return raw
            left_s = give_up_at_s - self._clock.monotonic_s()
            if held or left_s <= 0:
                break
            held = yield from self._try_lock(min(pause_s, left_s))
            pause_s = min(pause_s * 1.5, LONGEST_LOOK_S)
        if held:
            self._counters.flight_leads += 1
        else:
            self._counters.flight_timeouts += 1
        return None

    def _try_lock(self, wait_s: float = 0) -> Flow[bool]:
        try:
            held: bool = yield Run(lambda: self._ways.acquire(self._lock, wait_s))
        except EngineUnavailable:
            return True  # nobody to ask: the process's own ring has to do
        return held
