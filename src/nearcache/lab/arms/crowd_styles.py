"""The three kinds of contenders: greenlets, threads, tasks; and what a round of them gives.

    all are made and wait at a gate; making them is not measured
    the gate opens for all at once; each asks for a value of its own, checks it, asks again
    a lead-in passes, unmeasured, so that a queue is there and the first waits are over
    the measured time begins; what ends within it counts
    after the deadline nobody asks any more; the round ends when the last has ended

Who fails lets others run once before it asks again, or greenlets that are refused at once
would keep the only thread to themselves. What was asked before the deadline and answered
after it counts as unfinished: its wait is known to be at least so long, and is kept.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from array import array
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nearcache.lab.arms.crowd_clients import Client
from nearcache.lab.base.arm import WrongAnswer

GRACE_S = 20.0  # after the deadline; who has not ended by then never will
# Each thread that waits for the interpreter wakes up every 5 ms to ask for it. Beyond some
# hundreds on one CPU that is all they do, and thousands bring the whole machine to a halt.
MOST_THREADS = 500
STACK_BYTES = 256 * 1024  # threads' default of 8 MB would be the limit before anything else
MOST_SENT = 20_000  # waits of one kind in an answer: every n-th, so that all times are there
clock = time.perf_counter_ns


@dataclass(frozen=True)
class Times:
    """Of one round, in seconds."""

    lead_s: float
    measured_s: float


@dataclass(frozen=True)
class Used:
    """CPU time used so far, by this process and by the server."""

    at_ns: int
    own_ns: int
    server_ns: int | None


class Tally:
    """What happened in one round. Appending is atomic, so threads need no lock."""

    def __init__(self, contenders: int, times: Times, server_pid: int) -> None:
        self.times = times
        self.server_pid = server_pid
        self.begins_ns = 0
        self.ends_ns = 0
        self.ran = bytearray(contenders)  # who had a turn before the end
        self.answers = [0] * contenders  # of each contender
        self.answered = array("Q")  # ns from asking to the answer, in order of the answers
        self.failed = array("Q")  # ns from asking to the error
        self.unfinished = array("Q")  # ns from asking to the deadline
        self.errors: list[str] = []
        self.wrong = ""
        self.never_ran = 0
        self.used: list[Used] = []  # at the beginning, and at the end

    def open(self) -> None:
        """The gate opens: call just before."""
        self.begins_ns = clock() + int(self.times.lead_s * 1e9)
        self.ends_ns = self.begins_ns + int(self.times.measured_s * 1e9)

    def look(self) -> None:
        """Call when the measured time begins, and when it ends."""
        self.never_ran = self.ran.count(0)
        self.used.append(Used(clock(), time.process_time_ns(), server_cpu_ns(self.server_pid)))

    def note(self, number: int, began: int, error: Exception | None) -> bool:
        """Count one attempt. False if it ended too late, and its contender has to go."""
        ended = clock()
        if ended < self.begins_ns:
            return True
        if ended > self.ends_ns:
            self.unfinished.append(max(1, self.ends_ns - began))
            return False
        if error is None:
            self.answers[number] += 1
            self.answered.append(ended - began)
        else:
            self.failed.append(ended - began)
            self.errors.append(describe(error))
        return True

    def to_json(self) -> dict[str, Any]:
        return {
            "contenders": len(self.answers),
            "never_ran": self.never_ran,
            "elapsed_ns": self.ends_ns - self.begins_ns,
            "answers": self.answers,
            "errors": dict(Counter(self.errors)),
            "cpu_share": self._share([used.own_ns for used in self.used]),
            "server_cpu_share": self._share([used.server_ns for used in self.used]),
            "counts": [len(self.answered), len(self.failed), len(self.unfinished)],
            "answered_ns": thinned(self.answered),
            "failed_ns": thinned(self.failed),
            "unfinished_ns": thinned(self.unfinished),
        }

    def _share(self, used: list[int | None]) -> float | None:
        """Of the time between the two looks, which may be late, how much was used."""
        before, after = used
        if before is None or after is None:
            return None
        return (after - before) / (self.used[1].at_ns - self.used[0].at_ns)


# Of each contender: its key and what it must be given for it.
Values = list[tuple[str, str]]
NewTally = Callable[[int], Tally]  # for so many contenders


class Style(Protocol):
    """One kind of contenders."""

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Where clients that await are opened and filled; only tasks have it."""

    def contend(self, client: Client, values: Values, new_tally: NewTally) -> Tally: ...


