"""Stores with one fault each, for the ``stores`` experiment to notice."""

from __future__ import annotations

from typing import Any

from nearcache.lab.experiments.stores.arm import StoresArm
from nearcache.lab.experiments.stores.redis import RedisStore


class Damaging(RedisStore):
    """One field of one match comes back changed; the seal is right."""

    def read(self, identity: int) -> Any:
        value = super().read(identity)
        value["matches"][0]["SalesRank"] = -1
        return value


class Swapping(RedisStore):
    """Answers every question with the value that was written first."""

    def read(self, identity: int) -> Any:
        return super().read(int(self.written[0].rpartition(":")[2]))


class Dropping(RedisStore):
    """Keeps what it is told in the process, and only there."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.kept: dict[int, Any] = {}

    def write(self, identity: int, value: Any) -> None:
        self.kept[identity] = value

    def read(self, identity: int) -> Any:
        return self.kept[identity]


class Clinging(RedisStore):
    """Cannot be emptied."""

    def empty(self) -> None:
        pass


FAULTS = {fault.__name__: fault for fault in (Damaging, Swapping, Dropping, Clinging)}


class FaultyArm(StoresArm):
    """Has the fault that its options name, or none."""

    def make_store(self) -> Any:
        fault = FAULTS.get(self.candidate.options.get("fault", ""))
        if fault is None:
            return super().make_store()
        return fault(self.setup.places["redis_socket"], self.setup.namespace, "")
