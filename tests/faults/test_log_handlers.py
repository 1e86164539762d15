"""A log handler may use the cache, also for what is said while that very cache is opened."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nearcache.backends import RedisCache, SharedMemoryCache
from nearcache.base.per_process import once
from nearcache.engines import shm
from nearcache.errors import EngineUnavailable
from tests.redis.servers import Server, running, wait_for


class CountsInTheCache(logging.Handler):
    """As rate limits of log messages do."""

    def __init__(self, cache: Any) -> None:
        super().__init__()
        self.cache = cache

    def emit(self, record: logging.LogRecord) -> None:
        self.cache.get_or_set("messages", lambda: 0)
        self.cache.incr("messages")


@pytest.fixture
def handled() -> Iterator[Callable[[Any], None]]:
    log, added = logging.getLogger("nearcache"), []

    def handle(cache: Any) -> None:
        added.append(CountsInTheCache(cache))
        log.addHandler(added[-1])

    yield handle
    for handler in added:
        log.removeHandler(handler)


@pytest.fixture
def server(redis_directory: Path) -> Iterator[Server]:
    with running(redis_directory) as server:
        yield server


def within_a_minute(work: Callable[[], Any]) -> Any:
    """What it returns; a deadlock is a failure, and no end of the run."""
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(work()), daemon=True)
    thread.start()
    thread.join(60)
    assert got, "it hangs"
    return got[0]


def test_what_is_said_while_a_store_is_opened(
    private_path: Path, handled: Callable[[Any], None]
) -> None:
    where = str(private_path / "cache")
    shm.open_store(shm.Home(where, size_bytes=4 << 20))
    # Of another size than the file that others use: the store has something to say.
    cache: Any = SharedMemoryCache(where, {"OPTIONS": {"size": "8MB"}})
    handled(cache)
    assert within_a_minute(lambda: cache.get("k", "miss")) == "miss"
    assert cache.get("messages") == 1


def test_what_is_said_of_a_note_that_cannot_be_written(
    private_path: Path, handled: Callable[[Any], None]
) -> None:
    where = str(private_path / "cache")
    Path(where + shm.OWNERS_SUFFIX).mkdir()
    cache: Any = SharedMemoryCache(where, {"OPTIONS": {"size": "4MB"}})
    handled(cache)
    assert within_a_minute(lambda: cache.get("k", "miss")) == "miss"
    assert cache.get("messages") == 1


def test_making_a_thing_may_come_back_for_it() -> None:
    key = object()

    def make() -> object:
        once(key, object)  # as a finalizer does, or a signal handler
        return object()

    assert within_a_minute(lambda: once(key, make)) is once(key, object)


def test_what_is_said_of_a_server_that_is_back(
    server: Server, handled: Callable[[Any], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Said while the line was led, the handler's own calls would wait for their limit."""
    caplog.set_level(logging.INFO, "nearcache.redis")
    options = {"breaker_failures": 1, "breaker_pause": 0.05, "read_timeout": 60}
    cache: Any = RedisCache(f"unix://{server.path}", {"OPTIONS": options})
    server.kill()
    with pytest.raises(EngineUnavailable):
        cache.get("k")
    server.start()
    server.wait_ready()
    handled(cache)

    def back() -> bool:
        try:
            return bool(cache.set("k", 1))
        except EngineUnavailable:
            return False

    began_s = time.monotonic()
    within_a_minute(lambda: wait_for(back) or True)
    assert time.monotonic() - began_s < 50
    assert "answers again" in caplog.text
    assert cache.get("messages") == 1
    cache.engine.topology.close()
