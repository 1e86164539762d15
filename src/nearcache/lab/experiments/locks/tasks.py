"""What the processes around a lock do: each function runs in a forked child of the worker.

    alone      one caller, nobody else: what a decorated call costs
    contend    callers that hold for a while, do something else, and come again
    hold       goes in through a use and stays, until it is told to leave or is killed
    follow     wants to go in while somebody holds, and says when it is in

Whether two were ever inside at once is seen in three ways: flags in shared memory that
each sets while it is inside, a counter that each reads on entering and writes on leaving,
and the times of all entries and exits put in order.
"""

from __future__ import annotations

import mmap
import struct
import threading
import time
from array import array
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from nearcache.lab.arms.forked import Forked, Silent, Teller
from nearcache.lab.base.arm import WrongAnswer
from nearcache.lab.experiments.locks.lockers import Locker, Options, open_locker

HOLD_S = 0.001  # asleep, as somebody is who waits for a database
ELSEWHERE_S = 0.001  # between two turns
MOST_SAMPLES = 4000
PATIENCE_S = 20.0  # with a child that has been asked for something it can do
KEPT_OUT_S = 0.25  # who is not in by then is kept out
MOST_KEPT_OUT_S = 0.5  # beside a holder whose lock may run out after TIMEOUT_S
PARTS = 5
COUNTER_AT = 512
clock = time.perf_counter_ns  # CLOCK_MONOTONIC: one clock for all processes


class Room:
    """Shared memory of all contenders of one round: who is inside, and a counter."""

    def __init__(self, contenders: int) -> None:
        self.contenders = contenders
        self._page = mmap.mmap(-1, mmap.PAGESIZE)  # anonymous and shared: inherited by forks

    def stay(self, number: int) -> tuple[int, int, bool]:
        """Go in, hold, go out: when, when, and whether somebody else was seen inside."""
        entered = clock()
        self._page[number] = 1
        crowded = self._inside() > 1
        before = self.counter
        time.sleep(HOLD_S)
        self._page[COUNTER_AT : COUNTER_AT + 8] = struct.pack("=Q", before + 1)
        crowded = crowded or self._inside() > 1
        self._page[number] = 0
        return entered, clock(), crowded

    @property
    def counter(self) -> int:
        """How often somebody was inside, if all took turns; less if they did not."""
        count: int = struct.unpack("=Q", self._page[COUNTER_AT : COUNTER_AT + 8])[0]
        return count

    def _inside(self) -> int:
        return self._page[: self.contenders].count(1)


@dataclass
class Turns:
    """What one contender did, all of it: also what was before or after the measured time."""

    entered: list[int] = field(default_factory=list)
    exited: list[int] = field(default_factory=list)
    waited: list[int] = field(default_factory=list)
    crowded: int = 0


def alone(options: Options, name: str, phase_ns: int, batch: int) -> Callable[[Teller], Any]:
    """Calls of a decorated function that returns what it is given. Returns samples, calls."""

    def task(_teller: Teller) -> tuple[array[int], int]:
        seen = 0

        def bare(argument: int) -> int:
            nonlocal seen
            seen += 1
            return argument

        call = open_locker(options).decorate(bare, name)
        call(0)  # connects
        samples, calls = timed(call, phase_ns, batch)
        if seen != calls + 1:
            raise WrongAnswer(f"the function ran {seen} times in {calls + 1} calls")
        return samples, calls

    return task


