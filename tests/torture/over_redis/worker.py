"""The processes of a round over Redis. Each is a fork of the rig, which has opened nothing.

threads     two owners; one of them is interrupted by a signal now and then
greenlets   the same under gevent, which patches here, long after nearcache was imported
tasks       two owners whose calls are awaited in one event loop
forker      an owner, and a thread that reads; forks at any moment, as uWSGI and C code do,
            without Python's hooks, and as Python does. The child reads and writes as well
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

from nearcache.backends import RedisCache
from nearcache.errors import EngineUnavailable
from tests.raw_fork import raw_fork
from tests.torture.over_redis.plan import KEYS, KINDS, RedisPlan
from tests.torture.over_redis.work import Hit, Owner
from tests.torture.plan import THREADS_MAX
from tests.torture.values import Violation
from tests.torture.worker import FAULT, write_fault

CHILD_HANGS_AFTER_S = 60.0
CHILD_STEPS = 30


def open_cache(plan: RedisPlan) -> RedisCache:
    return RedisCache(plan.location, {"OPTIONS": plan.options, "KEY_PREFIX": "torture"})


def seed(plan: RedisPlan) -> None:
    """Everything that a worker finds at its start."""
    open_cache(plan).set("seed", b"1")


def worker(plan: RedisPlan, number: int, life: int) -> None:
    """Works until it is killed, or the round is over."""
    logging.disable()  # of outages there is no end
    sys.unraisablehook = _not_of_hits
    make = partial(_owner, plan, life)
    numbers = [number * THREADS_MAX + thread for thread in range(THREADS_MAX)]
    ROLE[plan.role(number)](plan, make, numbers)


def _not_of_hits(unraisable: Any) -> None:
    """An interrupt in a finalizer ends there, and Python says so each time."""
    if unraisable.exc_type is not Hit:
        sys.__unraisablehook__(unraisable)


def _owner(plan: RedisPlan, life: int, cache: Any, number: int) -> Owner:
    return Owner(plan, cache, number, random.Random(f"{life} {number}"))


def _work(plan: RedisPlan, owner: Owner, within: Any) -> None:
    try:
        while not plan.ledger.stop[0]:
            try:
                with within(owner.random):
                    owner.step()
            except Hit:  # between two operations
                owner.meet("interrupted")
    except BaseException:  # noqa: BLE001 - the rig must see it, whatever it is
        write_fault(plan)
        os._exit(FAULT)


def _in_threads(plan: RedisPlan, owners: list[Owner], withins: list[Any]) -> None:
    others = [
        threading.Thread(target=_work, args=(plan, owner, within))
        for owner, within in zip(owners[1:], withins[1:], strict=True)
    ]
    for thread in others:
        thread.start()
    _work(plan, owners[0], withins[0])
    for thread in others:
        thread.join()


@contextmanager
def undisturbed(rng: random.Random) -> Any:
    yield


@contextmanager
def alarms(rng: random.Random) -> Any:
    """A signal handler that raises, somewhere in every tenth operation."""
    if rng.random() > 0.1:
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, rng.choice((0.0001, 0.0005, 0.002)))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _hit(number: int, frame: Any) -> None:
    raise Hit


def threads(plan: RedisPlan, make: Any, numbers: list[int]) -> None:
    signal.signal(signal.SIGALRM, _hit)
    cache = open_cache(plan)
    owners = [make(cache, number) for number in numbers]
    _in_threads(plan, owners, [alarms] + [undisturbed] * (len(owners) - 1))


@contextmanager
def gevent_timeouts(rng: random.Random) -> Any:
    import gevent

    if rng.random() > 0.1:
        yield
        return
    with gevent.Timeout(rng.choice((0.0002, 0.001, 0.005)), Hit):
        yield


def greenlets(plan: RedisPlan, make: Any, numbers: list[int]) -> None:
    from gevent import monkey

    warnings.simplefilter("ignore", monkey.MonkeyPatchWarning)  # it is meant to be late
    monkey.patch_all()
    cache = open_cache(plan)
    owners = [make(cache, number) for number in numbers]
    _in_threads(plan, owners, [gevent_timeouts] * len(owners))


class Awaited:
    """The plain methods of a cache, each awaited in a loop that runs in another thread."""

    def __init__(self, cache: RedisCache, loop: asyncio.AbstractEventLoop) -> None:
        self._cache, self._loop = cache, loop

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._cache, "a" + name)
        return lambda *given, **named: self.run(method(*given, **named))

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def lock(self, name: str, timeout: float) -> Any:
        return AwaitedLock(self, self._cache.lock(name, timeout=timeout))


class AwaitedLock:
    def __init__(self, asker: Awaited, lock: Any) -> None:
        self._asker, self._lock = asker, lock

    def acquire(self, blocking: bool) -> bool:
        return bool(self._asker.run(self._lock.aacquire(blocking=blocking)))

    def release(self) -> None:
        self._asker.run(self._lock.arelease())

    @property
    def lost(self) -> bool:
        return bool(self._lock.lost)


def tasks(plan: RedisPlan, make: Any, numbers: list[int]) -> None:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    cache = Awaited(open_cache(plan), loop)
    owners = [make(cache, number) for number in numbers]
    _in_threads(plan, owners, [undisturbed] * len(owners))
    loop.call_soon_threadsafe(loop.stop)


def forker(plan: RedisPlan, make: Any, numbers: list[int]) -> None:
    cache = open_cache(plan)
    owner, reader = [make(cache, number) for number in numbers]
    gate = threading.Lock()  # while it is closed the other thread comes to rest
    thread = threading.Thread(target=_work, args=(plan, reader, lambda rng: gate))
    thread.start()
    while not plan.ledger.stop[0]:
        for _ in range(owner.random.randrange(100)):
            owner.step()
        fork = owner.random.choice((raw_fork, os.fork))
        with gate if fork is raw_fork else nullcontext():
            child = fork()
            if not child:
                os._exit(_child(plan, owner))
        _wait_for(child, fork)
        plan.ledger.children[owner.number] += 1
    thread.join()


def _child(plan: RedisPlan, owner: Owner) -> int:
    """What a forked child does with what its parent has in use: reads, and a key of its own."""
    try:
        for number in range(CHILD_STEPS):
            try:
                owner.get_many()
                owner.get()
                name = f"child:{os.getpid()}:{number}"
                owner.cache.set(name, name, 5)
                got = owner.cache.get(name)
                if got not in (name, None):
                    raise Violation(f"{name}: got {got!r:.100}")
            except EngineUnavailable as error:
                owner.meet(type(error).__name__)
    except BaseException:  # noqa: BLE001 - the rig must see it, whatever it is
        write_fault(plan)
        return FAULT
    return 0


def _wait_for(child: int, fork: Any) -> None:
    give_up_at = time.monotonic() + CHILD_HANGS_AFTER_S
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done and status:
            raise Violation(f"a child by {fork} ended with {status}")
        if done:
            return
        if time.monotonic() > give_up_at:
            os.kill(child, signal.SIGABRT)
            raise Violation(f"a child by {fork} hangs")
        time.sleep(0.001)


ROLE = {"threads": threads, "greenlets": greenlets, "tasks": tasks, "forker": forker}


def checker(plan: RedisPlan) -> None:
    """Never killed nor stopped: he gets on, whatever happens to the others and the server."""
    logging.disable()
    owner = Owner(plan, open_cache(plan), plan.checker * THREADS_MAX, random.Random(plan.seed))
    while not plan.ledger.stop[0]:
        owner.step()


def inspect_at_the_end(plan: RedisPlan) -> None:
    """A fresh process, after all others were killed at once: every key once more."""
    owner = Owner(plan, open_cache(plan), 0, random.Random(plan.seed))
    for at in range(plan.owners * KEYS):
        owner.read([at], lambda names: {names[0]: owner.cache.get(names[0])})
    plan.figures.write_text(json.dumps(figures(plan)))


def figures(plan: RedisPlan) -> dict[str, int]:
    ledger = plan.ledger
    found = Counter({"operations over Redis": sum(ledger.operations)})
    found["forked children"] = sum(ledger.children)
    for place, kind in enumerate(KINDS):
        found[kind] = sum(ledger.met[place :: len(KINDS)])
    return dict(found)
