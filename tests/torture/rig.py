"""The killer: keeps workers busy, and kills or stops one every 1 to 50 ms.

    rig      forks workers, the checker, and at last a fresh process that inspects all;
             forks a worker again as soon as it was killed
    killer   four times in five SIGKILL; else SIGSTOP, and up to 100 ms later SIGCONT or SIGKILL

A round ends with a fault, or by killing everybody at once. A fault is a file in
``plan.faults``, a process that ended by itself, or one that hangs.
"""

from __future__ import annotations

import heapq
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.torture import worker

STOP_S = 0.100
HANGS_AFTER_S = 60.0


class Fault(Exception):
    """The round has failed; the text says how."""


@dataclass
class Round:
    """What a round came to."""

    seconds: float = 0
    counts: Counter[str] = field(default_factory=Counter)


class Rig:
    """Of two stores in shared memory, as ``plan`` says; ``crew`` is what its processes do."""

    pause_s = (0.001, 0.050)
    crew: Any = worker

    def __init__(self, plan: Any) -> None:
        self.plan = plan
        self.random = random.Random(plan.seed)
        self.pids: dict[int, int] = {}  # of each worker
        self.children: set[int] = set()  # they and all others that run
        self.stopped: set[int] = set()
        self.counts: Counter[str] = Counter()
        self.ended: dict[int, int] = {}  # status of children that were reaped
        self.lives = 0
        self.events: list[tuple[float, int, Callable[[], None]]] = []

    def run(self, seconds: float, progress: Callable[[str], None]) -> Round:
        started_s = time.monotonic()
        try:
            self.start()
            self.torture(started_s + seconds, progress)
            self.let_everybody_work()
            self.end_at_once()
            self.complete(partial(self.crew.inspect_at_the_end, self.plan))
            self.counts.update(json.loads(self.plan.figures.read_text()))
        finally:
            self.kill_all()
        return Round(time.monotonic() - started_s, self.counts)

    def start(self) -> None:
        self.plan.faults.mkdir()
        self.plan.ledger.stop[0] = 0
        self.complete(partial(self.crew.seed, self.plan))
        for number in range(self.plan.workers):
            self.revive(number)
        self.checker = self.fork(partial(self.crew.checker, self.plan))

    def fork(self, body: Callable[[], None]) -> int:
        pid = worker.fork(self.plan, body)
        self.children.add(pid)
        return pid

    def revive(self, number: int) -> None:
        self.lives += 1
        life = hash((self.plan.seed, self.lives))
        self.pids[number] = self.fork(partial(self.crew.worker, self.plan, number, life))

    def complete(self, body: Callable[[], None]) -> None:
        """Runs a process to its end."""
        self.wait_for_the_end(self.fork(body), "a process that looks at everything")

    def wait_for_the_end(self, pid: int, who: str) -> None:
        give_up_at = time.monotonic() + HANGS_AFTER_S
        while pid not in self.reaped():
            if time.monotonic() > give_up_at:
                raise Fault(f"{who} does not end")
            time.sleep(0.005)
        self.see(pid)

    # The killer.

    def torture(self, until_s: float, progress: Callable[[str], None]) -> None:
        self.at(0, self.strike)
        self.at(0, self.watch_the_checker(0, time.monotonic()))
        self.at(5, partial(self.tell, progress))
        while self.events and self.events[0][0] < until_s:
            due_s, _, event = heapq.heappop(self.events)
            time.sleep(max(0.0, due_s - time.monotonic()))
            event()
            self.look()
        self.events.clear()

    def at(self, seconds: float, event: Callable[[], None]) -> None:
        self.counts["events"] += 1
        heapq.heappush(self.events, (time.monotonic() + seconds, self.counts["events"], event))

    def strike(self) -> None:
        number = self.random.randrange(self.plan.workers)
        pid = self.pids[number]
        if pid not in self.stopped:
            if self.random.random() < 0.8:
                self.kill(number)
            else:
                os.kill(pid, signal.SIGSTOP)
                self.stopped.add(pid)
                self.counts["stops"] += 1
                self.at(self.random.uniform(0, STOP_S), partial(self.wake, number, pid))
        self.at(self.random.uniform(*self.pause_s), self.strike)

    def wake(self, number: int, pid: int) -> None:
        self.stopped.discard(pid)
        if self.random.random() < 0.5:
            os.kill(pid, signal.SIGCONT)
        else:
            self.kill(number)

    def kill(self, number: int) -> None:
        pid = self.pids[number]
        # Gone for good before its successor speaks for its keys.
        status = self.end(pid)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            self.ended[pid] = status
            self.see(pid)
        self.counts["kills"] += 1
        self.revive(number)

    def end(self, pid: int) -> int:
        """Kills a child; what it ended with, which may have been before."""
        self.children.discard(pid)
        if pid in self.ended:
            return self.ended.pop(pid)
        os.kill(pid, signal.SIGKILL)
        return os.waitpid(pid, 0)[1]

    # What may have gone wrong.

    def look(self) -> None:
        if texts := [path.read_text() for path in self.plan.faults.iterdir()]:
            raise Fault("\n".join(texts))
        for pid in self.reaped():
            self.see(pid)
            raise Fault(f"process {pid} ended by itself")

    def reaped(self) -> dict[int, int]:
        """Children that ended by themselves, and how."""
        for pid in list(self.children - self.ended.keys()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self.ended[pid] = status
        return self.ended

    def see(self, pid: int) -> None:
        code = os.waitstatus_to_exitcode(self.ended.pop(pid))
        self.children.discard(pid)
        texts = [path.read_text() for path in self.plan.faults.iterdir()]
        if code or texts:
            raise Fault(f"process {pid} ended with {code}\n" + "\n".join(texts))

    def watch_the_checker(self, operations: int, since_s: float) -> Callable[[], None]:
        def watch() -> None:
            now = self.operations_of(self.plan.checker)
            moved_s = time.monotonic() if now != operations else since_s
            if time.monotonic() - moved_s > HANGS_AFTER_S:
                raise Fault(f"the checker hangs: {HANGS_AFTER_S:.0f} s without an operation")
            self.at(1, self.watch_the_checker(now, moved_s))

        return watch

    def operations_of(self, number: int) -> int:
        first = number * 2
        return sum(self.plan.ledger.operations[first : first + 2])

    # The end.

    def let_everybody_work(self) -> None:
        """Nobody is killed or stopped any more: each must get on."""
        for number, pid in self.pids.items():
            if pid in self.stopped:
                os.kill(pid, signal.SIGCONT)
                self.stopped.discard(pid)
            before = self.operations_of(number)
            give_up_at = time.monotonic() + HANGS_AFTER_S
            while self.operations_of(number) < before + 100:
                self.look()
                if time.monotonic() > give_up_at:
                    raise Fault(f"worker {number} ({self.plan.role(number)}) hangs")
                time.sleep(0.01)

    def end_at_once(self) -> None:
        for pid in self.pids.values():
            os.kill(pid, signal.SIGKILL)
        for number in list(self.pids):
            self.end(self.pids.pop(number))
        self.plan.ledger.stop[0] = 1
        self.wait_for_the_end(self.checker, "the checker")

    def kill_all(self) -> None:
        """Whoever is left: nobody after a round without a fault."""
        for pid in list(self.children):
            self.end(pid)

    def tell(self, progress: Callable[[str], None]) -> None:
        operations = sum(self.plan.ledger.operations)
        kills, stops = self.counts["kills"], self.counts["stops"]
        progress(f"{operations:,} operations, {kills} kills, {stops} stops")
        self.at(5, partial(self.tell, progress))
