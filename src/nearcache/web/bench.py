"""One hit: read the value of one cache, time it, check it, and by chance write it again.

A cache of the user's is written by a POST alone, under a key that no other site has, and not at all
where the write would push out what is theirs: where it culls by number and is full, and over a
value that is there in shared memory, which ages by every write. The lab's own caches
(``PRIVATE``) are written by every hit.

The value is the same for every cache and never grows (the articles' did, so slower caches were
measured on shorter lists). Keys are equally long, and every alias has its own: two of them may
share a server. Only the call into the cache is timed, on the monotonic clock; checking, writing
and counting come after.
"""

from __future__ import annotations

import logging
import os
import random
import time
from dataclasses import dataclass
from typing import Any

from django.core.cache import caches
from django.core.signals import setting_changed
from django.utils.crypto import salted_hmac

from nearcache.base.per_process import Mutex
from nearcache.lab.own.room import free_entries
from nearcache.lab.timers.attribution import is_native
from nearcache.lab.workloads import PAYLOADS
from nearcache.web.options import WebOptions, aliases_of, samples_directory, web_options
from nearcache.web.samples import Attempt, Outcome, SampleStore, forget_former
from nearcache.web.sizes import stored_bytes

logger = logging.getLogger("nearcache.web")

VERSION = 1  # of the value: it is constant
SEED = 0  # the same in all workers
ABSENT = object()
BY_POST = "nothing is stored: a POST writes it (curl -X POST)"
FULL = "full: it holds MAX_ENTRIES, and a write would push out others, so nothing was written"
# Not the seeded generator: uWSGI forks without telling Python, and all workers would throw alike.
dice = random.SystemRandom()


@dataclass(frozen=True)
class Hit:
    """What one hit came to."""

    alias: str
    outcome: Outcome
    problem: str = ""  # what was wrong, in words
    mean_ms: float | None = None  # of all reads of this alias, by all workers


def series(alias: str) -> tuple[str, str, str]:
    """The names of an alias's series: its first reads in every worker, the others, and writes."""
    return f"{alias}/cold", f"{alias}/get", f"{alias}/set"


