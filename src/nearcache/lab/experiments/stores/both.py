"""Two stores at once, as the live application of seed 002 had them.

Every value goes into both and is read from both. The article always asked PostgreSQL first;
here a coin decides, so that neither always finds the caches of the processor warm. What
each of the two takes is kept apart.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

from nearcache.lab.experiments.stores.contract import Durability, Store

clock = time.perf_counter_ns


class Disagreement(Exception):
    """The two stores hold different values under one key."""


class BothStore(Store):
    def __init__(self, stores: Mapping[str, Store], rng: random.Random) -> None:
        self.stores = dict(stores)
        self.order = list(stores)
        self.rng = rng
        self._spent = dict.fromkeys(stores, 0)
        self._calls = 0

    def create(self) -> None:
        for store in self.stores.values():
            store.create()

    def write(self, identity: int, value: Any) -> None:
        self._each(lambda store: store.write(identity, value))

    def read(self, identity: int) -> Any:
        return _agreed(self._each(lambda store: store.read(identity)))

    def read_elsewhere(self, identity: int) -> Any:
        found = {name: store.read_elsewhere(identity) for name, store in self.stores.items()}
        return _agreed(found)

    def disconnect(self) -> None:
        for store in self.stores.values():
            store.disconnect()

    def empty(self) -> None:
        for store in self.stores.values():
            store.empty()

    def durability(self, write: Callable[[], None]) -> Durability:
        found = {name: store.durability(write) for name, store in self.stores.items()}
        return Durability(
            promise="; ".join(f"{name}: {each.promise}" for name, each in found.items()),
            settings="; ".join(f"{name}: {each.settings}" for name, each in found.items()),
            evidence="; ".join(f"{name}: {each.evidence}" for name, each in found.items()),
        )

    def proof(self) -> Mapping[str, str]:
        return {
            f"{name} {what}": value
            for name, store in self.stores.items()
            for what, value in store.proof().items()
        }

    def parts(self) -> dict[str, float]:
        means = {name: spent / self._calls for name, spent in self._spent.items() if self._calls}
        self._spent = dict.fromkeys(self.stores, 0)
        self._calls = 0
        return means

    def _each(self, call: Callable[[Store], Any]) -> dict[str, Any]:
        self.rng.shuffle(self.order)
        self._calls += 1
        found = {}
        for name in self.order:
            start = clock()
            found[name] = call(self.stores[name])
            self._spent[name] += clock() - start
        return found


def _agreed(found: Mapping[str, Any]) -> Any:
    (one, value), *others = found.items()
    for name, other in others:
        if other != value:
            raise Disagreement(f"{one} and {name} hold different values under one key")
    return value
