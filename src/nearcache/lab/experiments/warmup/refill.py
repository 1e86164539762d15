"""A site that begins with an empty cache, under traffic: when is it hot, and who computed what?

Two web processes are forked, with eight threads each. All requests are planned beforehand:
when each is due, which thread has it, which key it wants. What happened is sent to the parent
in small batches, so that it can end the round when the cache is hot.

Not here: sockets and HTTP. The endpoint is a function, because the question is what the
cache lets through.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from multiprocessing.connection import Connection, wait
from queue import Empty, SimpleQueue
from typing import Any

from nearcache.lab.base.arm import WrongAnswer
from nearcache.lab.servers import child_setup

PROCESSES = 2
THREADS = 8  # of each process
RATE = 1000.0  # requests a second, of all together
KEYS = 100
COMPUTE_S = 0.010
FILL_CHUNK = 20  # keys a set_many
TIMEOUT_S = 600
START_S = 0.3  # until everybody is there
FILL_LIMIT_S = 20.0
BATCH_S = 0.02
END_S = 5.0
"""So long a process may take to end what it writes: killed in it, it would leave half a file."""
WINDOWS = {"hot90": (100, 0.90), "hot99": (200, 0.99)}

OpenCache = Callable[[], Any]


@dataclass(frozen=True)
class Request:
    """One that was answered. Times in ns since the traffic began."""

    due: int
    done: int
    key: int
    computed: bool  # by this request itself


@dataclass
class Refill:
    """Everything that happened in one round."""

    requests: list[Request] = field(default_factory=list)
    filled: list[int] = field(default_factory=list)  # keys that the filling command computed
    filling_ns: int = 0  # what it took, before the traffic began

    def hot_ns(self, window: int, share: float) -> int | None:
        """When ``share`` of the last ``window`` requests were answered without computing.

        Counted from the restart, so filling is in it.
        """
        ordered = sorted(self.requests, key=lambda request: request.done)
        free = 0
        for position, request in enumerate(ordered):
            free += not request.computed
            if position >= window:
                free -= not ordered[position - window].computed
            if position >= window - 1 and free >= share * window:
                return self.filling_ns + request.done
        return None

    @property
    def computations(self) -> int:
        return sum(request.computed for request in self.requests) + len(self.filled)

    @property
    def keys_computed(self) -> int:
        by_requests = {request.key for request in self.requests if request.computed}
        return len(by_requests | set(self.filled))


@dataclass(frozen=True)
class Planned:
    due_ns: int
    key: int


def plan_of(rng: random.Random, seconds: float) -> list[Planned]:
    """Poisson arrivals, keys by Zipf's law with exponent 1: key 0 is the most wanted."""
    weights = list(accumulate(1 / (rank + 1) for rank in range(KEYS)))
    planned, at = [], 0.0
    while at < seconds:
        at += rng.expovariate(RATE)
        (key,) = rng.choices(range(KEYS), cum_weights=weights)
        planned.append(Planned(int(1e9 * at), key))
    return planned


def value_of(prefix: str, key: int) -> dict[str, Any]:
    return {"key": f"{prefix}:{key}", "words": ["a", "fragment", "of", "a", "page"], "rank": key}


def refill(
    open_cache: OpenCache, strategy: str, prefix: str, limit_s: float, rng: random.Random
) -> Refill:
    """One round, until it is hot or ``limit_s`` is over. Nothing may be there under ``prefix``.

    Raises:
        WrongAnswer: a request got another value than that of its key, or an error.
    """
    found = Refill()
    if strategy == "fill":
        started = time.monotonic_ns()
        _run([(_fill, open_cache, prefix)], started + int(1e9 * FILL_LIMIT_S), found)
        found.filling_ns = time.monotonic_ns() - started
    planned = plan_of(rng, limit_s)
    began = time.monotonic_ns() + int(1e9 * START_S)
    jobs = [
        (_serve, open_cache, prefix, began, planned[number::PROCESSES], strategy == "protected")
        for number in range(PROCESSES)
    ]
    _run(jobs, began + int(1e9 * limit_s), found)
    return found