class Rounds:
    """A style, and the values that were stored for its contenders."""

    def __init__(self, style: Style, server_pid: int) -> None:
        self.style = style
        self.server_pid = server_pid
        self.run = style.run
        self.values: Values = []

    def round(self, client: Client, contenders: int, times: Times) -> dict[str, Any]:
        self._fill(client, contenders)

        def new_tally(present: int) -> Tally:
            return Tally(present, times, self.server_pid)

        tally = self.style.contend(client, self.values[:contenders], new_tally)
        if tally.wrong:
            raise WrongAnswer(tally.wrong)
        return tally.to_json()

    def _fill(self, client: Client, contenders: int) -> None:
        """A value for each contender, so that a reply to somebody else shows."""
        new = [_value(number) for number in range(len(self.values), contenders)]
        if new:
            client.fill(dict(new))
            self.values += new


def _value(number: int) -> tuple[str, str]:
    return f"crowd:{os.getpid()}:{number}", f"for contender {number} of {os.getpid()}"


def loop(
    tally: Tally,
    number: int,
    value: tuple[str, str],
    get: Callable[[str], Any],
    let_others: Callable[[float], Any],
) -> None:
    """One greenlet or thread, from the opening of the gate to the deadline."""
    key, expected = value
    tally.ran[number] = 1
    while (began := clock()) < tally.ends_ns and not tally.wrong:
        failure: Exception | None = None
        try:
            answer = get(key)
        except Exception as error:  # noqa: BLE001 - counted by its type
            failure = error
        else:
            if answer != expected:
                tally.wrong = wrong(number, answer)
        if not tally.note(number, began, failure):
            return
        if failure:
            let_others(0)


class Greenlets:
    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        raise NotImplementedError

    def contend(self, client: Client, values: Values, new_tally: NewTally) -> Tally:
        import gevent
        from gevent.event import Event

        tally, gate, ready = new_tally(len(values)), Event(), []

        def contender(number: int, value: tuple[str, str]) -> None:
            ready.append(number)
            gate.wait()
            loop(tally, number, value, client.get, gevent.sleep)

        crowd = [gevent.spawn(contender, number, value) for number, value in enumerate(values)]
        while len(ready) < len(crowd):
            gevent.sleep(0.005)
        tally.open()
        gate.set()
        gevent.sleep(tally.times.lead_s)
        tally.look()
        gevent.sleep(tally.times.measured_s)
        tally.look()
        done = gevent.joinall(crowd, timeout=GRACE_S)
        demand_all_ended(len(done), len(crowd))
        for greenlet in done:
            greenlet.get()  # an error in the harness itself must not pass for silence
        return tally


