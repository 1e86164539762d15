"""A small object in one store: set, get, delete, each answer checked, requests counted.

Before anything is timed a canary sings: what was set is read by another client on another
connection, compared, deleted, and must then be gone for both. The article published numbers
of sets that had never reached a server.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import cycle
from typing import Any

from nearcache.lab.base.arm import Arm, WrongAnswer
from nearcache.lab.base.messages import Phase, Setup, Visit, Visited
from nearcache.lab.experiments.objects.boxes import (
    MEMCACHED_BOXES,
    S3_BOXES,
    Box,
    RedisBox,
    s3_client,
)
from nearcache.lab.experiments.objects.distance import Distance
from nearcache.lab.workloads.small_dict import SmallDict

KEY_COUNT = 12
SETS = 2 * KEY_COUNT  # so that each is overwritten, and a stale answer shows
MOST_CALLS = 2000
MAKING = "of which making the client"
REQUESTS = "requests per operation"
clock = time.perf_counter_ns


class CanaryDied(Exception):
    """What was set did not arrive, or did not go; the message says at which step."""


class ObjectsArm(Arm):
    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.payload = SmallDict(setup.seed)
        self.distance: Distance | None = None
        self.box: Any = None
        self.port = self._address()

    def begin(self) -> Mapping[str, str]:
        round_trip_ms = self.candidate.options.get("round_trip_ms", 0)
        if round_trip_ms:
            self.distance = Distance(self.port, round_trip_ms)
            self.port = self.distance.port
        if self._is_s3:
            ensure_bucket(self.setup.places)
        self.box = self.make_box()
        self._canary()
        os.sched_setaffinity(0, {self.setup.cpu})
        return {"server": self.setup.server_version, **self.box.proof()}

    def visit(self, visit: Visit) -> Visited:
        keys = [f"{self.setup.namespace}:{visit.round_id}:{i:03d}" for i in range(KEY_COUNT)]
        phases = Round(self.box, self.payload, keys, visit.phase_ns).run()
        if "first" in visit.operations:
            phases.append(self._first(keys[0]))
        phases = [phase for phase in phases if phase.operation in visit.operations]
        return Visited(phases=phases, facts=self._facts())

    def end(self) -> None:
        if self.distance:
            self.distance.end()

    def make_box(self) -> Box:
        kind = self.candidate.options["box"]
        if kind in S3_BOXES:
            return S3_BOXES[kind](self.setup.places, self.port)
        if kind in MEMCACHED_BOXES:
            return MEMCACHED_BOXES[kind](self.port)
        return RedisBox(self.port)

    @property
    def _is_s3(self) -> bool:
        return self.candidate.options["box"] in S3_BOXES

    def _address(self) -> int:
        """The port of the server, or the one that a test wants asked instead."""
        places = self.setup.places
        given = self.candidate.options.get("port")
        if given:
            return int(given)
        if self._is_s3:
            return int(places["s3_endpoint"].rpartition(":")[2])
        redis = self.candidate.options["box"] == "redis"
        return int(places["redis_port" if redis else "memcached_port"])

    def _canary(self) -> None:
        key = f"{self.setup.namespace}:canary"
        for version in (1, 2):
            self.box.set(key, self.payload.make(key, version))
            answers = {"another client": self.box.elsewhere(key), "it": self.box.get(key)}
            for who, found in answers.items():
                problem = self._problem(found, key, version)
                if problem:
                    raise CanaryDied(f"after a set, {who} found {problem}")
        self.box.delete(key)
        if self.box.elsewhere(key) is not None or self.box.get(key) is not None:
            raise CanaryDied("a deleted key still answers")

    def _problem(self, found: Any, key: str, version: int) -> str | None:
        if found is None:
            return "nothing: sets are dropped, or nobody listens there"
        return self.payload.check(found, key, version)

    def _first(self, key: str) -> Phase:
        """A new client and its first get: what the other numbers leave out."""
        self.box.set(key, self.payload.make(key, 1))
        phase = Phase("first")
        start = clock()
        box = self.make_box()
        made = clock()
        value = box.get(key)
        phase.samples.append(clock() - start)
        _verify(phase, self.payload, key, 1, value)
        box.close()
        self.box.delete(key)
        phase.measures[MAKING] = (made - start, "ns")
        return phase

    def _facts(self) -> dict[str, str]:
        if not self._is_s3:
            return {}
        return {
            "S3 server": self.setup.places["s3_product"],
            "its files lie on": self.setup.places["s3_mount"],
        }


class Round:
    """Sets all keys and overwrites them, gets them, deletes them; versions rise."""

    def __init__(self, box: Box, payload: SmallDict, keys: list[str], phase_ns: int) -> None:
        self.box = box
        self.payload = payload
        self.versions = dict.fromkeys(keys, 0)
        self.phase_ns = phase_ns

    def run(self) -> list[Phase]:
        phases = [self._timed("set", self._set), self._timed("get", self._get)]
        # Every key was got at least once, and a get that is not what was set ends the run.
        phases[0].measures |= {
            name: (float(KEY_COUNT), "") for name in ("keys_sent", "keys_stored")
        }
        phases.append(self._timed("delete", self._delete, endless=False))
        some = next(iter(self.versions))
        if self.box.elsewhere(some) is not None or self.box.get(some) is not None:
            raise WrongAnswer("a key still answers after it was deleted")
        return phases

    def _timed(
        self, name: str, step: Callable[[Phase, str], int], *, endless: bool = True
    ) -> Phase:
        phase = Phase(name)
        before = self.box.requests()
        spent = 0
        for key in cycle(self.versions):
            elapsed = step(phase, key)
            phase.samples.append(elapsed)
            spent += elapsed
            enough = spent >= self.phase_ns or phase.calls >= MOST_CALLS
            if phase.calls >= (SETS if name == "set" else KEY_COUNT) and (enough or not endless):
                break
        if phase.hits != phase.calls:
            raise WrongAnswer(f"{phase.calls - phase.hits} of {phase.calls} were not verified")
        phase.measures[REQUESTS] = ((self.box.requests() - before) / phase.calls, "")
        return phase

    def _set(self, phase: Phase, key: str) -> int:
        self.versions[key] += 1
        value = self.payload.make(key, self.versions[key])
        start = clock()
        self.box.set(key, value)
        elapsed = clock() - start
        phase.calls += 1
        phase.hits += 1  # acknowledged; the gets that follow see whether that was true
        return elapsed

    def _get(self, phase: Phase, key: str) -> int:
        start = clock()
        value = self.box.get(key)
        elapsed = clock() - start
        _verify(phase, self.payload, key, self.versions[key], value)
        return elapsed

    def _delete(self, phase: Phase, key: str) -> int:
        start = clock()
        self.box.delete(key)
        elapsed = clock() - start
        phase.calls += 1
        phase.hits += 1
        return elapsed


def ensure_bucket(places: Mapping[str, str]) -> None:
    """The bucket of this run; some servers come with it, others are asked to make it."""
    client = s3_client(places, int(places["s3_endpoint"].rpartition(":")[2]))
    with suppress(client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists):
        try:
            client.head_bucket(Bucket=places["s3_bucket"])
        except client.exceptions.ClientError:
            client.create_bucket(Bucket=places["s3_bucket"])


def _verify(phase: Phase, payload: SmallDict, key: str, version: int, value: Any) -> None:
    phase.calls += 1
    problem = "it is not there" if value is None else payload.check(value, key, version)
    if problem:
        raise WrongAnswer(f"{phase.operation}: {problem}")
    phase.hits += 1
