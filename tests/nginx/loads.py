"""A load that several nginx are given alike: who asks for what, and when, from a seed.

All get each request at the same moment, from one thread with a connection to each. So a busy
machine delays it for all of them, and they still have one load.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Sequence
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Self

from .conftest import PATIENCE_S

Plan = Sequence[tuple[float, str]]  # (seconds after the begin, target)
CONNECTIONS = 16  # some wait at a lock while others send
CALM = (0.15, 0.75)
"""The part of each second in which requests are sent. nginx counts lifetimes in whole seconds: of
two requests about the turn of a second each nginx may put one into another."""
TURN = 0.78
"""When in a second to start an nginx whose manager shall wake while nobody asks."""
NUMBER = "X-Number"
"""The header that says which request of the plan it is."""


def zipf(requests: int, keys: int, seconds: int, exponent: float = 0.9, seed: int = 1) -> Plan:
    """Targets by Zipf's law, moments at random in the calm part of each second."""
    chance = random.Random(seed)
    weights = [1 / rank**exponent for rank in range(1, keys + 1)]
    picks = chance.choices(range(keys), weights, k=requests)
    moments = sorted(chance.randrange(seconds) + chance.uniform(*CALM) for _ in range(requests))
    return [(at, f"/page/{key}?n={key % 7}") for at, key in zip(moments, picks, strict=True)]


def wait_for_turn() -> None:
    """Until the next second is about to begin."""
    time.sleep((TURN - time.time()) % 1)


def is_calm() -> bool:
    """Is this a moment at which nobody asks?"""
    return not CALM[0] - 0.05 <= time.time() % 1 <= CALM[1]


class Look(NamedTuple):
    due: float
    late_s: float
    switches: int  # so often it had gone to sleep


class Turns:
    """``with Turns(manager) as turns:`` looks whether a manager wakes only while nobody asks.

    A busy machine wakes it later each time, at last among the requests: which of them come
    before it is then in no log.
    """

    EDGES = (CALM[0] - 0.05, CALM[1])
    LATE_S = 0.05
    IDLE_S = 10  # the first sleep, of a manager that finds nothing to do

    def __init__(self, manager: int) -> None:
        self._status = Path(f"/proc/{manager}/status")
        self._looks: list[Look] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def are_modelled(self, first: float) -> bool:
        """Did it wake when the model has it, of a log whose first request began then?"""
        looks = self._looks
        return all(each.late_s < self.LATE_S for each in looks) and all(
            (a.switches != b.switches) == (self._turns(a.due, first) != self._turns(b.due, first))
            for a, b in pairwise(looks)
        )

    def _turns(self, at: float, first: float) -> int:
        return max(0, int(at - first - self.IDLE_S + 1))

    def _watch(self) -> None:
        while not self._over.is_set():
            now = time.time()
            second = int(now)
            due = min(
                s + edge for s in (second, second + 1) for edge in self.EDGES if s + edge > now
            )
            time.sleep(due - now)
            late_s = time.time() - due
            found = re.search(
                r"^voluntary_ctxt_switches:\s+(\d+)", self._status.read_text(), re.MULTILINE
            )
            assert found
            self._looks.append(Look(due, late_s, int(found[1])))


def ask_all(ports: Sequence[int], target: str) -> None:
    """One request to all of these ports, now."""
    _send(ports, [(0.0, target, 0)], 0.0)


def send(ports: Sequence[int], plan: Plan) -> None:
    """Sends each request to all of these ports at once, and returns when all are answered.

    The first to each is to be sent by :func:`ask_all` before: it has the number 0.
    """
    begin = time.monotonic() + 2.0 - time.time() % 1  # on the second
    numbered = [(at, target, number) for number, (at, target) in enumerate(plan, 1)]
    threads = [
        threading.Thread(target=_send, args=(ports, numbered[each::CONNECTIONS], begin))
        for each in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _send(ports: Sequence[int], plan: Sequence[tuple[float, str, int]], begin: float) -> None:
    connections = [HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S) for port in ports]
    for at, target, number in plan:
        time.sleep(max(0.0, begin + at - time.monotonic()))
        for connection in connections:
            connection.request("GET", target, headers={NUMBER: str(number)})
        for connection in connections:
            connection.getresponse().read()
    for connection in connections:
        connection.close()
