"""Named locks over Redis: round trips, order, wake-ups."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from nearcache.coordination.locks import Lock
from nearcache.engines.redis.locks import locks as locks_module
from nearcache.engines.redis.locks.lock_scripts import OUTLIVES_MS, lock_key
from nearcache.engines.redis.locks.wake_ups import CHANNELS
from nearcache.errors import LockNotAcquired
from tests.redis.locks.one_name import (
    LOCK,
    NAME,
    TTL_MS,
    Eventually,
    hold,
    lock_of,
    nobody_asked_of_late,
    open_engine,
    run_out,
    waiters,
)
from tests.redis.servers import Server, quickest

# -- alone ---------------------------------------------------------------------------------------


def test_acquire_and_release_are_one_round_trip_each(engine: Any, admin: Any) -> None:
    with lock_of(engine):  # scripts are known and connections made from now on
        pass
    admin.config_resetstat()
    with lock_of(engine):
        pass
    calls = {name: stat["calls"] for name, stat in admin.info("commandstats").items()}
    inside = {"cmdstat_time", "cmdstat_hmget", "cmdstat_hset", "cmdstat_pexpire"}
    assert set(calls) - {"cmdstat_config|resetstat"} == {"cmdstat_evalsha"} | inside
    assert calls["cmdstat_evalsha"] == 2


def test_what_got_lost_may_be_asked_again(engine: Any) -> None:
    ask = engine.lock_script
    in_time, lives_ms = 1 << 52, TTL_MS + OUTLIVES_MS
    first, _ = ask(locks_module.ACQUIRE, NAME, 77, lives_ms, in_time)
    assert ask(locks_module.ACQUIRE, NAME, 77, lives_ms, in_time)[0] == first
    assert ask(locks_module.ACQUIRE, NAME, 78, lives_ms, in_time)[0] == 0
    assert engine.lock_release(NAME, first)
    assert engine.lock_release(NAME, first)
    second = hold(engine)
    assert engine.lock_release(NAME, first)
    assert not engine.lock_release(NAME, second + 1)
    assert engine.lock_release(NAME, second)
    assert engine.lock_release(NAME, first)
    assert not engine.lock_renew(NAME, second, TTL_MS)


def test_a_release_after_its_time_is_never_told_that_all_was_well(engine: Any, admin: Any) -> None:
    first = hold(engine)
    run_out(admin)
    assert not engine.lock_release(NAME, first)
    second = hold(engine)
    assert not engine.lock_release(NAME, first)
    assert engine.lock_release(NAME, second)
    assert not engine.lock_release(NAME, first)


def test_tokens_grow_whatever_happens(engine: Any, admin: Any) -> None:
    tokens = [hold(engine)]
    for event in (
        lambda: engine.lock_release(NAME, tokens[-1]),
        lambda: run_out(admin),
        lambda: admin.flushall(),
        lambda: admin.delete(LOCK),
    ):
        event()
        tokens.append(hold(engine))
    assert tokens == sorted(set(tokens))


def test_nothing_stays_on_the_server_for_ever(engine: Any, admin: Any) -> None:
    hold(engine)
    engine.lock_wait(NAME, None, TTL_MS, 0)
    assert admin.dbsize() == 1
    assert admin.pttl(lock_key(NAME)) > 0


@pytest.mark.parametrize("name", [b"", b"}", b"{", b"{}", b"a}b{c", b"{tag}x", b"\xff\x00 \r\n"])
def test_any_bytes_are_a_name(name: bytes, engine: Any) -> None:
    with Lock(engine, name, timeout_s=30):
        assert engine.lock_acquire(name, TTL_MS) is None
    assert engine.lock_acquire(name, TTL_MS)


def test_a_lock_without_a_time_gets_one(engine: Any, admin: Any) -> None:
    with Lock(engine, NAME):
        until_ms = int(admin.hget(LOCK, "until"))
        assert until_ms == pytest.approx(time.time() * 1000 + 30_000, abs=20_000)


# -- the queue -----------------------------------------------------------------------------------


def in_order(engine: Any, admin: Any, eventually: Eventually, count: int) -> list[int]:
    """Lets so many threads queue up one after the other; the order in which they got it."""
    got: list[int] = []

    def work(number: int) -> None:
        with lock_of(engine):
            got.append(number)

    token = hold(engine)
    with ThreadPoolExecutor(count) as threads:
        for number in range(count):
            threads.submit(work, number)
            eventually(lambda number=number: waiters(admin) == number + 1)  # type: ignore[misc]
        engine.lock_release(NAME, token)
    return got


def test_first_come_first_served(engine: Any, admin: Any, eventually: Eventually) -> None:
    assert in_order(engine, admin, eventually, 6) == list(range(6))
    assert waiters(admin) == 0


def test_nobody_passes_a_queue(engine: Any, admin: Any) -> None:
    token = hold(engine)
    _, ticket = engine.lock_wait(NAME, None, TTL_MS, 0)
    engine.lock_release(NAME, token)
    assert engine.lock_acquire(NAME, TTL_MS) is None
    assert engine.lock_wait(NAME, None, TTL_MS, 0)[0] is None
    assert engine.lock_wait(NAME, ticket, TTL_MS, 0)[0]


@pytest.mark.parametrize("protocol", [2, 3])
def test_waiters_are_woken_and_do_not_poll(
    protocol: int,
    server: Server,
    admin: Any,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = open_engine(server.path, protocol=protocol)
    monkeypatch.setattr(locks_module, "ASK_AGAIN_S", 60.0)
    monkeypatch.setattr("nearcache.coordination.lock_attempts.WAIT_MS", 60_000)
    in_order(engine, admin, eventually, 2)  # the process listens from now on
    eventually(lambda: admin.pubsub_channels(CHANNELS.decode() + "*"))
    admin.config_resetstat()
    assert in_order(engine, admin, eventually, 4) == list(range(4))
    # One to hold, four to join, four to say "I am here", five to release; on a host that stands
    # still a few more, where one who polls would ask a thousand times a second.
    assert 14 <= admin.info("commandstats")["cmdstat_evalsha"]["calls"] < 28
    engine.topology.close()


def test_a_server_that_forbids_wake_ups_costs_half_a_second(
    engine: Any, admin: Any, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    admin.acl_setuser("default", enabled=True, reset_channels=True)
    try:
        assert in_order(engine, admin, eventually, 2) == [0, 1]
    finally:
        admin.acl_setuser("default", enabled=True, channels=["*"])


def test_a_user_needs_no_more_rights_than_docs_say(
    engine: Any, server: Server, admin: Any, eventually: Eventually
) -> None:
    text = (Path(__file__).parents[3] / "docs" / "locks.md").read_text()
    rights = re.search(r"the keys, `([^`]*nearcache:woken[^`]*)`", text)
    assert rights
    mine = ["~" + NAME.decode() + "*", *rights[1].split()]
    admin.execute_command("ACL", "SETUSER", "locker", "reset", "on", ">pw", *mine)
    limited = open_engine(server.path, username="locker", password="pw")
    try:
        assert in_order(limited, admin, eventually, 3) == [0, 1, 2]
        eventually(lambda: admin.pubsub_channels(CHANNELS.decode() + "*"))
    finally:
        limited.topology.close()
        admin.acl_deluser("locker")


def test_a_first_waiter_that_does_not_answer_is_passed_over(engine: Any) -> None:
    token = hold(engine)
    engine.lock_wait(NAME, None, TTL_MS, 0)  # joins, and is never seen again
    with ThreadPoolExecutor(1) as threads:
        second = threads.submit(lock_of(engine).acquire)
        engine.lock_release(NAME, token)
        assert second.result(20)  # sooner than the first one's time would be over


def test_a_place_that_is_not_asked_for_is_passed_over_at_once(engine: Any, admin: Any) -> None:
    token = hold(engine)
    for _ in range(3):
        engine.lock_wait(NAME, None, TTL_MS, 0)
    nobody_asked_of_late(admin)
    engine.lock_release(NAME, token)
    assert engine.lock_acquire(NAME, TTL_MS)
    assert waiters(admin) == 0


def test_who_asks_late_is_where_he_was(engine: Any, admin: Any) -> None:
    token = hold(engine)
    tickets = [engine.lock_wait(NAME, None, TTL_MS, 0)[1] for _ in range(2)]
    nobody_asked_of_late(admin)
    for ticket in reversed(tickets):
        assert engine.lock_wait(NAME, ticket, TTL_MS, 0) == (None, ticket)
    engine.lock_release(NAME, token)
    assert engine.lock_wait(NAME, tickets[1], TTL_MS, 0)[0] is None
    assert engine.lock_wait(NAME, tickets[0], TTL_MS, 0)[0]


def test_a_holder_that_is_gone_is_waited_for_until_its_time_is_over(engine: Any) -> None:
    def waited_s() -> float:
        began = time.monotonic()
        hold(engine, ttl_ms=300)
        with lock_of(engine):
            took_s = time.monotonic() - began
        assert took_s > 0.25
        return took_s

    quickest(waited_s, 0.3 + 0.2)


def test_a_wait_that_is_over_leaves_nothing(engine: Any, admin: Any) -> None:
    hold(engine)
    with pytest.raises(LockNotAcquired), lock_of(engine, wait_s=0.1):
        pass
    assert waiters(admin) == 0
    assert not lock_of(engine).acquire(blocking=False)


def test_who_leaves_with_the_lock_in_hand_passes_it_on(engine: Any) -> None:
    token = hold(engine)
    first, second = (engine.lock_wait(NAME, None, TTL_MS, 0)[1] for _ in range(2))
    engine.lock_release(NAME, token)  # to the first
    engine.lock_leave(NAME, first)
    assert engine.lock_wait(NAME, second, TTL_MS, 0)[0]
