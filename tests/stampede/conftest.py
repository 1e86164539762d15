"""A cache, its engine and its protection on one clock that the tests move."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nearcache.base.clock import FakeClock
from nearcache.engines.memory import MemoryEngine
from tests.backends.classes import MemoryCache
from tests.stampede.function import Function


class TimedCache(MemoryCache):
    """A cache whose engine, codec and protection read one fake clock."""

    clock: Any
    chance: Any
    store: MemoryEngine

    def open_engine(self) -> Any:
        return self.store


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def make(clock: FakeClock) -> Callable[..., Any]:
    engine = MemoryEngine(clock, max_item_bytes=100_000)
    members = {"clock": clock, "store": engine, "chance": staticmethod(lambda: 0.5)}
    kind = type("Timed", (TimedCache,), members)

    def made(**options: Any) -> Any:
        return kind("stampede", {"OPTIONS": options})

    return made


@pytest.fixture
def cache(make: Callable[..., Any]) -> Any:
    return make()


@pytest.fixture
def function(clock: FakeClock) -> Function:
    return Function(clock)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Refreshes behind a request run before it returns; append False to refuse them."""
    room = [True]

    def here(work: Callable[[], None]) -> bool:
        if room[-1]:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        return room[-1]

    monkeypatch.setattr("nearcache.django_cache.get_or_set.in_thread", here)
    return room