class Threads:
    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        raise NotImplementedError

    def contend(self, client: Client, values: Values, new_tally: NewTally) -> Tally:
        threading.stack_size(STACK_BYTES)
        # A pipe, which the kernel hands out byte by byte: thousands of threads that are woken
        # by one Event queue up for its lock, and most would not get through in a second.
        entrance, gate = os.pipe()
        tallies: list[Tally] = []

        def contender(number: int, value: tuple[str, str]) -> None:
            os.read(entrance, 1)
            loop(tallies[0], number, value, client.get, time.sleep)

        crowd: list[threading.Thread] = []
        for number, value in enumerate(values[:MOST_THREADS]):
            thread = threading.Thread(target=contender, args=(number, value), daemon=True)
            try:
                thread.start()
            except RuntimeError:
                break  # "can't start new thread": as many as the machine allows, and it is said
            crowd.append(thread)
        tally = new_tally(len(crowd))
        tallies.append(tally)
        tally.open()
        os.write(gate, bytes(len(crowd)))
        time.sleep(tally.times.lead_s)
        tally.look()
        time.sleep(tally.times.measured_s)
        tally.look()
        patience = time.monotonic() + GRACE_S
        for thread in crowd:
            thread.join(max(0.0, patience - time.monotonic()))
        demand_all_ended(sum(not thread.is_alive() for thread in crowd), len(crowd))
        os.close(entrance)
        os.close(gate)
        return tally


class Tasks:
    """All rounds in one event loop, to which the client's connections belong."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(coroutine)

    def contend(self, client: Client, values: Values, new_tally: NewTally) -> Tally:
        tally: Tally = self.run(self._contend(client.aget, values, new_tally))
        return tally

    async def _contend(
        self, get: Callable[[str], Awaitable[Any]], values: Values, new_tally: NewTally
    ) -> Tally:
        tally, gate = new_tally(len(values)), asyncio.Event()

        async def contender(number: int, value: tuple[str, str]) -> None:
            await gate.wait()
            await self._loop(tally, number, value, get)

        crowd = [asyncio.create_task(contender(*numbered)) for numbered in enumerate(values)]
        await asyncio.sleep(0)  # everybody is at the gate after one turn
        tally.open()
        gate.set()
        await asyncio.sleep(tally.times.lead_s)
        tally.look()
        await asyncio.sleep(tally.times.measured_s)
        tally.look()
        done, _ = await asyncio.wait(crowd, timeout=GRACE_S)
        demand_all_ended(len(done), len(crowd))
        for task in done:
            task.result()
        return tally

    async def _loop(
        self,
        tally: Tally,
        number: int,
        value: tuple[str, str],
        get: Callable[[str], Awaitable[Any]],
    ) -> None:
        """:func:`loop`, awaiting."""
        key, expected = value
        tally.ran[number] = 1
        while (began := clock()) < tally.ends_ns and not tally.wrong:
            failure: Exception | None = None
            try:
                answer = await get(key)
            except Exception as error:  # noqa: BLE001 - counted by its type
                failure = error
            else:
                if answer != expected:
                    tally.wrong = wrong(number, answer)
            if not tally.note(number, began, failure):
                return
            if failure:
                await asyncio.sleep(0)


STYLES: dict[str, Callable[[], Style]] = {
    "greenlets": Greenlets,
    "threads": Threads,
    "tasks": Tasks,
}


def open_style(name: str, server_pid: int) -> Rounds:
    return Rounds(STYLES[name](), server_pid)


class NeverEnded(Exception):
    """Some contenders were still there long after the deadline."""


def demand_all_ended(ended: int, contenders: int) -> None:
    if ended < contenders:
        raise NeverEnded(
            f"{contenders - ended} of {contenders} contenders had not ended "
            f"{GRACE_S:.0f} s after the deadline: they hang"
        )


def wrong(number: int, answer: Any) -> str:
    return f"contender {number} was given {answer!r}: not its own value"


def describe(error: Exception) -> str:
    """An outcome, short enough to count: the type, and what makes it a kind of its own."""
    said = str(error).splitlines()[0] if str(error) else ""
    if "No connection available" in said:
        return "timeout in the pool"
    if type(error).__name__ == "MaxConnectionsError":
        return "refused: too many connections"
    return f"raises {type(error).__name__}"


def thinned(values: array[int]) -> list[int]:
    step = -(-len(values) // MOST_SENT) or 1
    return list(values[::step])


def server_cpu_ns(pid: int) -> int | None:
    """What the main thread of another process has used, from the kernel; None if unknown."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
    except (OSError, ValueError):
        return None
