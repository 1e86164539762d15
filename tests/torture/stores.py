"""The two stores of a round as a worker uses them: half of the keys by the engine's
interface, half by Django's, on the same files.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

from nearcache.backends import SharedMemoryCache
from tests.torture import values
from tests.torture.ledger import Claim, KeyClaims
from tests.torture.plan import Plan
from tests.torture.values import Violation

LOOKS_BEFORE_LOST = 3  # a read may give up when the record keeps moving under it


class Face(Protocol):
    """One way to the store. Timeouts are in seconds; None: never."""

    def get(self, key: str) -> bytes | None: ...
    def set(self, key: str, value: bytes, timeout: float | None) -> bool | None:
        """None: it does not say whether it stored."""

    def add(self, key: str, value: bytes, timeout: float | None) -> bool: ...
    def delete(self, key: str) -> bool: ...
    def touch(self, key: str, timeout: float | None) -> bool: ...
    def get_many(self, keys: Sequence[str]) -> dict[str, bytes]: ...
    def set_many(self, items: dict[str, bytes], timeout: float | None) -> set[str]:
        """The keys that were refused."""


class EngineFace:
    def __init__(self, engine: Any) -> None:
        self.engine = engine

    def get(self, key: str) -> bytes | None:
        return self.engine.get(key.encode())

    def set(self, key: str, value: bytes, timeout: float | None) -> bool | None:
        return self.engine.set(key.encode(), value, at_ms(timeout))

    def add(self, key: str, value: bytes, timeout: float | None) -> bool:
        return self.engine.add(key.encode(), value, at_ms(timeout))

    def delete(self, key: str) -> bool:
        return self.engine.delete(key.encode())

    def touch(self, key: str, timeout: float | None) -> bool:
        return self.engine.touch(key.encode(), at_ms(timeout))

    def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        found = self.engine.get_many([key.encode() for key in keys])
        return {key: value for key, value in zip(keys, found, strict=True) if value is not None}

    def set_many(self, items: dict[str, bytes], timeout: float | None) -> set[str]:
        keys = list(items)
        raw = [(key.encode(), items[key]) for key in keys]
        return {keys[at] for at in self.engine.set_many(raw, at_ms(timeout))}


class DjangoFace:
    def __init__(self, cache: SharedMemoryCache) -> None:
        self.get = cache.get
        self.set = cache.set
        self.add = cache.add
        self.delete = cache.delete
        self.touch = cache.touch
        self.get_many = cache.get_many
        self.cache = cache

    def set_many(self, items: dict[str, bytes], timeout: float | None) -> set[str]:
        return set(self.cache.set_many(items, timeout))


class Store:
    """One file, the keys in it, and the claims about them."""

    def __init__(self, plan: Plan, name: str, keys_per_owner: int, claims: KeyClaims) -> None:
        options = {"OPTIONS": {"size": plan.size_bytes}}
        self.cache = SharedMemoryCache(str(plan.directory / name), options)
        self.engine: Any = self.cache.engine
        self.faces: tuple[Face, Face] = (EngineFace(self.engine), DjangoFace(self.cache))
        self.name, self.claims, self.keys_per_owner = name, claims, keys_per_owner
        self.keys = plan.owners * keys_per_owner
        self.evicts = name == "crowded"

    def key(self, at: int) -> str:
        """Short and long keys; what stands before the dash is the number."""
        return f"{self.name}{at}-" + "k" * (at % 7 * 30)

    def face(self, at: int) -> Face:
        return self.faces[at % 2]

    def read(self, at: int) -> None:
        """Reads a key and judges what comes."""
        before = self.claims.look(at)
        self.judge(at, before, self.face(at).get(self.key(at)))

    def read_many(self, ats: Sequence[int]) -> None:
        """Reads keys of one face at once and judges them all."""
        before = {at: self.claims.look(at) for at in ats}
        found = self.face(ats[0]).get_many([self.key(at) for at in ats])
        for at in ats:
            self.judge(at, before[at], found.get(self.key(at)))

    def judge(self, at: int, before: Claim, value: bytes | None) -> None:
        if value is None:
            return self._judge_absence(at, before)
        seen = values.read(self.key(at), value)
        fault = self.claims.fault(at, before, seen.sequence)
        if fault or seen.owner != at // self.keys_per_owner:
            raise Violation(f"{self.key(at)} of owner {seen.owner}: {fault or 'wrong owner'}")
        return None

    def _judge_absence(self, at: int, before: Claim) -> None:
        for _ in range(LOOKS_BEFORE_LOST):
            if not before.held or self.claims.held[at] != before.held:
                return
            if self.face(at).get(self.key(at)) is not None:
                return
        if self.claims.held[at] == before.held:
            raise Violation(f"{self.key(at)}: lost: {before.held} was acknowledged, and has room")


class Stores:
    """Both stores, opened."""

    def __init__(self, plan: Plan) -> None:
        ledger = plan.ledger
        self.crowded = Store(plan, "crowded", plan.crowded_keys, ledger.crowded)
        self.roomy = Store(plan, "roomy", plan.roomy_keys, ledger.roomy)


def at_ms(timeout: float | None) -> int | None:
    return None if timeout is None else int((time.time() + timeout) * 1000)
