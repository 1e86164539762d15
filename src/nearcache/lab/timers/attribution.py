"""Where the time of one get or set goes. Measured beside the timed loops, not inside them.

    key        building and checking the key, where that is done in Python
    encode     the value to bytes, where the backend does it in Python (get: decode)
    client     all other CPU time of this process: library, Django, system calls
    network    what the same bytes take on a bare socket, without the server's own time:
               copying, waking up, waiting
    server     inside the command, by the server's own count (Redis: INFO commandstats);
               Memcached keeps none, so its part is "network and server"
    rest       what is left: queueing, and what was measured at another moment

The parts of one operation add up to its whole. A part that would exceed what the parts
before it have left is cut: a bare socket that was unlucky explains nothing.

Two numbers need no model and are the firmer ones: ``client_cpu`` and ``server_cpu``, CPU
time of both processes for each operation, by the kernel's count.
"""

from __future__ import annotations

import pickle
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any

from nearcache.lab.base.messages import Phase
from nearcache.lab.own.guard import bare
from nearcache.lab.proofs.companion import TIMEOUT_S
from nearcache.lab.servers.wire import Wire

LONGEST_STEP_NS = 5_000_000  # a quarter of a phase, but no more; of each of about ten steps
LEAST_CALLS, MOST_CALLS = 5, 300
KEYS = 5

Coder = Callable[[Any], Any]


@dataclass(frozen=True)
class Codec:
    """How a backend turns values into bytes and back, where that can be seen apart."""

    encode: Coder
    decode: Coder


