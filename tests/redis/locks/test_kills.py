"""Eight processes count in a file under one lock while its holders are killed.

Every increment reads the last number of the file, waits a moment, and appends the next: two
at once would write the same number twice. The tokens in the file must grow. (Shared memory has
the like in tests/backends/test_shm_locks.py.)
"""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.redis.servers import Server

WORKERS = 8
INCREMENTS = 50
TTL_S = 4.0
HOLDERS_KILLED = 2
WAITERS_KILLED = 3

WORKER = """
import os, sys, time
from nearcache.coordination.locks import Lock
from tests.redis.locks.one_name import open_engine
where, number, path = sys.argv[1:]
engine = open_engine(where)
def lines():
    with open(path) as file:
        return file.read().splitlines()
while sum(line.split()[1] == number for line in lines()) < INCREMENTS:
    began = time.monotonic()
    with Lock(engine, b"name", timeout_s=TTL_S) as lock:
        waited_ms = int((time.monotonic() - began) * 1000)
        with open(path + ".holder", "w") as file:
            file.write(str(os.getpid()))
        last = int(lines()[-1].split()[0])
        time.sleep(0.001)
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.write(file, f"{last + 1} {number} {lock.token} {waited_ms}\\n".encode())
        os.close(file)
        time.sleep(0.002)
""".replace("INCREMENTS", str(INCREMENTS)).replace("TTL_S", str(TTL_S))

Start = Callable[[int], "subprocess.Popen[bytes]"]


@pytest.fixture
def start(server: Server, numbers: Path) -> Iterator[Start]:
    with contextlib.ExitStack() as started:

        def run(number: int) -> subprocess.Popen[bytes]:
            words = [sys.executable, "-c", WORKER, server.path, str(number), str(numbers)]
            worker = started.enter_context(subprocess.Popen(words))
            started.callback(worker.kill)
            return worker

        yield run


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    path = tmp_path / "numbers"
    path.write_text("0 nobody 0 0\n")
    return path


class Killer:
    """Kills who holds the lock, or somebody else, now and then."""

    def __init__(self, numbers: Path) -> None:
        self._numbers = numbers
        self._chance = random.Random(5)
        self._turns = [True] * HOLDERS_KILLED + [False] * WAITERS_KILLED
        self._chance.shuffle(self._turns)
        self._next_at = WORKERS

    def strike(self, workers: list[subprocess.Popen[bytes]]) -> None:
        """Not before everybody had a turn since the last time: one wait sees one death."""
        if not self._turns or len(self._numbers.read_text().splitlines()) < self._next_at:
            return
        holder = self._numbers.with_suffix(".holder").read_text()
        holding = [worker for worker in workers if str(worker.pid) == holder]
        others = [worker for worker in workers if worker not in holding]
        wanted = holding if self._turns[-1] else others
        if wanted:
            self._chance.choice(wanted).kill()
            self._turns.pop()
            self._next_at = len(self._numbers.read_text().splitlines()) + 2 * WORKERS

    @property
    def is_done(self) -> bool:
        return not self._turns


def test_no_increment_is_lost_and_no_wait_is_long_though_holders_are_killed(
    start: Start, numbers: Path
) -> None:
    killer = Killer(numbers)
    workers = {number: start(number) for number in range(WORKERS)}
    give_up_at = time.monotonic() + 180
    while any(worker.poll() != 0 for worker in workers.values()):
        assert time.monotonic() < give_up_at, "somebody waits for ever"
        for number, worker in workers.items():
            if worker.poll() not in (None, 0):
                assert worker.returncode == -signal.SIGKILL
                workers[number] = start(number)
        killer.strike([worker for worker in workers.values() if worker.poll() is None])
        time.sleep(0.003)
    assert killer.is_done
    lines = [list(map(int, text.split())) for text in numbers.read_text().splitlines()[1:]]
    assert [value for value, *_ in lines] == list(range(1, len(lines) + 1))
    assert len(lines) >= WORKERS * INCREMENTS
    tokens = [token for _, _, token, _ in lines]
    assert tokens == sorted(set(tokens))
    # A death costs the others the dead one's time. A host that stands still now and then makes
    # some of these waits longer; a fault would make all of them long, after every death.
    long = [waited_ms for *_, waited_ms in lines if waited_ms > (TTL_S + 1) * 1000]
    assert len(long) <= HOLDERS_KILLED * (WORKERS - 1) / 2, long
    assert max(long, default=0) < 20 * TTL_S * 1000
