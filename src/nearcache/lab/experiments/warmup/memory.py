"""What a cache takes in all processes of a site: PSS, where shared pages count once in all.

A master and three workers, forked from this process. Either each worker fills its own
cache, or the master does so before it forks (``gunicorn --preload``); then all workers read
everything, and rewrite a tenth. The same with nothing in the cache is subtracted.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from nearcache.lab.base.arm import Unavailable
from nearcache.lab.servers import child_setup

WORKERS = 3
TOTAL_BYTES = 16_000_000
SIZES = {"memory_small": 1_000, "memory_large": 200_000}
ANSWER_TIMEOUT_S = 30.0
TIMEOUT_S = 600
REWRITTEN = 10  # one of so many

OpenCache = Callable[[], Any]


class ValueLost(Exception):
    """A process read something else than what was stored; the message says what."""


@dataclass(frozen=True)
class Footprint:
    """Bytes of master and workers together, beyond what they take with an empty cache."""

    each_its_own: float
    after_fork: float
    after_reads: float
    after_writes: float


def pss_bytes(pid: int | str = "self") -> int:
    """Proportional set size of a process: each page divided by those who share it.

    Raises:
        Unavailable: the kernel does not tell (it does since 4.14).
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError as error:
        raise Unavailable(f"smaps_rollup cannot be read: {error}", "Linux 4.14 or later") from error
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def keys_of(prefix: str, value_bytes: int) -> Iterator[str]:
    """All that :func:`footprint` has stored under this prefix."""
    count = TOTAL_BYTES // value_bytes
    for site in (str(count), "own"):
        yield from (f"{prefix}:{site}:{number}" for number in range(count))


def footprint(open_cache: OpenCache, prefix: str, value_bytes: int) -> Footprint:
    """What TOTAL_BYTES of values of this size take."""
    count = TOTAL_BYTES // value_bytes
    empty, full = (
        _site(open_cache, f"{prefix}:{number}", number, value_bytes, preload=True)
        for number in (0, count)
    )
    alone = _site(open_cache, f"{prefix}:own", count, value_bytes, preload=False)
    nothing = _site(open_cache, f"{prefix}:none", 0, value_bytes, preload=False)
    return Footprint(alone[-2] - nothing[-2], *(b - a for a, b in zip(empty, full, strict=True)))


def _site(
    open_cache: OpenCache, prefix: str, count: int, size: int, *, preload: bool
) -> tuple[int, int, int]:
    """PSS of all after the fork, after reading, after writing; a process of its own does it."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    # Not a daemon: those may have no children.
    master = context.Process(
        target=_master, args=(theirs, open_cache, prefix, count, size, preload)
    )
    master.start()
    theirs.close()
    try:
        if not ours.poll(2 * ANSWER_TIMEOUT_S):
            raise ValueLost("the master process did not answer in time")
        found = ours.recv()
    finally:
        master.kill()
        master.join()
        ours.close()
    if isinstance(found, str):
        raise ValueLost(found)
    first, second, third = found
    return first, second, third


def _master(
    pipe: Connection, open_cache: OpenCache, prefix: str, count: int, size: int, preload: bool
) -> None:
    child_setup(None)()
    try:
        data = Data(open_cache, prefix, count, size)
        if preload:
            data.fill()
        crew = [_start_worker(data) for _ in range(WORKERS)]
        pids = [os.getpid(), *(pid for pid, _ in crew)]
        steps = [[], ["read"], ["rewrite"]] if preload else [["fill"], ["read"], ["rewrite"]]
        found = []
        for step in steps:
            for _, worker in crew:
                _ask(worker, step)
            found.append(sum(pss_bytes(pid) for pid in pids))
        pipe.send(tuple(found))
    except Exception as error:  # noqa: BLE001 - it travels to whoever asked
        pipe.send(f"{type(error).__name__}: {error}")
    os._exit(0)


def _start_worker(data: Data) -> tuple[int, Connection]:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_worker, args=(theirs, ours, data), daemon=True)
    process.start()
    theirs.close()
    assert process.pid
    return process.pid, ours


def _worker(pipe: Connection, masters: Connection, data: Data) -> None:
    masters.close()
    child_setup(None)()
    while True:
        try:
            steps = pipe.recv()
        except (EOFError, OSError):
            os._exit(0)
        try:
            for step in steps:
                getattr(data, step)()
            pipe.send("")
        except Exception as error:  # noqa: BLE001 - it travels to the master
            pipe.send(f"{type(error).__name__}: {error}")


def _ask(worker: Connection, steps: list[str]) -> None:
    worker.send(steps)
    if not worker.poll(ANSWER_TIMEOUT_S):
        raise ValueLost("a worker did not answer in time")
    if problem := worker.recv():
        raise ValueLost(problem)


@dataclass(frozen=True)
class Data:
    open_cache: OpenCache
    prefix: str
    count: int
    size: int

    def fill(self) -> None:
        """Like a site under traffic: whoever misses stores, so a shared cache is filled once."""
        cache = self.open_cache()
        for number in range(self.count):
            key = f"{self.prefix}:{number}"
            if cache.get(key) is None:
                cache.set(key, self._value(number), TIMEOUT_S)

    def read(self) -> None:
        cache = self.open_cache()
        for number in range(self.count):
            if cache.get(f"{self.prefix}:{number}") != self._value(number):
                raise ValueLost(f"value {number} of {self.count} is not what was stored")

    def rewrite(self) -> None:
        cache = self.open_cache()
        for number in range(0, self.count, REWRITTEN):
            cache.set(f"{self.prefix}:{number}", self._value(number), TIMEOUT_S)

    def _value(self, number: int) -> bytes:
        return number.to_bytes(4, "big") * (self.size // 4)