class Attributor:
    """Takes one operation after the other apart, for one cache and one payload."""

    def __init__(self, cache: Any, wire: Wire | None, prefix: str, step_ns: int) -> None:
        self.cache = cache
        self.wire = wire
        self.keys = [f"{prefix}:parts:{number:02d}" for number in range(KEYS)]
        self.step_ns = min(step_ns // 4, LONGEST_STEP_NS)

    def explain(self, phases: Sequence[Phase], values: Sequence[Any]) -> None:
        """Add parts and CPU times to the phases named get and set. ``values`` are stored."""
        with ExitStack() as cleaning:
            for key in self.keys:
                cleaning.callback(self.cache.delete, key)
            steps = {"set": self._set, "get": self._get}
            by_name = {phase.operation: phase for phase in phases}
            for name, step in steps.items():
                # A set in any case: there is nothing to get before.
                taken = step(values)
                if name in by_name and taken:
                    by_name[name].parts |= taken.parts
                    by_name[name].measures |= taken.measures

    def _set(self, values: Sequence[Any]) -> Taken | None:
        calls = [(key, values[i % len(values)], TIMEOUT_S) for i, key in enumerate(self.keys)]
        run = self._run(self.cache.set, calls)
        return self._divide(run, "encode", values, self._bare_set)

    def _get(self, values: Sequence[Any]) -> Taken | None:
        run = self._run(self.cache.get, [(key,) for key in self.keys])
        return self._divide(run, "decode", values, self._bare_get)

    def _run(self, operation: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> Run:
        """The operation itself: its time, and what both processes spent on it."""
        busy, cpu = self._server_counts()
        own = time.process_time_ns()
        samples = self._times(operation, calls)
        own = time.process_time_ns() - own
        busy_after, cpu_after = self._server_counts()
        count = len(samples)
        return Run(
            wall_ns=float(median(samples)),
            client_ns=own / count,
            busy_ns=None if busy is None or busy_after is None else (busy_after - busy) / count,
            server_ns=None if cpu is None or cpu_after is None else (cpu_after - cpu) / count,
        )

    def _server_counts(self) -> tuple[float | None, int | None]:
        return (self.wire.busy_ns(), self.wire.cpu_ns()) if self.wire else (None, None)

    def _divide(
        self,
        run: Run,
        codec_part: str,
        values: Sequence[Any],
        bare: Callable[[Wire, bytes], Run | None],
    ) -> Taken:
        parts = {} if is_native(self.cache) else {"key": self._cost(self._make_key, self.keys)}
        codec = codec_of(self.cache)
        if codec:
            encoded = [codec.encode(value) for value in values]
            work = (codec.encode, values) if codec_part == "encode" else (codec.decode, encoded)
            parts[codec_part] = self._cost(*work)
        parts["client"] = max(0.0, run.client_ns - sum(parts.values()))
        floor = bare(self.wire, self._raw_key(self.keys[0])) if self.wire else None
        if floor:
            waiting = max(0.0, floor.wall_ns - floor.client_ns)
            if run.busy_ns is None:
                parts["network and server"] = waiting
            else:
                parts["network"] = max(0.0, waiting - (floor.busy_ns or 0.0))
                parts["server"] = run.busy_ns
        return Taken(_within(run.wall_ns, parts), _measures(run))

    def _make_key(self, key: str) -> Any:
        make = getattr(self.cache, "make_and_validate_key", None) or self.cache.make_key
        return make(key)

    def _raw_key(self, key: str) -> bytes:
        raw = self._make_key(key)
        return raw if isinstance(raw, bytes) else str(raw).encode()

    def _bare_get(self, wire: Wire, raw_key: bytes) -> Run | None:
        if wire.get(raw_key) is None:
            return None  # it keeps its items in another way: nothing to compare with
        return self._run(wire.get, [(raw_key,)])

    def _bare_set(self, wire: Wire, raw_key: bytes) -> Run | None:
        stored = wire.get(raw_key)
        if stored is None:
            return None
        scratch = raw_key + b":bare"
        try:
            return self._run(wire.set, [(scratch, stored)])
        finally:
            wire.delete(scratch)

    def _times(self, operation: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[int]:
        clock = time.perf_counter_ns
        samples: list[int] = []
        end = clock() + self.step_ns
        while len(samples) < max(LEAST_CALLS, len(calls)) or (
            clock() < end and len(samples) < MOST_CALLS
        ):
            arguments = calls[len(samples) % len(calls)]
            start = clock()
            operation(*arguments)
            samples.append(clock() - start)
        return samples

    def _cost(self, function: Callable[[Any], Any], items: Sequence[Any]) -> float:
        """ns of one call: the median of passes over all items, for the clock is too coarse."""
        clock = time.perf_counter_ns
        passes: list[float] = []
        end = clock() + self.step_ns // 2
        # Three passes, unless they are so long that one must do.
        patience = end + 3 * self.step_ns
        while (
            not passes
            or (len(passes) < 3 and clock() < patience)
            or (clock() < end and len(passes) < MOST_CALLS)
        ):
            start = clock()
            for item in items:
                function(item)
            passes.append((clock() - start) / len(items))
        return float(median(passes))


@dataclass(frozen=True)
class Run:
    """One operation on average; ``wall_ns`` is a median."""

    wall_ns: float
    client_ns: float  # CPU of this process
    busy_ns: float | None  # inside the server's commands
    server_ns: float | None  # CPU of the server's process


@dataclass(frozen=True)
class Taken:
    parts: dict[str, float]
    measures: dict[str, tuple[float, str]]


def _within(whole: float, parts: dict[str, float]) -> dict[str, float]:
    """The parts, cut to what is left of the whole, and the rest."""
    found = {}
    left = whole
    for name, cost in parts.items():
        found[name] = min(cost, left)
        left -= found[name]
    return {**found, "rest": left}


def _measures(run: Run) -> dict[str, tuple[float, str]]:
    found = {"client_cpu": (run.client_ns, "ns")}
    if run.server_ns is not None:
        found["server_cpu"] = (run.server_ns, "ns")
    return found


def is_native(cache: Any) -> bool:
    """Are key, look-up and decoding one native call, of which no part is Python's?"""
    return any(base.__name__ == "SharedMemoryCache" for base in type(bare(cache)).__mro__)


def codec_of(cache: Any) -> Codec | None:
    """The steps of this cache's own code; None where they are not apart (C, one native call)."""
    cache = bare(cache)
    known = {
        "django.core.cache.backends.locmem": _locmem,
        "django.core.cache.backends.filebased": _filebased,
        "django.core.cache.backends.redis": _django_redis_backend,
        "django.core.cache.backends.memcached": _pymemcache,
        "django_redis.cache": _django_redis,
        "nearcache.backends": _nearcache,
    }
    for base in type(cache).__mro__:
        if base.__module__ in known:
            return known[base.__module__](cache)
    return None


def _locmem(cache: Any) -> Codec:
    return Codec(lambda value: pickle.dumps(value, cache.pickle_protocol), pickle.loads)


def _filebased(cache: Any) -> Codec:
    return Codec(
        lambda value: zlib.compress(pickle.dumps(value, cache.pickle_protocol)),
        lambda raw: pickle.loads(zlib.decompress(raw)),
    )


def _django_redis_backend(cache: Any) -> Codec:
    serializer = cache._cache._serializer
    return Codec(serializer.dumps, serializer.loads)


def _django_redis(cache: Any) -> Codec:
    return Codec(cache.client.encode, cache.client.decode)


def _pymemcache(cache: Any) -> Codec | None:
    serde: Any = (getattr(cache, "_options", None) or {}).get("serde")
    if not hasattr(serde, "serialize"):
        return None  # pylibmc pickles in C
    return Codec(lambda value: serde.serialize("", value), lambda raw: serde.deserialize("", *raw))


def _nearcache(cache: Any) -> Codec | None:
    if is_native(cache):
        return None
    return Codec(cache.codec.encode, cache.codec.decode)
