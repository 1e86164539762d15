"""What the programs of these tests begin with: settings, forks, and work that checks each reply.

Programs, because a fork of the test's own process would copy pytest and its threads.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time  # noqa: F401 - for the programs
import traceback
from collections.abc import Callable
from typing import Any, Self

import django
from django.conf import settings

from tests.raw_fork import raw_fork

KEYS = 50


def configured(**more: Any) -> Any:
    """The cache that the program's first argument describes; ``more``: settings."""
    caches = {"default": json.loads(sys.argv[1])}
    settings.configure(CACHES=caches, USE_TZ=True, SECRET_KEY="for tests only", **more)
    django.setup()
    from django.core.cache import caches as made

    return made["default"]


def value_of(worker: object, number: int) -> str:
    """Of different lengths, so that a reply that is shifted shows as well."""
    return f"{worker}:{number}:" + "x" * (number * 7 % 90)


def fill(cache: Any, workers: int) -> None:
    for worker in range(workers):
        cache.set_many({f"{worker}:{number}": value_of(worker, number) for number in range(KEYS)})


def check_gets(cache: Any, worker: int, rounds: int) -> None:
    for number in range(rounds):
        found = cache.get(f"{worker}:{number % KEYS}")
        assert found == value_of(worker, number % KEYS), (worker, number, found)


def check_everything(cache: Any, worker: object, rounds: int) -> None:
    """Every kind of call, each with an answer that only this worker can get."""
    for number in range(rounds):
        key, value = f"own {worker} {number % KEYS}", value_of(worker, number)
        cache.set(key, value, 600)
        assert cache.get(key) == value
        assert cache.get_many([key, "nowhere"]) == {key: value}
        assert cache.get_or_set(f"made {worker} {number}", lambda v=value: v, 600) == value
        cache.add(f"count {worker}", 0, 600)
        assert cache.incr(f"count {worker}") == number + 1
        if number % 10 == 0:
            check_lock(cache)


def check_lock(cache: Any) -> None:
    """Nobody else is inside: the sum would differ."""
    with cache.lock("one at a time", timeout=600, wait=600) as lock:
        sum_before = cache.get("sum", 0)
        cache.set("sum", sum_before + 1, 600)
        assert cache.get("sum") == sum_before + 1
        lock.check()


async def acheck_everything(cache: Any, worker: object, rounds: int) -> None:
    async def one(number: int) -> None:
        key, value = f"own {worker} {number}", value_of(worker, number)
        await cache.aset(key, value, 600)
        assert await cache.aget(key) == value
        assert await cache.aget_many([key, "nowhere"]) == {key: value}
        assert await cache.aget_or_set(f"made {worker} {number}", lambda: value, 600) == value

    for start in range(0, rounds, 10):
        await asyncio.gather(*map(one, range(start, start + 10)))
    async with cache.lock("one at a time", timeout=600, wait=600) as lock:
        lock.check()


def in_child(work: Callable[[], object], fork: Callable[[], int] = raw_fork) -> int:
    """The child's process id; it ends with 0 if the work raised nothing."""
    child = fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - nothing of the parent's may run after this
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return child


def wait_for(children: list[int]) -> None:
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert not any(codes), codes


class Busy:
    """Threads of the parent that call without a pause, while children are forked."""

    def __init__(self, work: Callable[[int], object], count: int = 4) -> None:
        self._work = work
        self._over = threading.Event()
        self._failed: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(at,)) for at in range(count)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        assert not self._failed, self._failed

    def _run(self, number: int) -> None:
        try:
            while not self._over.is_set():
                self._work(number)
        except BaseException as error:  # noqa: BLE001 - for the main thread to show
            traceback.print_exc()
            self._failed.append(error)