def _run(jobs: Sequence[tuple[Any, ...]], until_ns: int, found: Refill) -> None:
    """Each job in a process of its own, until all are done, it is hot, or time is up."""
    context = multiprocessing.get_context("fork")
    processes, pipes = [], []
    try:
        for job in jobs:
            ours, theirs = context.Pipe(duplex=False)
            pipes.append(ours)
            process = context.Process(target=_child, args=(theirs, pipes, *job), daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
        _listen(pipes, until_ns, found)
    finally:
        for pipe in pipes:
            pipe.close()  # which tells the process to end
        for process in processes:
            process.join(END_S)
            process.kill()
            process.join()


def _listen(pipes: Sequence[Connection], until_ns: int, found: Refill) -> None:
    open_pipes = list(pipes)
    while open_pipes and time.monotonic_ns() < until_ns:
        left_s = max(0.0, (until_ns - time.monotonic_ns()) / 1e9)
        for pipe in wait(open_pipes, left_s):
            assert isinstance(pipe, Connection)
            try:
                news = pipe.recv()
            except EOFError:
                open_pipes.remove(pipe)
                continue
            if isinstance(news, str):
                raise WrongAnswer(news)
            found.requests += [item for item in news if isinstance(item, Request)]
            found.filled += [item for item in news if isinstance(item, int)]
        if found.hot_ns(*WINDOWS["hot99"]) is not None:
            return


def _child(
    pipe: Connection, parents: Sequence[Connection], job: Callable[..., None], *arguments: Any
) -> None:
    child_setup(None)()
    for end in parents:
        end.close()  # or this process itself would keep its pipe open when the parent has closed it
    try:
        job(pipe, *arguments)
    except BrokenPipeError:
        pass  # the parent has seen enough
    except Exception as error:  # noqa: BLE001 - it travels to the parent
        pipe.send(f"{type(error).__name__}: {error}")
    os._exit(0)  # no exit handlers: they belong to the parent


def _serve(
    pipe: Connection,
    open_cache: OpenCache,
    prefix: str,
    began: int,
    planned: Sequence[Planned],
    protected: bool,
) -> None:
    """A web process: its threads answer what is planned for them."""
    news: SimpleQueue[Any] = SimpleQueue()
    over = threading.Event()
    threads = []
    for number in range(THREADS):
        site = Site(open_cache, prefix, protected)
        work = (planned[number::THREADS], began, news, over)
        threads.append(threading.Thread(target=site.work, args=work, daemon=True))
        threads[-1].start()
    try:
        _tell(pipe, news)
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _tell(pipe: Connection, news: SimpleQueue[Any]) -> None:
    """What the threads did, until all have ended."""
    working = THREADS
    while working:
        batch = []
        give_up_at = time.monotonic() + BATCH_S
        while (left := give_up_at - time.monotonic()) > 0:
            try:
                item = news.get(timeout=left)
            except Empty:
                break
            if isinstance(item, Exception):
                raise item
            if item is None:
                working -= 1
            else:
                batch.append(item)
        pipe.send(batch)


class Site:
    """One thread and its endpoint."""

    def __init__(self, open_cache: OpenCache, prefix: str, protected: bool) -> None:
        self.open_cache = open_cache
        self.prefix = prefix
        self.answer = self._protected if protected else self._by_hand
        self.has_computed = False
        self.cache: Any = None

    def work(
        self,
        planned: Sequence[Planned],
        began: int,
        news: SimpleQueue[Any],
        over: threading.Event,
    ) -> None:
        try:
            self.cache = self.open_cache()
            for request in planned:
                if over.wait(max(0.0, (began + request.due_ns - time.monotonic_ns()) / 1e9)):
                    return
                self.has_computed = False
                value = self.answer(request.key)
                if value != value_of(self.prefix, request.key):
                    raise WrongAnswer(f"key {request.key} was answered with {value!r}")
                done = time.monotonic_ns() - began
                news.put(Request(request.due_ns, done, request.key, self.has_computed))
            news.put(None)
        except Exception as error:  # noqa: BLE001 - the main thread tells the parent
            news.put(error)

    def _by_hand(self, key: int) -> Any:
        name = f"{self.prefix}:{key}"
        value = self.cache.get(name)
        if value is None:
            value = self._compute(key)
            self.cache.set(name, value, TIMEOUT_S)
        return value

    def _protected(self, key: int) -> Any:
        return self.cache.get_or_set(f"{self.prefix}:{key}", lambda: self._compute(key), TIMEOUT_S)

    def _compute(self, key: int) -> dict[str, Any]:
        self.has_computed = True
        time.sleep(COMPUTE_S)
        return value_of(self.prefix, key)


def _fill(pipe: Connection, open_cache: OpenCache, prefix: str) -> None:
    """A management command: computes all keys and stores them, before the traffic."""
    cache = open_cache()
    for start in range(0, KEYS, FILL_CHUNK):
        keys = range(start, min(KEYS, start + FILL_CHUNK))
        values = {}
        for key in keys:
            time.sleep(COMPUTE_S)
            values[f"{prefix}:{key}"] = value_of(prefix, key)
        cache.set_many(values, TIMEOUT_S)
        pipe.send(list(keys))
