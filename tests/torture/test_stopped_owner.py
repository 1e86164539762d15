"""The owner of a shard's lock is stopped inside: what the others can still do, and how fast.

In life this is a debugger, a frozen container, or a machine with too few processors.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from subprocess import Popen
from typing import Any

import pytest

from nearcache.backends import SharedMemoryCache
from nearcache.errors import EngineBusy
from tests.torture.conftest import SIZE, Start, line

BOUND_S = 0.3  # while the owner is stopped
SLACK_S = 10.0  # of a crowded machine; the owner is stopped for good
WRITER = """
engine = open_cache().engine
value = bytes(engine.max_item_bytes - 100)
print("writes", flush=True)
while True:
    engine.set(b"large", value, None)
"""


@pytest.fixture
def engine(cache: Any) -> Any:
    for name in ("kept", "deleted", "changed"):
        cache.engine.set(name.encode(), name.encode(), None)
    cache.engine.set(b"counter", b"7", None)
    cache.set("page", "old", None)
    cache.set("visits", 1, None)
    return cache.engine


@pytest.fixture
def owner(engine: Any, start: Start) -> Popen[str]:
    """A process that is stopped while it holds the lock of the only shard."""
    process = start(WRITER)
    assert line(process) == "writes"
    give_up_at = time.monotonic() + 60
    while not stopped_inside(process, engine):
        assert time.monotonic() < give_up_at, "it was never stopped inside"
    return process


def stopped_inside(process: Popen[str], engine: Any) -> bool:
    os.kill(process.pid, signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    if not engine.set(b"probe", b"", None):
        return True
    os.kill(process.pid, signal.SIGCONT)
    return False


def timed(work: Callable[[], Any], bound_s: float) -> Any:
    """The result of ``work``, which must come within the bound."""
    started_s = time.monotonic()
    try:
        return work()
    finally:
        assert time.monotonic() - started_s < bound_s + SLACK_S


@pytest.mark.usefixtures("owner")
def test_reads_go_on(engine: Any, cache: Any) -> None:
    assert engine.get(b"kept") == b"kept"
    assert engine.get_many([b"kept", b"absent"]) == [b"kept", None]
    assert b"kept" in {key for key, *_ in engine.scan(0, 1000)[1]}
    assert cache.get("absent") is None
    assert engine.stats()["items"]


@pytest.mark.usefixtures("owner")
def test_deletes_go_on(engine: Any) -> None:
    assert engine.delete(b"deleted")
    assert engine.get(b"deleted") is None
    assert not engine.delete(b"deleted")


@pytest.mark.usefixtures("owner")
@pytest.mark.parametrize("operation", ["set", "touch"])
def test_a_write_is_refused_in_time_and_its_old_value_is_gone(engine: Any, operation: str) -> None:
    work = {
        "set": lambda: engine.set(b"changed", b"new", None),
        "touch": lambda: engine.touch(b"changed", None),
    }[operation]
    before = engine.stats()["dropped_busy"]
    assert timed(work, BOUND_S) is False
    assert engine.get(b"changed") is None
    assert engine.stats()["dropped_busy"] == before + 1


@pytest.mark.usefixtures("owner")
def test_an_add_is_refused_in_time_and_changes_nothing(engine: Any) -> None:
    assert timed(lambda: engine.add(b"kept", b"new", None), BOUND_S) is False
    assert timed(lambda: engine.add(b"absent", b"new", None), BOUND_S) is False
    assert engine.get_many([b"kept", b"absent"]) == [b"kept", None]


@pytest.mark.usefixtures("owner")
@pytest.mark.parametrize("operation", ["incr", "cas", "get_and_set", "clear"])
def test_what_must_not_be_dropped_says_busy_in_time(engine: Any, operation: str) -> None:
    work = {
        "incr": lambda: engine.incr(b"counter", 1),
        "cas": lambda: engine.cas(b"kept", b"new", engine.gets(b"kept")[1], None),
        "get_and_set": lambda: engine.get_and_set(b"kept", b"new", None),
        "clear": engine.clear,
    }[operation]
    with pytest.raises(EngineBusy, match="lock"):
        timed(work, BOUND_S)
    assert engine.get(b"counter") == b"7"
    assert engine.get(b"kept") == b"kept"


@pytest.mark.usefixtures("owner")
@pytest.mark.parametrize("operation", ["set", "add", "touch", "incr"])
def test_django_code_is_told_and_nothing_has_changed(
    engine: Any, cache: Any, operation: str
) -> None:
    work = {
        "set": lambda: cache.set("page", "new"),
        "add": lambda: cache.add("absent", "new"),
        "touch": lambda: cache.touch("page", 1),
        "incr": lambda: cache.incr("visits"),
    }[operation]
    before = engine.stats()["dropped_busy"]
    with pytest.raises(EngineBusy, match="nothing was changed"):
        timed(work, BOUND_S)
    assert cache.get_many(["page", "absent", "visits"]) == {"page": "old", "visits": 1}
    assert cache.ttl("page") is None
    assert engine.stats()["dropped_busy"] == before + (operation != "incr")


@pytest.mark.usefixtures("owner")
def test_set_many_returns_what_it_did_not_store_and_no_old_value_is_left(cache: Any) -> None:
    refused = timed(lambda: cache.set_many({"page": "new", "more": "new"}), 2 * BOUND_S)
    assert refused == ["page", "more"]
    assert cache.get("page") is None


@pytest.mark.usefixtures("owner")
def test_where_busy_is_forgiven_django_code_sees_absence_and_not_an_old_value(
    location: str, owner: Popen[str]
) -> None:
    cache = SharedMemoryCache(location, {"OPTIONS": {"size": SIZE, "on_error": "miss"}})
    timed(lambda: cache.set("page", "new"), BOUND_S)
    assert cache.get("page") is None
    assert timed(lambda: cache.add("absent", "new"), BOUND_S) is False
    assert timed(lambda: cache.touch("visits"), BOUND_S) is False
    assert cache.get("visits") is None
    assert timed(cache.clear, BOUND_S) is None
    assert cache.stats()["forgiven"] == 1
    assert cache.stats()["dropped_busy"] >= 3


@pytest.mark.usefixtures("owner")
def test_a_signal_ends_a_wait(engine: Any) -> None:
    class Alarm(Exception):
        pass

    def ring(*_: object) -> None:
        raise Alarm

    def set_until_it_rings() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        while not engine.set(b"changed", b"new", None):
            pass

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with pytest.raises(Alarm):
            timed(set_until_it_rings, BOUND_S)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("owner")
def test_a_look_at_everything_says_what_it_could_not_look_at(engine: Any) -> None:
    assert timed(engine.check, BOUND_S) == ["shard 0: its lock is busy; not checked"]


@pytest.mark.parametrize("end", [signal.SIGCONT, signal.SIGKILL], ids=["goes on", "is killed"])
def test_all_is_as_before_when_the_owner(
    engine: Any, owner: Popen[str], end: signal.Signals
) -> None:
    engine.set(b"changed", b"refused", None)
    os.kill(owner.pid, end)
    give_up_at = time.monotonic() + 60
    while not engine.set(b"changed", b"new", None):
        assert time.monotonic() < give_up_at
    assert engine.get(b"changed") == b"new"
    assert incremented(engine, give_up_at) == 8
    owner.kill()
    owner.wait()
    assert engine.check() == []


def incremented(engine: Any, give_up_at: float) -> Any:
    while True:
        try:
            return engine.incr(b"counter", 1)
        except EngineBusy:  # the machine does not run an owner that goes on
            assert time.monotonic() < give_up_at
