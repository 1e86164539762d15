"""What one thread of a worker does: operations at random, each judged and claimed.

The worker may be killed or stopped at any instruction of this. So a claim that something is
coming stands in the ledger before the operation, and that it has happened after it.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence

from nearcache.errors import EngineBusy
from tests.clocks import store_s
from tests.torture import values
from tests.torture.ledger import COUNTERS, LOCKS, CounterClaims
from tests.torture.plan import Plan
from tests.torture.stores import Store, Stores, at_ms
from tests.torture.values import Violation

Operation = Callable[[], None]

GENERATION_SHIFT = 32  # a counter that may be evicted starts again at another base
LOCK_TTL_MS = 60_000
LOCK_TRUSTED_S = 30  # a lock may be lost in a machine that stands still for longer


class Owner:
    """Owns some keys of both stores; reads everybody's."""

    def __init__(self, plan: Plan, stores: Stores, owner: int, random_: random.Random) -> None:
        self.plan, self.stores, self.owner, self.random = plan, stores, owner, random_
        self.ledger = plan.ledger
        self.generations: dict[int, tuple[int, int, set[int]]] = {}

    def operations(self, role: str) -> tuple[list[Operation], list[float]]:
        """What this role does, and how often."""
        weights = {name: by_role.get(role, 0) for name, by_role in WEIGHTS.items()}
        return [getattr(self, name) for name in weights], list(weights.values())

    def work(self, role: str, batch: int = 50) -> None:
        """Does some operations."""
        operations, weights = self.operations(role)
        for operation in self.random.choices(operations, weights, k=batch):
            self.step(operation)

    def step(self, operation: Operation) -> None:
        try:
            operation()
        except EngineBusy:
            self.ledger.busy[self.owner] += 1
        self.ledger.operations[self.owner] += 1

    # Which key, and what to put under it.

    def store(self) -> Store:
        return self.random.choice((self.stores.crowded, self.stores.roomy))

    def own(self, store: Store) -> int:
        return self.owner * store.keys_per_owner + self.random.randrange(store.keys_per_owner)

    def any(self, store: Store) -> int:
        return self.random.randrange(store.keys)

    def filler_bytes(self, store: Store) -> int:
        top = self.random.choice((64, 256, 2000) if not store.evicts else (64, 300, 4000, 16000))
        return self.random.randrange(top)

    def timeout(self, store: Store) -> float | None:
        if not store.evicts:
            return None
        return self.random.choice((None, 3600, 10, 0.05, 0.002))

    def value(self, store: Store, at: int, sequence: int) -> bytes:
        return values.make(store.key(at), self.owner, sequence, self.filler_bytes(store))

    # Own keys.

    def stored(self, store: Store, at: int, sequence: int, done: bool | None) -> None:
        """Claims what a write has come to; None: it may have been refused."""
        if done:
            store.claims.stored(at, sequence, hold=not store.evicts)
        else:
            self.ledger.refused[self.owner] += done is False
            store.claims.gone(at, sequence if done is False else sequence - 1)

    def set(self) -> None:
        store = self.store()
        at, timeout = self.own(store), self.timeout(store)
        sequence = store.claims.begin(at)
        done = store.face(at).set(store.key(at), self.value(store, at, sequence), timeout)
        self.stored(store, at, sequence, done)

    def add(self) -> None:
        store = self.store()
        at = self.own(store)
        sequence = store.claims.begin(at)
        value = self.value(store, at, sequence)
        if store.face(at).add(store.key(at), value, self.timeout(store)):
            self.stored(store, at, sequence, True)

    def delete(self) -> None:
        store = self.store()
        at = self.own(store)
        sequence = store.claims.begin(at)
        store.face(at).delete(store.key(at))
        store.claims.gone(at, sequence)

    def expire(self) -> None:
        store, timeout_s = self.stores.crowded, 0.005
        at = self.own(store)
        sequence = store.claims.begin(at)
        store.face(at).set(store.key(at), self.value(store, at, sequence), timeout_s)
        self.stored(store, at, sequence, None)
        over_at = time.time() + timeout_s + 0.001  # it is rounded up
        while store_s() < over_at:
            store.read(at)
        if store.face(at).get(store.key(at)) is not None:
            raise Violation(f"{store.key(at)}: expired, and still there")
        store.claims.gone(at, sequence)

    def touch(self) -> None:
        store = self.store()
        at = self.own(store)
        held, store.claims.held[at] = store.claims.held[at], 0
        if store.face(at).touch(store.key(at), self.timeout(store)):
            store.claims.held[at] = held

    def cas(self) -> None:
        store = self.store()
        at = self.own(store) & ~1  # an even one: the engine's face
        key = store.key(at).encode()
        before = store.claims.look(at)
        found = store.engine.gets(key)
        store.judge(at, before, found and found[0])
        if not found:
            return
        sequence = store.claims.begin(at)
        value = self.value(store, at, sequence)
        if store.engine.cas(key, value, found[1], at_ms(self.timeout(store))):
            self.stored(store, at, sequence, True)

    def get_and_set(self) -> None:
        store = self.store()
        at = self.own(store) & ~1
        before = store.claims.look(at)
        sequence = store.claims.begin(at)
        value = self.value(store, at, sequence)
        old = store.engine.get_and_set(store.key(at).encode(), value, at_ms(self.timeout(store)))
        if old is not None:
            store.judge(at, before, old)
        self.stored(store, at, sequence, None)

    def set_many(self) -> None:
        store = self.store()
        first = self.owner * store.keys_per_owner
        odd = self.random.randrange(2)
        ats = range(first + odd, first + store.keys_per_owner, 2)
        self._set_many(store, self.random.sample(ats, min(len(ats), 8)), None)

    def set_again(self) -> None:
        """The same writes over and over: nearly all of this is under the lock, for the killer."""
        store = self.store()
        first = self.owner * store.keys_per_owner + self.random.randrange(2)
        largest = min(store.engine.max_item_bytes - 300, 90_000) if store.evicts else 2000
        size = self.random.randrange(largest)
        self._set_many(store, range(first, first + 10, 2), size, times=20)

    def _set_many(self, store: Store, ats: Sequence[int], size: int | None, times: int = 1) -> None:
        sequences = {at: store.claims.begin(at) for at in ats}
        items = {
            store.key(at): values.make(
                store.key(at), self.owner, sequences[at], size or self.filler_bytes(store)
            )
            for at in ats
        }
        for _ in range(times):
            refused = store.face(ats[0]).set_many(items, self.timeout(store))
            if refused:
                break
        for at in ats:
            self.stored(store, at, sequences[at], store.key(at) not in refused)

    # Everybody's keys.

    def get(self) -> None:
        store = self.store()
        for _ in range(10):
            store.read(self.any(store))

    def get_many(self) -> None:
        store = self.store()
        odd = self.random.randrange(2)
        store.read_many([self.any(store) & ~1 | odd for _ in range(20)])

    def scan(self) -> None:
        """What is there from the first call to the last is shown exactly once."""
        store = self.random.choice((self.stores.roomy,) * 9 + (self.stores.crowded,))
        before = store.claims.held.tolist()
        times = Counter(self._shown(store))
        after = store.claims.held.tolist()
        for at, held in enumerate(before):
            if held and after[at] == held and times[at] != 1:
                raise Violation(f"{store.key(at)}: held; a scan showed it {times[at]} times")

    def _shown(self, store: Store) -> list[int]:
        shown, cursor = [], 0
        while True:
            cursor, items = store.engine.scan(cursor, 500)
            for raw_key, size, *_ in items:
                name, dash, _ = raw_key.decode().removeprefix(":1:").partition("-")
                if dash:
                    at = int(name.removeprefix(store.name))
                    if not raw_key.decode().endswith(store.key(at)) or not size:
                        raise Violation(f"a scan showed {raw_key!r} of {size} bytes")
                    shown.append(at)
            if not cursor:
                return shown

    def clear(self) -> None:
        """Only ever one owner clears, or the claims would race."""
        if self.owner == 0:
            claims = self.stores.crowded.claims
            floors = claims.floor.tolist()
            self.stores.crowded.engine.clear()
            claims.cleared_up_to(floors)

    def cull(self) -> None:
        self.stores.crowded.engine.cull(self.random.randrange(20))

    # Counters.

    def incr(self) -> None:
        """Nothing evicts these: every increment must be there at the end."""
        for _ in range(20):
            counter = self.random.randrange(COUNTERS)
            self._counted(self.ledger.incr, counter, self._incr)

    def _incr(self, counter: int) -> bool:
        if self.stores.roomy.engine.incr(counter_key("incr", counter), 1) is None:
            raise Violation(f"counter {counter}: lost, and has room")
        return True

    def cas_counter(self) -> None:
        counter = self.random.randrange(COUNTERS)
        self._counted(self.ledger.cas, counter, self._cas)

    def _cas(self, counter: int) -> bool:
        key = counter_key("cas", counter)
        found = self.stores.roomy.engine.gets(key)
        if found is None:
            raise Violation(f"cas counter {counter}: lost, and has room")
        total = values.read(key.decode(), found[0]).sequence
        value = values.make(key.decode(), 0, total + 1, self.filler_bytes(self.stores.roomy))
        return self.stores.roomy.engine.cas(key, value, found[1], None)

    def _counted(self, claims: CounterClaims, counter: int, add_one: Callable[[int], bool]) -> None:
        claims.begin(self.owner, counter)
        try:
            done = add_one(counter)
        except EngineBusy:
            claims.not_done(self.owner, counter)
            raise
        (claims.done if done else claims.not_done)(self.owner, counter)

    def look_at_counters(self) -> None:
        counter = self.random.randrange(COUNTERS)
        engine = self.stores.roomy.engine
        for kind, claims in (("incr", self.ledger.incr), ("cas", self.ledger.cas)):
            least = claims.least(counter)
            total = read_counter(engine, kind, counter)
            if total is None or not least <= total <= claims.most(counter):
                most = claims.most(counter)
                raise Violation(f"{kind} counter {counter}: {total}, not {least} to {most}")

    def incr_evicted(self) -> None:
        """A counter that may be evicted never counts backwards, nor returns from the dead."""
        counter = self.random.randrange(COUNTERS)
        key = counter_key("crowded", counter)
        total = self.stores.crowded.engine.incr(key, 1)
        if total is None:
            self.ledger.bases[self.owner] += 1
            base = self.owner << 20 | self.ledger.bases[self.owner]
            self.stores.crowded.engine.add(key, b"%d" % (base << GENERATION_SHIFT), None)
            return
        generation = total >> GENERATION_SHIFT
        current, last, dead = self.generations.get(counter, (generation, 0, set()))
        if generation in dead or (generation == current and total <= last):
            raise Violation(f"crowded counter {counter}: {total} after {last}, dead: {dead}")
        if generation != current:
            dead.add(current)
        self.generations[counter] = (generation, total, dead)

    # Named locks.

    def lock(self) -> None:
        """One holder at a time, and each with a larger token than the one before."""
        lock = self.random.randrange(LOCKS)
        engine, name = self.stores.roomy.engine, b"lock%d" % lock
        started_s = time.monotonic()
        token = engine.lock_acquire(name, LOCK_TTL_MS)
        if token is None:
            return
        if token <= self.ledger.last_token[lock]:
            raise Violation(f"lock {lock}: token {token} after {self.ledger.last_token[lock]}")
        self.ledger.last_token[lock] = self.ledger.inside[lock] = token
        self.stores.roomy.read(self.any(self.stores.roomy))
        alone = self.ledger.inside[lock] == token
        released = self._release(name, token)
        if time.monotonic() - started_s < LOCK_TRUSTED_S and not (alone and released):
            raise Violation(f"lock {lock}: token {token} was not alone, or its lock was lost")

    def _release(self, name: bytes, token: int) -> bool:
        while True:
            try:
                return self.stores.roomy.engine.lock_release(name, token)
            except EngineBusy:
                continue


