"""Interrupted at any instruction: nothing stays held, nobody waits for what nobody does.

In a process of its own, beside threads that go on: its main thread is interrupted by a signal
handler that raises (``Late`` an Exception, ``Stop`` none), its greenlets are killed. Every value
is checked against its key. Nobody's time limit passes (``*_timeouts``), and afterwards every
claim and every lock can be had, though the locks were asked for with ten minutes.
"""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from nearcache.coordination import lock_attempts, locks
from nearcache.engines.memory import MemoryEngine
from tests.interrupted import Interrupt
from tests.redis.servers import Server

COMMON = """
import random, sys, time
from django.conf import settings
settings.configure(CACHES={})
from nearcache.backends import RedisCache, SharedMemoryCache
kind, where, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])

def made():
    if kind == "shm":
        return SharedMemoryCache(where, {"OPTIONS": {"size": "8MB"}})
    # Short: a line whose leader is interrupted twice is given up after this time.
    return RedisCache(where, {"OPTIONS": {"read_timeout": 10, "connect_timeout": 10}})

def none_left(names, pause):
    engine = made().engine
    give_up_at = time.monotonic() + 120
    for name in names:
        raw = f":1:{name}".encode()
        while not engine.claim(raw, 7, 60_000) or not engine.lock_acquire(raw, 60_000):
            engine.unclaim(raw, 7)
            assert time.monotonic() < give_up_at, f"{name} is held by nobody"
            pause(0.05)
"""

SIGNALS = """
import signal, threading

class Stop(BaseException): pass
class Late(Exception): pass

rounds, left, fired = 300, 0, 0

def handler(*_):
    global left, fired
    if left:
        left -= 1
        fired += 1
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00005, 0.0005))
        raise (Stop if fired % 2 else Late)

def use(cache, chance, names="abcd"):
    name = chance.choice(names)
    if chance.random() < 0.5:
        assert cache.get_or_set(name, lambda: [name], 60) == [name]
        if chance.random() < 0.5:
            cache.delete(name)
    else:
        with cache.lock(name, timeout=600, wait=300):
            pass

over, faults = threading.Event(), []

def beside(number):
    cache, chance = made(), random.Random(number)
    while not over.is_set():
        try:
            use(cache, chance)
        except Exception as error:
            # Whose command was on the connection of who was interrupted.
            if type(error).__name__ != "ConnectionFailed":
                faults.append(error)

def interrupted(cache, chance):
    global left
    try:
        try:
            try:
                left = chance.choice(HITS)  # first: the timer may be over at once
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0001, 0.004))
                while left:
                    use(cache, chance)
            except (Late, Stop):
                pass
            left = 0
        except (Late, Stop):
            pass
        left = 0
    except (Late, Stop):
        pass

cache, chance = made(), random.Random(seed)
use(cache, chance)
signal.signal(signal.SIGALRM, handler)
threads = [
    threading.Thread(target=beside, args=(seed + n,), daemon=True) for n in (1, 2, 3)
]
for thread in threads:
    thread.start()
for _ in range(rounds):
    try:
        interrupted(cache, chance)
    except (Late, Stop):  # in its last except clause
        pass
    left = 0
signal.setitimer(signal.ITIMER_REAL, 0)
over.set()
for thread in threads:
    thread.join()
none_left("abcd", time.sleep)
counts = cache.counters
assert not faults, faults
assert fired >= rounds / 2
assert not counts.local_timeouts and not counts.flight_timeouts, counts
print("well")
"""

GREENLETS = """
import gevent
cache, chance = made(), random.Random(seed)
jobs = 300

def use(name):
    with cache.lock(name, timeout=600, wait=300):
        gevent.sleep(0)
        assert cache.get_or_set(name, lambda: (gevent.sleep(0), [name])[1]) == [name]

for number in range(jobs):
    job = gevent.spawn(use, f"n{number}")
    for _ in range(chance.randrange(9)):
        gevent.sleep(0)
    job.kill()
none_left([f"n{number}" for number in range(jobs)], gevent.sleep)
print("well")
"""


@pytest.fixture(params=["shm", "redis"])
def store(request: pytest.FixtureRequest, private_path: Path, redis_server: Server) -> list[str]:
    where = str(private_path / "cache")
    return [request.param, where if request.param == "shm" else f"unix://{redis_server.path}"]


def run(code: str, store: list[str], seed: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *store, str(seed)],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout == "well\n", done.stderr
    assert "ignored GeneratorExit" not in done.stderr


@pytest.mark.parametrize("seed", range(3))
def test_a_signal_handler_that_raises(store: list[str], seed: int) -> None:
    hits = "[1, 1, 2]" if store[0] == "shm" else "[1]"
    run(f"{COMMON}\nHITS = {hits}\n{SIGNALS}", store, seed)


@pytest.mark.parametrize("seed", range(3))
def test_greenlets_that_are_killed(store: list[str], seed: int) -> None:
    run(f"from gevent import monkey; monkey.patch_all()\n{COMMON}\n{GREENLETS}", store, seed)


def test_a_second_interrupt_while_what_the_store_gave_is_given_back() -> None:
    class Interrupted(locks.Lock):
        def _take(self, *args: Any) -> None:
            raise KeyboardInterrupt

    engine = MemoryEngine()
    for number in itertools.count(1):
        lock = Interrupted(engine, b"n", timeout_s=600)
        second = Interrupt(number, KeyboardInterrupt(), {locks.__file__, lock_attempts.__file__})
        with contextlib.suppress(KeyboardInterrupt), second.under_way():
            lock.acquire()
        token = engine.lock_acquire(b"n", 600_000)
        assert token is not None, second.where
        assert engine.lock_release(b"n", token)
        if not second.where:
            break
    assert number > 10
