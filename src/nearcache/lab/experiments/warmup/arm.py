"""A Django cache alias, from the beginning: new processes, an empty store, no warm-up at all.

The worker itself proves the alias as in other experiments; what is timed happens in
processes that begin when they are timed.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nearcache.lab.arms.alias import BESIDE_BYTES, AliasArm
from nearcache.lab.base.arm import WrongAnswer
from nearcache.lab.base.messages import Phase, Visit, Visited
from nearcache.lab.experiments.warmup import cold as warmup_cold
from nearcache.lab.experiments.warmup.memory import SIZES, footprint, keys_of
from nearcache.lab.experiments.warmup.refill import KEYS, WINDOWS, Refill, refill
from nearcache.lab.own.alias import SHARED_MEMORY, class_names

COLD = ("cold", "first_get", "first_miss", "steady_get")
COLD_TIMEOUT_S = 30.0
STEADY_GETS = 200
FILL_KEYS = 500
FILL_CHUNK = 100
TIMEOUT_S = 600
# Where values live in the processes themselves, so that their memory is the question.
IN_PROCESS = ("memory", "shared memory")
PROTECTED = ("shared memory", "nearcache redis")
clock = time.perf_counter_ns


class WarmupArm(AliasArm):
    def visit(self, visit: Visit) -> Visited:
        if visit.learning:
            return Visited(phases=[])
        self.demand_room(2 * FILL_KEYS + KEYS, BESIDE_BYTES)
        phases: list[Phase] = []
        steps: dict[tuple[str, ...], Callable[[Visit], list[Phase]]] = {
            COLD: self._cold,
            ("fill_many", "fill_one"): self._fill,
            tuple(SIZES): self._memory,
            (*WINDOWS, "computed"): self._refill,
        }
        for names, step in steps.items():
            if set(names) & set(visit.operations):
                phases += step(visit)
        return Visited(phases=[phase for phase in phases if phase.operation in visit.operations])

    def _delete(self, keys: Iterable[str]) -> None:
        """What a step has written, and nothing else: the cache may be somebody's."""
        names = list(keys)
        for start in range(0, len(names), FILL_CHUNK):
            self.cache.delete_many(names[start : start + FILL_CHUNK])

    def _disconnect(self) -> None:
        """Before a fork: SQLite (DiskCache, DatabaseCache) forbids a child its connections."""
        from django.core.cache import caches
        from django.db import connections

        self.cache.close()
        caches.close_all()
        connections.close_all()

    def _default(self) -> Any:
        from django.core.cache import caches

        return caches[self.candidate.alias]

    # -- a new process -------------------------------------------------------------------------

    def _cold(self, visit: Visit) -> list[Phase]:
        key = f"{self.setup.namespace}:{visit.round_id}:cold"
        value = {"key": key, "answer": 42}
        self.cache.set(key, value, TIMEOUT_S)
        found = self._new_process(key)
        self.cache.delete(key)
        is_private = self.candidate.reach == "process"
        if found["wrong"] or found["first"] != (None if is_private else value):
            raise WrongAnswer(f"a new process read {found['first']!r} of what was just stored")
        names = {"python": "Python", "django": "Django", "backend": "backend and client"}
        parts = {title: float(found[name]) for name, title in names.items()}
        parts["first get"] = float(found["first_get"])
        cold = Phase("cold", calls=1, samples=[int(sum(parts.values()))], parts=parts)
        first = Phase("first_get", calls=1, samples=[found["first_get"]])
        if is_private:
            first.outcomes["empty: a new process has nothing"] = 1
        else:
            first.hits = 1
        miss = Phase("first_miss", calls=1, misses=1, samples=[found["first_miss"]])
        steady = Phase("steady_get", calls=STEADY_GETS, hits=STEADY_GETS, samples=found["steady"])
        return [cold, first, miss, steady]

    def _new_process(self, key: str) -> dict[str, Any]:
        order = {
            "module": self.candidate.settings_module or "",
            "alias": self.candidate.alias,
            "shm_path": self.setup.places["shm_path"] if self._is_shared_memory else "",
            # A user's entry stays in its module: it may hold a password, and `ps` shows this.
            "caches": {} if self.is_own else {"default": dict(self.candidate.settings)},
            "key": key,
            "is_private": self.candidate.reach == "process",
            "gets": STEADY_GETS,
            "started_ns": time.monotonic_ns(),
        }
        script = str(Path(warmup_cold.__file__))
        done = subprocess.run(
            [sys.executable, "-P", script, json.dumps(order)],
            capture_output=True,
            timeout=COLD_TIMEOUT_S,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            raise WrongAnswer(f"a new process failed: {lines[-1] if lines else done.returncode}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    @property
    def _is_shared_memory(self) -> bool:
        return SHARED_MEMORY in class_names(self.candidate.settings["BACKEND"])

    # -- an empty store ------------------------------------------------------------------------

    def _fill(self, visit: Visit) -> list[Phase]:
        prefix = f"{self.setup.namespace}:{visit.round_id}"
        many = Phase("fill_many", batch=FILL_CHUNK)
        one = Phase("fill_one")
        for start in range(0, FILL_KEYS, FILL_CHUNK):
            values = {f"{prefix}:many:{n}": {"n": n} for n in range(start, start + FILL_CHUNK)}
            began = clock()
            refused = self.cache.set_many(values, TIMEOUT_S)
            many.samples.append((clock() - began) // FILL_CHUNK)
            many.calls += FILL_CHUNK
            if refused or self.cache.get_many(list(values)) != values:
                raise WrongAnswer(f"set_many of {FILL_CHUNK} keys did not store them all")
            for number in range(start, start + FILL_CHUNK // 2):
                key, value = f"{prefix}:one:{number}", {"n": number}
                began = clock()
                self.cache.set(key, value, TIMEOUT_S)
                one.samples.append(clock() - began)
                one.calls += 1
                if self.cache.get(key) != value:
                    raise WrongAnswer("set did not store its value")
        self._delete(f"{prefix}:{kind}:{n}" for kind in ("many", "one") for n in range(FILL_KEYS))
        return [many, one]

    def _refill(self, visit: Visit) -> list[Phase]:
        if visit.payload == "protected" and self.candidate.family not in PROTECTED:
            return []
        prefix = f"{self.setup.namespace}:{visit.round_id}:{visit.payload}"  # nothing is there
        limit_s = visit.phase_ns / 1e9
        # The same requests for all candidates of a round.
        rng = random.Random(f"{self.setup.seed}:{visit.draw}")
        self._disconnect()
        try:
            found = refill(self._default, visit.payload, prefix, limit_s, rng)
        finally:
            self._delete(f"{prefix}:{key}" for key in range(KEYS))
        return [*(_hot(name, found, limit_s) for name in WINDOWS), _computed(found)]

    # -- memory --------------------------------------------------------------------------------

    def _memory(self, visit: Visit) -> list[Phase]:
        if self.candidate.family not in IN_PROCESS:
            return []
        phases = []
        for name, size in SIZES.items():
            if name in visit.operations:
                prefix = f"{self.setup.namespace}:{visit.round_id}:{name}"
                self._disconnect()
                seen = footprint(self._default, prefix, size)
                self._delete(keys_of(prefix, size))
                phase = Phase(name, calls=1, point=max(1.0, seen.each_its_own))
                phase.measures = {
                    title: (value, "bytes")
                    for title, value in asdict(seen).items()
                    if title != "each_its_own"
                }
                phases.append(phase)
        return phases


def _hot(name: str, found: Refill, limit_s: float) -> Phase:
    hot_ns = found.hot_ns(*WINDOWS[name])
    phase = Phase(name, calls=1)  # one refill: the requests in it are counted in "computed"
    if hot_ns is None:
        phase.outcomes[f"not within {limit_s:g} s"] = 1
        return phase
    phase.samples.append(hot_ns)
    return phase


def _computed(found: Refill) -> Phase:
    waits = sorted(request.done - request.due for request in found.requests)
    phase = Phase("computed", calls=len(found.requests))
    phase.hits = sum(not request.computed for request in found.requests)
    phase.point = found.computations / max(1, found.keys_computed)
    phase.measures = {
        "computations": (found.computations, "count"),
        "keys computed": (found.keys_computed, "count"),
        "by requests": (sum(request.computed for request in found.requests), "count"),
        "requests": (len(found.requests), "count"),
        "filling": (found.filling_ns, "ns"),
    }
    if waits:
        phase.measures["request, median"] = (waits[len(waits) // 2], "ns")
        phase.measures["request, P99"] = (waits[int(0.99 * (len(waits) - 1))], "ns")
    return phase