class Bench:
    """The caches under test, in this process."""

    def __init__(self, options: WebOptions) -> None:
        self.options = options
        self.aliases = aliases_of(options)
        self.payload = PAYLOADS[options.payload](SEED)
        payload = options.payload
        self.keys = {a: f"nearcache-web:{_digest(f'{payload} {a}')}" for a in self.aliases}
        self.values = {alias: self.payload.make(key, VERSION) for alias, key in self.keys.items()}
        directory, prefix = samples_directory(options, self.aliases)
        forget_former(directory, prefix)
        self.store = SampleStore(directory, [n for alias in self.aliases for n in series(alias)])
        self._met: set[tuple[int, str]] = set()  # (process, alias) that were asked before
        self._meeting = Mutex()
        self._reads: dict[tuple[int, str], int] = {}  # of (process, alias)
        self._weighed: dict[str, tuple[int, int]] = {}  # alias -> (process, epoch)
        self._said: set[tuple[str, str]] = set()  # (alias, kind of problem) in the log

    def hit(self, alias: str, *, writes: bool = False) -> Hit:
        """One read, perhaps one write. Errors of the cache are outcomes."""
        writes = writes or self.options.private
        mark = (os.getpid(), alias)
        if mark in self._met:
            return self._hit(alias, writes)
        # The first read of a cache imports its client. Where threads import parts of one library at
        # once, CPython gets out of the deadlock by handing out a half-made module, for good.
        with self._meeting.now():
            hit = self._hit(alias, writes)
        self._met.add(mark)
        return hit

    def _hit(self, alias: str, writes: bool) -> Hit:
        cold, warm, write = series(alias)
        name = cold if self._is_cold(alias) else warm
        outcome, problem = self._read(name, alias)
        if writes and (outcome == "missed" or self._rewrites(alias)):
            problem = self._write(write, alias) or problem
        elif outcome == "missed":
            problem = BY_POST
        self._log_once(alias, problem)
        mean_ns = self.store.mean_ns(cold, warm)
        return Hit(alias, outcome, problem, None if mean_ns is None else mean_ns / 1e6)

    def _rewrites(self, alias: str) -> bool:
        if not self.options.private and is_native(caches[alias]):
            return False
        return dice.random() < self.options.write_chance

    def _log_once(self, alias: str, problem: str) -> None:
        """The page has counts alone, so the first of each kind is in the log of every worker."""
        mark = (alias, problem.partition(":")[0])
        if problem and problem != BY_POST and mark not in self._said:
            self._said.add(mark)
            logger.warning("%s: %s", alias, problem)

    def _is_cold(self, alias: str) -> bool:
        mark = (os.getpid(), alias)
        reads = self._reads.get(mark, 0)
        if reads < self.options.warm_up:  # two threads may count as one: a read more is cold
            self._reads[mark] = reads + 1
        return reads < self.options.warm_up

    def _read(self, name: str, alias: str) -> tuple[Outcome, str]:
        cache, key = caches[alias], self.keys[alias]
        attempt = self.store.begin(name)
        try:
            began = time.perf_counter_ns()
            value = cache.get(key, ABSENT)
            took = time.perf_counter_ns() - began
        except Exception as error:  # noqa: BLE001 - whatever a cache raises is its answer
            self.store.end(attempt, "failed")
            return "failed", f"{type(error).__name__}: {error}"
        except BaseException:
            self.store.end(attempt, "failed")  # the request was cut off: greenlets, shutdown
            raise
        outcome, problem = self._judge(alias, value)
        self.store.end(attempt, outcome, took)
        return outcome, problem

    def _judge(self, alias: str, value: Any) -> tuple[Outcome, str]:
        if value is ABSENT:
            return "missed", ""
        expected = self.values[alias]
        if type(value) is type(expected) and value == expected:
            return "done", ""
        problem = self.payload.check(value, self.keys[alias], VERSION)
        return "wrong", problem or "wrong"

    def _write(self, name: str, alias: str) -> str:
        """Returns what went wrong."""
        cache, key, value = caches[alias], self.keys[alias], self.values[alias]
        if not self.options.private and free_entries(cache) < 1:
            return FULL
        attempt = self.store.begin(name)
        try:
            began = time.perf_counter_ns()
            cache.set(key, value, self.options.timeout_s)
            took = time.perf_counter_ns() - began
        except Exception as error:  # noqa: BLE001
            self.store.end(attempt, "failed")
            return f"{type(error).__name__}: {error}"
        except BaseException:
            self.store.end(attempt, "failed")
            raise
        self.store.end(attempt, "done", took)
        self._weigh(attempt, alias, cache)
        return ""

    def _weigh(self, attempt: Attempt, alias: str, cache: Any) -> None:
        """What the value takes in this cache: asked once by every process, after a write."""
        mark = (os.getpid(), attempt.epoch)
        if self._weighed.get(alias) == mark:
            return
        self._weighed[alias] = mark
        try:
            size = stored_bytes(cache, self.keys[alias], self.values[alias])
        except Exception:  # noqa: BLE001 - then the page has no size to show, and says so
            size = None
        if size:
            self.store.note_stored_bytes(attempt, size)


def _digest(text: str) -> str:
    # Keyed by the site: the key is the same in all its workers, and no other site's.
    return salted_hmac("nearcache.web.key", text, algorithm="sha256").hexdigest()[:16]


_benches: dict[str, Bench] = {}
_mutex = Mutex()


def bench() -> Bench:
    """The bench of the current settings. Raises OptionError and LabError."""
    found = _benches.get("now")
    if found is None:
        with _mutex.now():
            found = _benches.get("now") or Bench(web_options())
            _benches["now"] = found
    return found


def _forget(*, setting: str, **_: Any) -> None:
    if setting in ("CACHES", "NEARCACHE_WEB"):
        _benches.clear()


setting_changed.connect(_forget)