def counter_key(kind: str, counter: int) -> bytes:
    return f"{kind}{counter}".encode()


def read_counter(engine: object, kind: str, counter: int) -> int | None:
    key = counter_key(kind, counter)
    for _ in range(3):  # a read may give up when the record keeps moving under it
        raw = engine.get(key)  # type: ignore[attr-defined]
        if raw is not None:
            return int(raw) if kind == "incr" else values.read(key.decode(), raw).sequence
    return None


WEIGHTS: dict[str, dict[str, float]] = {
    "set": {"mixed": 20, "threads": 20, "checker": 2},
    "add": {"mixed": 5, "threads": 5, "checker": 1},
    "delete": {"mixed": 5, "threads": 5, "checker": 1},
    "touch": {"mixed": 5, "threads": 5, "checker": 1},
    "expire": {"mixed": 0.1, "threads": 0.1, "checker": 0.2},
    "cas": {"mixed": 5, "threads": 5, "checker": 1},
    "get_and_set": {"mixed": 5, "threads": 5},
    "set_many": {"mixed": 2, "threads": 2, "writer": 1},
    "set_again": {"writer": 6},
    "get": {"mixed": 20, "threads": 20, "checker": 50},
    "get_many": {"mixed": 5, "threads": 5, "checker": 10},
    "scan": {"mixed": 0.5, "threads": 0.5, "checker": 0.5},
    "clear": {"mixed": 0.05},
    "cull": {"mixed": 0.2},
    "incr": {"mixed": 2, "threads": 2, "counter": 10, "checker": 1},
    "cas_counter": {"mixed": 2, "counter": 10},
    "look_at_counters": {"mixed": 1, "counter": 2, "checker": 5},
    "incr_evicted": {"mixed": 5, "counter": 10},
    "lock": {"mixed": 2, "threads": 2},
}
