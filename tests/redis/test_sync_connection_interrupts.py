"""A signal handler raises an OSError, as time limits do: it is not the server's."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from typing import Any

import pytest

from nearcache.engines.redis.connection import channel, connection_state, sync_connection
from nearcache.engines.redis.connection.sync_connection import SyncConnection
from nearcache.engines.redis.contract import ONCE
from nearcache.engines.redis.protocol.resp import pack
from nearcache.engines.redis.target.target import Address, Target
from tests.interrupted import Interrupt
from tests.redis.servers import Server

PLACES = {sync_connection.__file__, channel.__file__, connection_state.__file__}


def line_to(server: Server) -> SyncConnection:
    address = Address(path=server.path)
    return SyncConnection(
        Target(addresses=(address,), read_timeout_s=20.0, connect_timeout_s=20.0), address
    )


@pytest.mark.parametrize("error", [TimeoutError("too late"), OSError("the documentation's")])
def test_at_every_place_it_comes_out_and_nothing_is_done_twice(
    error: OSError, server: Server
) -> None:
    for number in itertools.count(1):
        mine, interrupt = line_to(server), Interrupt(number, error, PLACES)
        mine.ask(pack(b"DEL", b"n"))
        raised: BaseException | None = None
        with interrupt.under_way():
            try:
                reply: Any = mine.ask(pack(b"INCR", b"n"), None, ONCE)
            except OSError as one:
                raised = one
        count = int(mine.ask(pack(b"GET", b"n")) or 0)
        assert mine.stats()["failures"] == 0, interrupt.where
        mine.close()
        if not interrupt.where:
            assert (raised, reply, count) == (None, 1, 1)
            break
        assert raised is error, interrupt.where
        assert count <= 1, interrupt.where
    assert number > 5


def test_who_waits_for_the_server_is_told_by_his_own_time_limit(server: Server) -> None:
    mine = line_to(server)
    mine.ask(pack(b"PING"))

    def hit(*_: Any) -> None:
        raise TimeoutError("too late")

    def conduct() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        with server.client() as client:
            while not client.info("clients")["blocked_clients"]:
                time.sleep(0.001)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, hit)
    conductor = threading.Thread(target=conduct)
    try:
        conductor.start()
        with pytest.raises(TimeoutError, match="too late"):
            mine.ask(pack(b"BLPOP", b"list", b"9"), None, ONCE)
    finally:
        conductor.join()
        signal.signal(signal.SIGUSR1, before)
    assert mine.stats()["failures"] == 0
    with server.client() as client:
        client.rpush("list", "item")
    assert mine.ask(pack(b"ECHO", b"mine")) == b"mine"
    assert mine.stats()["connects"] == 1
    mine.close()
