"""Clients with one fault each, for the ``objects`` experiment to notice."""

from __future__ import annotations

from typing import Any

from nearcache.lab.experiments.objects.arm import ObjectsArm
from nearcache.lab.experiments.objects.boxes import Box, PymemcacheBox


class SilentAfterTheCanary(PymemcacheBox):
    """Sets reach the server at first; after the canary they are only said to."""

    sets = 0

    def set(self, key: str, value: Any) -> None:
        self.sets += 1
        if self.sets <= 2:
            super().set(key, value)


class Remembers(PymemcacheBox):
    """Answers from its own copy of what was set first, whatever was set since."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.kept: dict[str, Any] = {}

    def set(self, key: str, value: Any) -> None:
        super().set(key, value)
        self.kept.setdefault(key, value)

    def get(self, key: str) -> Any:
        found = super().get(key)
        return self.kept[key] if found is not None and not key.endswith("canary") else found


class ForgetsToDelete(PymemcacheBox):
    """Deletes what the canary set, and nothing afterwards."""

    def delete(self, key: str) -> None:
        if key.endswith("canary"):
            super().delete(key)


FAULTS = {fault.__name__: fault for fault in (SilentAfterTheCanary, Remembers, ForgetsToDelete)}


class FaultyArm(ObjectsArm):
    """Has the fault that its options name, or none."""

    def make_box(self) -> Box:
        fault = FAULTS.get(self.candidate.options.get("fault", ""))
        return fault(self.port) if fault else super().make_box()
