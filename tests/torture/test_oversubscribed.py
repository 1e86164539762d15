"""No write is refused because its shard's owner lost its processor: it lives, and goes on."""

from __future__ import annotations

from tests.torture.oversubscribed import MIB, load


def test_sixteen_busy_writers_to_a_processor_lose_nothing(location: str) -> None:
    found = load(location, MIB, processes=32, sets=20_000)
    assert found["waits"] > 0, "nobody was in anybody's way"
    assert (found["refused"], found["dropped_busy"]) == (0, 0)