def timed(call: Callable[[int], Any], phase_ns: int, batch: int) -> tuple[array[int], int]:
    samples, calls, spent = array("Q"), 0, 0
    while spent < phase_ns and len(samples) < MOST_SAMPLES:
        numbers = range(calls, calls + batch)
        start = clock()
        answers = [call(number) for number in numbers]
        elapsed = clock() - start
        if answers != list(numbers):
            raise WrongAnswer("a decorated function did not return what it was given")
        samples.append(elapsed // batch)
        calls += batch
        spent += elapsed
    return samples, calls


def view(options: Options, name: str, phase_ns: int) -> Callable[[Teller], Any]:
    """The article's view, requested through Django's WSGI handler: no socket, no middleware."""

    def task(_teller: Teller) -> tuple[array[int], int]:
        from django.http import HttpResponse

        def sample_view(_request: Any) -> HttpResponse:
            return HttpResponse("Ok\n")

        request = _requesting(open_locker(options).decorate(sample_view, name))
        request(0)
        return timed(request, phase_ns, 1)

    return task


def _requesting(view_function: Any) -> Callable[[int], int]:
    from wsgiref.util import setup_testing_defaults

    from django.conf import settings
    from django.core.handlers.wsgi import WSGIHandler
    from django.urls import path

    settings.ROOT_URLCONF = (path("sample", view_function),)
    environ: dict[str, Any] = {"PATH_INFO": "/sample"}
    setup_testing_defaults(environ)
    handler = WSGIHandler()
    statuses: list[str] = []

    def start_response(
        status: str, _headers: Any, _error: Any = None, /
    ) -> Callable[[bytes], object]:
        statuses.append(status)
        return bytes

    def request(number: int) -> int:
        body = b"".join(handler(dict(environ), start_response))
        if body != b"Ok\n" or statuses.pop() != "200 OK":
            raise WrongAnswer(f"the view answered {body[:80]!r}")
        return number

    return request


def contend(
    options: Options, name: str, room: Room, numbers: range
) -> Callable[[Teller], dict[str, Any]]:
    """One process whose threads are these contenders. Hears (begin, end) when all are ready."""

    def task(teller: Teller) -> dict[str, Any]:
        locker = open_locker(options)
        turns = {number: Turns() for number in numbers}
        stay = locker.decorate(room.stay, name)
        locker.decorate(nothing, f"{name}:{numbers[0]}")()  # connects
        teller.say("ready")
        begins_ns, ends_ns = teller.hear()
        used_ns = time.process_time_ns()
        run_in_threads(
            [
                partial(take_turns, stay, number, turns[number], begins_ns, ends_ns)
                for number in numbers
            ]
        )
        return {
            "turns": {number: vars(each) for number, each in turns.items()},
            "cpu_ns": time.process_time_ns() - used_ns,
        }

    return task


def take_turns(
    stay: Callable[[int], tuple[int, int, bool]],
    number: int,
    turns: Turns,
    begins_ns: int,
    ends_ns: int,
) -> None:
    time.sleep(max(0, begins_ns - clock()) / 1e9)
    while (asked := clock()) < ends_ns:
        entered, exited, crowded = stay(number)
        turns.waited.append(entered - asked)
        turns.entered.append(entered)
        turns.exited.append(exited)
        turns.crowded += crowded
        time.sleep(ELSEWHERE_S)


def run_in_threads(tasks: list[Callable[[], None]]) -> None:
    """All at once; one of them in this thread. The first error is raised."""
    errors: list[BaseException] = []

    def guarded(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    others = [threading.Thread(target=guarded, args=(task,)) for task in tasks[1:]]
    for thread in others:
        thread.start()
    guarded(tasks[0])
    for thread in others:
        thread.join()
    if errors:
        raise errors[0]


def nothing() -> None:
    """What is locked when only the lock matters."""


def by_name(locker: Locker, body: Callable[[], None], name: str) -> Callable[[], Any]:
    return locker.decorate(body, name)


@dataclass
class LockUse:
    """How processes of one arm come in under one name. Each opens it for itself."""

    options: Options
    name: str
    wrap: Callable[[Locker, Callable[[], None], str], Callable[[], Any]] = by_name
    locker: Locker | None = None

    def open(self) -> int:
        """Import, connect, and go through another use. Returns how long that takes, in ns."""
        self.locker = open_locker(self.options)
        call = self.locker.decorate(nothing, f"{self.name}:warm")
        call()
        start = clock()
        call()
        return clock() - start

    def through(self, body: Callable[[], None]) -> Callable[[], Any]:
        """``body`` as a call that takes its turn."""
        assert self.locker is not None
        return self.wrap(self.locker, body, self.name)


def hold(use: LockUse) -> Callable[[Teller], str]:
    """Goes in, says so, and leaves when it is told to.

    Returns what it was told on the way out: the type of an error, or nothing.
    """

    def task(teller: Teller) -> str:
        def body() -> None:
            teller.say("inside")
            teller.hear()

        use.open()
        try:
            use.through(body)()
        except Exception as error:  # noqa: BLE001 - what a holder is told is the question
            return type(error).__name__
        return ""

    return task


def follow(use: LockUse) -> Callable[[Teller], int]:
    """Says what going in takes where nobody is, asks, and then when it was inside."""

    def task(teller: Teller) -> int:
        inside = 0

        def body() -> None:
            nonlocal inside
            inside = clock()

        free_ns = use.open()
        call = use.through(body)
        teller.say(free_ns)
        call()
        return inside

    return task


def comes_in(follower: Forked) -> bool:
    """Whether a follower gets in beside a holder; the slowest of all asks every 0.1 s.

    It is given the time in parts: when the host stops this machine, only one of them is lost.
    """
    free_ns = follower.hear(PATIENCE_S)
    part_s = min(max(KEPT_OUT_S, 20 * free_ns / 1e9), MOST_KEPT_OUT_S) / PARTS
    for _ in range(PARTS):
        with suppress(Silent):
            follower.hear(part_s)
            return True
    return False
