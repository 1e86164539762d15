"""Stores of JSON: one way to keep it per worker, written, read back and checked.

    write   a new number's value, each committed by itself; at least all keys once
    read    those keys in random order; every value is compared with what was written
    first   connect and read once: what a request pays where no connection is kept

Only the calls are timed. Encoding and decoding JSON belongs to them, because whoever uses
a store pays for it; how much of a read that is stands beside it as a part.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from statistics import median
from typing import Any

from nearcache.lab.base.arm import Arm
from nearcache.lab.base.directories import disk_parent
from nearcache.lab.base.messages import Phase, Setup, Visit, Visited
from nearcache.lab.experiments.stores.both import BothStore
from nearcache.lab.experiments.stores.contract import Store
from nearcache.lab.servers.postgres import django_database
from nearcache.lab.workloads.blobs import BLOBS, Blob

MOST_CALLS = 1000
FIRST_CALLS = 5  # a connection to PostgreSQL costs a process
DECODES = 20
FSYNCS = 5
FSYNC_BYTES = 8192  # a page of PostgreSQL's log
ROOMY = {"MAX_ENTRIES": 1_000_000}  # Django's default of 300 would drop the rest
clock = time.perf_counter_ns


class WrongValue(Exception):
    """A store gave back something else than was written; the message says how it differs."""


class StoresArm(Arm):
    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rng = random.Random(f"{setup.seed}:{setup.namespace}")
        self.table = setup.namespace.replace(":", "_").replace("-", "_")
        self.blobs: dict[str, Blob] = {}
        self.identity = 0  # numbers are never used twice
        self.store: Any = None

    def begin(self) -> Mapping[str, str]:
        configure(self.candidate.options, self.setup, self.table)
        self.store = self.make_store()
        self.store.create()
        blob = self.blob(next(iter(BLOBS)))
        self._canary(blob)
        durability = self.store.durability(lambda: self._write_one(blob))
        self.facts = {
            "durability": durability.promise,
            "as the server says": durability.settings,
            "seen": durability.evidence,
            "its files lie on": self._mount(),
        }
        self.store.empty()
        proof = {"server": self.setup.server_version, **self.store.proof()}
        os.sched_setaffinity(0, {self.setup.cpu})
        return proof

    def visit(self, visit: Visit) -> Visited:
        round_ = Round(self, self.blob(visit.payload), visit)
        try:
            return Visited(phases=round_.run(), facts=self.facts)
        finally:
            self.store.empty()

    def end(self) -> None:
        with suppress(Exception):  # the server may be gone before us
            self.store.disconnect()

    def blob(self, name: str) -> Blob:
        if name not in self.blobs:
            self.blobs[name] = BLOBS[name](self.setup.seed)
        return self.blobs[name]

    def next_identity(self) -> int:
        self.identity += 1
        return self.identity

    def make_store(self) -> Store:
        return make_store(self.candidate.options, self.setup, self.table, self.rng)

    def check(self, blob: Blob, identity: int, value: Any) -> None:
        problem = blob.check(value, self.key(identity), 1)
        if problem:
            raise WrongValue(f"{blob.title}: {problem}")

    def key(self, identity: int) -> str:
        return f"{self.setup.namespace}:{identity}"

    def _canary(self, blob: Blob) -> None:
        """Before anything is timed: is a value there for another connection, and then gone?"""
        identity = self._write_one(blob)
        self.check(blob, identity, self.store.read_elsewhere(identity))
        self.store.empty()
        if self._still_answers(identity):
            raise WrongValue("a value still answers after the store was emptied")

    def _still_answers(self, identity: int) -> bool:
        with suppress(Exception):  # every store has its own way to say that there is nothing
            return self.store.read(identity) is not None
        return False

    def _write_one(self, blob: Blob) -> int:
        identity = self.next_identity()
        self.store.write(identity, blob.make(self.key(identity), 1))
        return identity

    def _mount(self) -> str:
        places = self.setup.places
        names = [f"{name.replace('-', '_')}_mount" for name in self.candidate.servers]
        return "; ".join(places[name] for name in names if name in places) or "no disk"


class Round:
    """One visit: write new keys, read them, connect anew."""

    def __init__(self, arm: StoresArm, blob: Blob, visit: Visit) -> None:
        self.arm = arm
        self.store = arm.store
        self.blob = blob
        self.visit = visit
        self.identities: list[int] = []

    def run(self) -> list[Phase]:
        phases = [self._write(), self._read()]
        if "first" in self.visit.operations:
            phases.append(self._first())
        some = self.arm.rng.choice(self.identities)
        self.arm.check(self.blob, some, self.store.read_elsewhere(some))
        return [phase for phase in phases if phase.operation in self.visit.operations]

    def _write(self) -> Phase:
        phase = Phase("write")
        self.store.parts()
        while self._goes_on(phase):
            identity = self.arm.next_identity()
            value = self.blob.make(self.arm.key(identity), 1)
            start = clock()
            self.store.write(identity, value)
            phase.samples.append(clock() - start)
            self.identities.append(identity)
            phase.calls += 1
            phase.hits += 1
        phase.parts = self.store.parts()
        phase.measures["an fsync of 8 kB beside it"] = (fsync_ns(), "ns")
        return phase

    def _read(self) -> Phase:
        phase = Phase("read")
        self.store.parts()
        while self._goes_on(phase):
            self._read_one(phase, self.arm.rng.choice(self.identities), self.store.read)
        phase.parts = self.store.parts() or self._decoding(phase)
        return phase

    def _first(self) -> Phase:
        phase = Phase("first")
        for _ in range(FIRST_CALLS):
            self.store.disconnect()
            self._read_one(phase, self.arm.rng.choice(self.identities), self.store.read)
        return phase

    def _read_one(self, phase: Phase, identity: int, read: Callable[[int], Any]) -> None:
        start = clock()
        value = read(identity)
        phase.samples.append(clock() - start)
        phase.calls += 1
        self.arm.check(self.blob, identity, value)
        phase.hits += 1

    def _goes_on(self, phase: Phase) -> bool:
        if phase.calls < self.blob.key_count:
            return True
        return phase.calls < MOST_CALLS and sum(phase.samples) < self.visit.phase_ns

    def _decoding(self, phase: Phase) -> dict[str, float]:
        text = json.dumps(self.blob.make(self.arm.key(self.identities[0]), 1))
        decode = float(median(_timed(lambda: json.loads(text)) for _ in range(DECODES)))
        rest = max(0.0, median(phase.samples) - decode)
        return {"JSON to Python": decode, "server, socket, client": rest}


def fsync_ns() -> float:
    """What this disk takes to say that 8 kB are on it: the least a durable write can cost."""
    with tempfile.TemporaryFile(dir=disk_parent()) as file:
        return float(median(_timed(lambda: _write_through(file)) for _ in range(FSYNCS)))


def _write_through(file: Any) -> None:
    os.pwrite(file.fileno(), b"\0" * FSYNC_BYTES, 0)
    os.fsync(file.fileno())


def _timed(call: Callable[[], Any]) -> int:
    start = clock()
    call()
    return clock() - start


def configure(options: Mapping[str, Any], setup: Setup, table: str) -> None:
    """Django with the database and the cache that this candidate uses, if it uses any."""
    import django
    from django.conf import settings

    databases = {}
    if "postgres_host" in setup.places:
        databases["default"] = django_database(setup.places)
    caches = {"default": {**options.get("cache", {}), "KEY_PREFIX": setup.namespace}}
    if caches["default"].get("BACKEND", "").endswith(".DatabaseCache"):
        caches["default"] |= {"LOCATION": table, "OPTIONS": ROOMY}
    settings.configure(
        DATABASES=databases,
        CACHES=caches if "cache" in options else {},
        USE_TZ=True,
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    )
    django.setup()


def make_store(options: Mapping[str, Any], setup: Setup, table: str, rng: random.Random) -> Store:
    """The store that ``options`` describe; see plan.py."""
    from nearcache.lab.experiments.stores import postgres, redis

    places, kind = setup.places, options["store"]
    socket = places.get(options.get("socket", ""), "")
    appendfsync = options.get("appendfsync", "")
    if kind == "both":
        stores = {
            name: make_store({**options, "store": part}, setup, table, rng)
            for name, part in options["parts"].items()
        }
        return BothStore(stores, rng)
    makers: dict[str, Callable[[], Store]] = {
        "orm": lambda: postgres.OrmStore(places, table),
        "values": lambda: postgres.ValuesStore(places, table),
        "driver": lambda: postgres.DriverStore(places, table, **options["driver"]),
        "database-cache": lambda: postgres.DatabaseCacheStore(places, table),
        "redis": lambda: redis.RedisStore(socket, setup.namespace, appendfsync),
        "redis-cache": lambda: redis.RedisCacheStore(
            socket, appendfsync, packs=options.get("packs", False)
        ),
    }
    return makers[kind]()
