"""What an owner of keys does over Redis, and how he judges what he reads."""

from __future__ import annotations

import os
import random
import time
from typing import Any

from nearcache.errors import EngineUnavailable, LockLost
from tests.torture import values
from tests.torture.over_redis.plan import KEYS, KINDS, LOCKS, RedisPlan
from tests.torture.values import Violation

LOCK_S = 5.0
FILLERS = (10, 10, 300, 300, 5000, 60_000)


class Hit(Exception):
    """What callers are interrupted by."""


class Owner:
    """Writes his own keys, reads everybody's. ``cache`` has the plain methods of a Django cache."""

    def __init__(self, plan: RedisPlan, cache: Any, number: int, rng: random.Random) -> None:
        self.plan, self.cache, self.number, self.random = plan, cache, number, rng
        self.ledger = plan.ledger
        self.claims = plan.ledger.keys
        for at in range(number * KEYS, (number + 1) * KEYS):
            if not self.claims.held[at]:
                self.retire(at)  # who had it before may have been killed in a write
        self.new_counter()

    def step(self) -> None:
        """One operation. What may fail has failed when it returns; a fault is raised."""
        operation = self.random.choices(OPERATIONS, WEIGHTS)[0]
        try:
            operation(self)
        except (EngineUnavailable, LockLost, Hit) as error:
            self.meet("interrupted" if isinstance(error, Hit) else type(error).__name__)
        self.ledger.operations[self.number] += 1

    def meet(self, kind: str) -> None:
        self.ledger.met[self.number * len(KINDS) + KINDS.index(kind)] += 1

    # Keys.

    def name(self, at: int) -> str:
        return f"{at}:{self.ledger.generation[at]}"

    def own(self) -> int:
        return self.number * KEYS + self.random.randrange(KEYS)

    def any(self) -> int:
        return self.random.randrange(self.plan.owners * KEYS)

    def retire(self, at: int) -> None:
        """Goes on under a new name; nothing is claimed of it."""
        self.claims.held[at] = 0
        self.ledger.generation[at] += 1

    def begin(self, at: int) -> tuple[str, int]:
        """The name to write to, and the number of the write."""
        epoch = self.ledger.epoch[0]
        if self.ledger.epoch_of[at] != epoch:
            self.retire(at)
            self.ledger.epoch_of[at] = epoch
        return self.name(at), self.claims.begin(at)

    def made(self, at: int, name: str, sequence: int) -> bytes:
        return values.make(name, at // KEYS, sequence, self.random.choice(FILLERS))

    def set(self) -> None:
        at = self.own()
        name, sequence = self.begin(at)
        try:
            self.cache.set(name, self.made(at, name, sequence), None)
            self.claims.stored(at, sequence, hold=True)
        except BaseException:
            self.retire(at)
            raise

    def set_many(self) -> None:
        chosen = {self.own() for _ in range(self.random.randint(2, 6))}
        begun = {at: self.begin(at) for at in chosen}
        try:
            self.cache.set_many(
                {name: self.made(at, name, number) for at, (name, number) in begun.items()}, None
            )
            for at, (_, sequence) in begun.items():
                self.claims.stored(at, sequence, hold=True)
        except BaseException:
            for at in chosen:
                self.retire(at)
            raise

    def delete(self) -> None:
        at = self.own()
        name, sequence = self.begin(at)
        try:
            self.cache.delete(name)
            self.claims.gone(at, sequence)
        except BaseException:
            self.retire(at)
            raise

    def add(self) -> None:
        at = self.own()
        held = self.claims.held[at]
        name, sequence = self.begin(at)
        epoch = self.ledger.epoch[0]
        if self.claims.held[at] != held:
            held = 0
        try:
            if self.cache.add(name, self.made(at, name, sequence), None):
                self.claims.stored(at, sequence, hold=True)
            else:
                self.retire(at)
        except BaseException:
            self.retire(at)
            raise
        if held and self.claims.held[at] and self.settled(at, epoch):
            raise Violation(f"{name}: added, though {held} was there")

    def get(self) -> None:
        self.read([self.any()], lambda names: {names[0]: self.cache.get(names[0])})

    def get_own(self) -> None:
        self.read([self.own()], lambda names: {names[0]: self.cache.get(names[0])})

    def get_many(self) -> None:
        ats = list({self.any() for _ in range(self.random.randint(2, 30))})
        self.read(ats, self.cache.get_many)

    def read(self, ats: list[int], ask: Any) -> None:
        names = [self.name(at) for at in ats]
        before = [self.claims.look(at) for at in ats]
        epoch = self.ledger.epoch[0]
        found = ask(names)
        if foreign := set(found) - set(names):
            raise Violation(f"asked for {names}, got {foreign}")
        for at, name, claim in zip(ats, names, before, strict=True):
            self.judge(at, name, claim, found.get(name), epoch)

    def settled(self, at: int, epoch: int) -> bool:
        """True if nothing can have been lost since the claim was made."""
        return epoch % 2 == 0 and self.ledger.epoch_of[at] == epoch == self.ledger.epoch[0]

    def judge(self, at: int, name: str, before: Any, value: bytes | None, epoch: int) -> None:
        if value is None:
            kept = before.held and self.claims.held[at] == before.held
            if kept and self.settled(at, epoch) and name == self.name(at):
                raise Violation(f"{name}: lost: {before.held} was acknowledged")
            return
        seen = values.read(name, value)
        if seen.owner != at // KEYS:
            raise Violation(f"{name}: of owner {seen.owner}")
        fault = self.claims.fault(at, before, seen.sequence)
        if fault and self.settled(at, epoch) and name == self.name(at):
            raise Violation(f"{name}: {fault}")

    # Counters: each owner increments his own.

    def new_counter(self) -> None:
        me = self.number
        self.ledger.counter[me] += 1
        self.ledger.begun[me] = self.ledger.acknowledged[me] = 0

    def incr(self) -> None:
        me, epoch = self.number, self.ledger.epoch[0]
        if not self.ledger.begun[me] or self.ledger.counter_epoch[me] != epoch:
            self.new_counter()
            self.ledger.counter_epoch[me] = epoch
        name = f"count:{me}:{self.ledger.counter[me]}"
        if not self.ledger.begun[me]:
            self.cache.set(name, 0, None)
        self.ledger.begun[me] += 1
        try:
            total = self.cache.incr(name)
        except ValueError:
            if epoch % 2 == 0 and self.ledger.epoch[0] == epoch:
                raise Violation(f"{name}: lost") from None
            return
        self.ledger.acknowledged[me] += 1
        possible = self.ledger.acknowledged[me] <= total <= self.ledger.begun[me]
        if not possible and epoch % 2 == 0 and self.ledger.epoch[0] == epoch:
            least, most = self.ledger.acknowledged[me], self.ledger.begun[me]
            raise Violation(f"{name}: {total}, not between {least} and {most}")

    # What all do together.

    def get_or_set(self) -> None:
        name = f"made:{self.random.randrange(5)}:{time.time_ns() // 200_000_000}"
        value = self.cache.get_or_set(name, lambda: values.make(name, self.number, 1, 300), 5)
        values.read(name, value)

    def lock(self) -> None:
        number, epoch = self.random.randrange(LOCKS), self.ledger.epoch[0]
        lock = self.cache.lock(f"lock{number}", timeout=LOCK_S)
        mine = self.random.getrandbits(40) << 22 | os.getpid()
        if not lock.acquire(blocking=False):
            return
        try:
            self.ledger.inside[number] = mine
            self.get()
            alone = self.ledger.inside[number] == mine
            # Whoever came in afterwards came when the time of ours was over, or it is a fault.
            calm = epoch % 2 == 0 and self.ledger.epoch[0] == epoch
            if not alone and not lock.lost and calm:
                raise Violation(f"lock {number}: somebody else is in it")
        finally:
            lock.release()


WEIGHED = {
    Owner.get: 30,
    Owner.get_own: 15,
    Owner.get_many: 8,
    Owner.set: 20,
    Owner.set_many: 5,
    Owner.delete: 5,
    Owner.add: 4,
    Owner.incr: 8,
    Owner.get_or_set: 5,
    Owner.lock: 4,
}
OPERATIONS, WEIGHTS = list(WEIGHED), list(WEIGHED.values())
