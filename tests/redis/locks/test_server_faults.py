"""A server that stood still gives locks to nobody who has gone; a full one keeps its holders."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nearcache.coordination.lock_renewal import RETRY_S, renewer_of
from nearcache.coordination.locks import Lock
from nearcache.engines.redis.locks.lock_scripts import ACQUIRE, WAIT, lock_key
from nearcache.engines.redis.locks.locks import RedisLocks
from nearcache.engines.redis.protocol.scripts import Script
from nearcache.errors import LockLost, NotPermitted, ServerNotReady
from tests.redis.locks.one_name import open_engine
from tests.redis.servers import Server, running, wait_for

NAME, TTL_MS = b"ours", 60_000


@pytest.fixture
def own(redis_directory: Path, either: dict[str, Any]) -> Iterator[Server]:
    with running(redis_directory, **either) as server:
        yield server


@pytest.fixture
def engine(own: Server, request: pytest.FixtureRequest) -> Iterator[Any]:
    made = open_engine(own.path, **getattr(request, "param", {}))
    yield made
    made.topology.close()


# The server stands still for as long as that, in real time.
@pytest.mark.parametrize("engine", [{"read_timeout_s": 4.0}], indirect=True, ids=["4 s"])
@pytest.mark.parametrize("script", [ACQUIRE, WAIT], ids=["ACQUIRE", "WAIT"])
def test_what_dead_connections_had_asked_for_makes_no_ghosts(
    own: Server, engine: Any, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[bytes] = []
    ask = engine.topology.ask
    monkeypatch.setattr(
        engine.topology, "ask", lambda packed, *rest: sent.append(packed) or ask(packed, *rest)
    )
    take = engine.lock_acquire if script is ACQUIRE else ticketless(engine)
    take(NAME, TTL_MS)
    with own.client() as admin:
        admin.delete(lock_key(NAME))
        server_ms = int(engine._ahead_ms[engine.lock_server(NAME)])
        assert server_ms > 0
        with socket.socket(socket.AF_UNIX) as gone:
            gone.connect(own.path)
            own.pause()
            try:
                gone.sendall(sent[-1])
            finally:
                # As long a stop as it may be: the patience of whoever had asked is over.
                limit_s = engine.topology.target.connect_timeout_s
                limit_s += engine.topology.target.read_timeout_s
                time.sleep(limit_s + 0.3)  # the server's clock cannot be moved
                own.resume()
            gone.shutdown(socket.SHUT_WR)
            while gone.recv(1000):
                pass
        wait_for(admin.ping)
        assert not admin.exists(lock_key(NAME))
    assert take(NAME, TTL_MS)


def ticketless(engine: Any) -> Any:
    return lambda name, ttl_ms: engine.lock_wait(name, None, ttl_ms, 0)[0]


def test_a_full_server_renews_and_releases(own: Server, engine: Any) -> None:
    token = engine.lock_acquire(NAME, TTL_MS)
    with own.client() as admin:
        admin.config_set("maxmemory", 1)
        with pytest.raises(ServerNotReady):
            engine.set(b"k", b"v", None)
        assert engine.lock_renew(NAME, token, TTL_MS)
        engine.lock_leave(NAME, 7)
        assert engine.lock_release(NAME, token)
        assert admin.hget(lock_key(NAME), "ticket") == b""


def test_a_server_that_knows_no_flags_is_sent_none(own: Server, engine: Any) -> None:
    """Redis before 7 does not compile them; ours compiles no flag that it does not know."""
    odd = Script("return 1", flags="no-such-flag")
    assert isinstance(engine, RedisLocks)
    assert engine.lock_script(odd, NAME) == 1
    token = engine.lock_acquire(NAME, TTL_MS)
    assert engine.lock_release(NAME, token)
    assert not engine._flagged


def awaited_release(lock: Lock) -> None:
    asyncio.run(lock.arelease())


@pytest.mark.parametrize("release", [Lock.release, awaited_release])
def test_a_release_without_the_right_to_it_is_told_again(
    own: Server, engine: Any, release: Callable[[Lock], None]
) -> None:
    lock = Lock(engine, NAME, timeout_s=3600, wait_s=0)
    assert lock.acquire()
    with own.client() as admin:
        admin.execute_command("ACL", "SETUSER", "default", "-eval", "-evalsha")
        with pytest.raises(NotPermitted):
            release(lock)
        debts = renewer_of(engine, NAME)._debts
        wait_for(lambda: debts and debts[0].pause_s > RETRY_S[0], "it is told again, in vain")
        admin.execute_command("ACL", "SETUSER", "default", "+eval", "+evalsha")
        wait_for(lambda: not debts and engine.lock_acquire(NAME, TTL_MS), "the lock is free")


def test_what_cannot_be_told_is_not_told_for_ever(own: Server, engine: Any) -> None:
    lock = Lock(engine, NAME, timeout_s=0.2, wait_s=0)
    assert lock.acquire()
    with own.client() as admin:
        admin.execute_command("ACL", "SETUSER", "default", "-eval", "-evalsha")
        with pytest.raises((NotPermitted, LockLost)):
            lock.release()
        wait_for(lambda: not renewer_of(engine, NAME)._debts, "it is given up with the lock's time")
