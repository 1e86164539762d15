"""The primary is where the sentinels say, also while they change their mind."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nearcache import errors
from nearcache.engines.redis.target.target import Address, Target
from nearcache.engines.redis.topology.standalone import Standalone
from tests.redis.askers import Plain
from tests.redis.sentinel_servers import SERVICE, Sentinels, running_sentinels
from tests.redis.servers import wait_for

Ask = Callable[[Any], Plain]


def open_trio(trio: Sentinels, **fields: Any) -> Standalone:
    given = {"sentinel_service": SERVICE, "addresses": trio.addresses}
    patient = {"read_timeout_s": 20.0, "connect_timeout_s": 20.0}  # a slow host is no fault
    return Standalone(Target(kind="sentinel", **patient | given | fields))


def demote(trio: Sentinels) -> None:
    """What a failover ends with; the sentinels would take seconds to get to it."""
    before = trio.primary()
    with before.client() as client:
        client.set("last", "words")
        assert client.wait(1, 30_000) == 1
    trio.fail_over()
    before.ask("REPLICAOF", "127.0.0.1", trio.primary().port)
    wait_for(lambda: before.ask("ROLE")[3] == "connected", "the old primary follows", 60)


def test_the_primary_is_found(trio: Sentinels, asker: Ask) -> None:
    ask = asker(open_trio(trio))
    assert ask("SET", "key", "value") == b"OK"
    assert trio.primary().ask("GET", "key") == "value"
    assert ask.each(("GET", "key"), ("GET", "none")) == [b"value", None]
    [line] = ask.primaries()
    assert (line.name, line.ask) == (ask.topology.primary.name, ask.topology.primary.ask)


def test_the_primary_is_asked_for_once_and_not_per_request(trio: Sentinels, asker: Ask) -> None:
    ask = asker(open_trio(trio))
    for _ in range(50):
        ask("PING")
    assert ask.topology.stats()["sentinel_asked"] == 1


def test_a_demoted_primary_is_left_and_nothing_is_done_twice(trio: Sentinels, asker: Ask) -> None:
    ask = asker(open_trio(trio))
    assert ask("INCR", "count") == 1
    demote(trio)
    # It says READONLY: nothing was done, so even this is sent again.
    assert ask("INCR", "count") == 2
    assert trio.primary().ask("GET", "count") == "2"
    assert ask.each(("SET", "a", 1), ("SET", "b", 2)) == [b"OK", b"OK"]
    assert ask.topology.stats()["failovers"] == 1


def test_several_writes_find_the_new_primary(trio: Sentinels, asker: Ask) -> None:
    ask = asker(open_trio(trio))
    assert ask.each(("INCR", "count"), ("INCR", "count")) == [1, 2]
    demote(trio)
    assert ask.each(("INCR", "count"), ("INCR", "count")) == [3, 4]


def test_reads_leave_a_demoted_primary_when_they_reconnect(trio: Sentinels, asker: Ask) -> None:
    ask = asker(open_trio(trio))
    ask("SET", "key", "old")
    before = trio.primary()
    demote(trio)
    before.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")  # as sentinels do
    wait_for(lambda: before.ask("GET", "key") == "old", "replication")
    before.ask("REPLICAOF", "127.0.0.1", 1)
    trio.primary().ask("SET", "key", "new")
    assert ask("GET", "key") == b"new"


def test_a_killed_primary_is_replaced(trio: Sentinels, asker: Ask) -> None:
    ask = asker(open_trio(trio))
    acknowledged, uncertain = ask("INCR", "count"), 0
    before, survivor = trio.primary(), trio.replica()
    wait_for(lambda: survivor.ask("GET", "count") == "1", "replication")
    trio.watch_closely()
    before.kill()
    reply: Any = None
    give_up_at = time.monotonic() + 60
    while reply is None:
        try:
            reply = ask("INCR", "count")
        except errors.EngineUnavailable as error:
            uncertain += "may or may not" in str(error)
            assert time.monotonic() < give_up_at
            time.sleep(0.01)
    trio.wait_for_another(before)
    assert acknowledged < reply <= acknowledged + 1 + uncertain
    assert int(survivor.ask("GET", "count")) == reply


def test_a_server_that_says_it_follows_is_not_written_to(trio: Sentinels, asker: Ask) -> None:
    primary = trio.primary()
    primary.ask("REPLICAOF", "127.0.0.1", 1)  # behind the sentinels' back
    ask = asker(open_trio(trio))
    with pytest.raises(errors.ServerNotReady, match=f"{primary.port}.*is a replica"):
        ask("SET", "key", "value")


def test_all_sentinels_down_are_named(trio: Sentinels, asker: Ask) -> None:
    for sentinel in trio.sentinels:
        sentinel.kill()
    ask = asker(open_trio(trio))
    for _ in range(3):
        with pytest.raises(errors.ConnectionFailed) as caught:
            ask("GET", "key")
        assert all(str(address) in str(caught.value) for address in trio.addresses)


def test_one_sentinel_is_enough(trio: Sentinels, asker: Ask) -> None:
    trio.sentinels[0].kill()
    trio.sentinels[1].pause()
    ask = asker(open_trio(trio, read_timeout_s=0.1))

    def answers() -> bool:
        with contextlib.suppress(errors.EngineUnavailable):  # its limit is short for all of them
            return bool(ask("PING") == b"PONG")
        return False

    wait_for(answers, "the third sentinel's primary")
    trio.sentinels[1].resume()


def test_an_unknown_service(trio: Sentinels, asker: Ask) -> None:
    ask = asker(open_trio(trio, sentinel_service="yours"))
    with pytest.raises(errors.ServerMisconfigured, match="no service 'yours'"):
        ask("GET", "key")


def test_sentinels_have_a_password_of_their_own(redis_directory: Path, asker: Ask) -> None:
    with running_sentinels(redis_directory, password="theirs") as trio:
        ask = asker(open_trio(trio, sentinel_password="theirs"))
        assert ask("PING") == b"PONG"
        ask = asker(open_trio(trio, sentinel_password="wrong", password="wrong"))
        with pytest.raises(errors.AuthenticationFailed) as caught:
            ask("PING")
        assert "wrong" not in str(caught.value)


def test_sentinels_name_the_replicas_to_read_from(trio: Sentinels, asker: Ask) -> None:
    ask = asker(open_trio(trio, read_replicas=True))
    ask("SET", "key", "value")
    replica = trio.replica()
    wait_for(lambda: replica.ask("GET", "key") == "value", "replication")
    replica.ask("CONFIG", "RESETSTAT")
    assert ask("GET", "key") == b"value"
    assert "cmdstat_get:calls=1," in replica.ask("INFO", "commandstats")
    replica.kill()
    assert ask("GET", "key") == b"value"
    stats = ask.topology.stats()
    assert (stats["replica_reads"], stats["replica_fallbacks"]) == (2, 1)


def test_addresses_are_mapped(trio: Sentinels, asker: Ask) -> None:
    asked: list[tuple[str, int]] = []

    def remap(place: tuple[str, int]) -> tuple[str, int]:
        asked.append(place)
        return ("localhost", place[1])

    assert asker(open_trio(trio, address_remap=remap))("PING") == b"PONG"
    assert asked[0] == ("127.0.0.1", trio.primary().port)


def test_making_one_connects_to_nothing() -> None:
    addresses = (Address(host="nowhere.invalid", port=1),)
    topology = Standalone(Target(kind="sentinel", addresses=addresses, sentinel_service="mine"))
    assert topology.primaries() == [topology.primary]
    topology.close()
