"""Backends that are recorded, every call of them: what wraps a cache must be as it is."""

from __future__ import annotations

from typing import Any

from nearcache.recording.cache import RecordingCache
from tests.django.through_async import ThroughAsync


class RecordedMemory(RecordingCache):
    def __init__(self, location: str, params: dict[str, Any]) -> None:
        entry = {**params, "BACKEND": "tests.backends.classes.MemoryCache", "LOCATION": location}
        super().__init__(f"{location}.trace", {"OPTIONS": {"of": entry, "share": 1}})


class RecordedMemoryThroughAsync(ThroughAsync):
    inner_class = "tests.django.through_recording.RecordedMemory"
