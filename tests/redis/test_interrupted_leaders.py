"""Who is interrupted while it leads costs the others nothing: its exchange ends behind it."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nearcache.engines.redis.connection.sync_connection import SyncConnection
from nearcache.engines.redis.contract import ONCE, READ
from nearcache.engines.redis.protocol.resp import pack
from nearcache.engines.redis.target.target import Target
from nearcache.lab.servers import free_port
from tests.redis.proxies import Proxy, proxy
from tests.redis.servers import Server, running
from tests.redis.strangers import certificate

ROOT = Path(__file__).parents[2]
HEAD = """
from gevent import monkey; monkey.patch_all()
import os, signal, sys, time, gevent
from nearcache.engines.redis.connection.sync_connection import SyncConnection
from nearcache.engines.redis.protocol.resp import pack
from nearcache.engines.redis.target.target import Address, Target
from nearcache.engines.redis.contract import ONCE, READ

def line_of(**settings):
    address = Address(host="127.0.0.1", port=int(sys.argv[1]))
    return SyncConnection(Target(read_timeout_s=20.0, connect_timeout_s=20.0, **settings), address)

def until(condition):
    give_up_at = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up_at
        gevent.sleep(0.001)

def echo(word):
    return line.ask(pack(b"ECHO", word), None, READ)

def incr(number=1):
    return line.ask(pack(b"INCR", b"n"), None, ONCE)
"""


def run(port: int, program: str, *arguments: str) -> None:
    command = [sys.executable, "-W", "error", "-c", HEAD + textwrap.dedent(program), str(port)]
    done = subprocess.run(
        [*command, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=180
    )
    assert (done.returncode, done.stderr[-3000:]) == (0, "")


@pytest.fixture
def between(server: Server) -> Iterator[Proxy]:
    with proxy(server) as made:
        yield made


@pytest.mark.parametrize("protocol", ["2", "3"])
def test_of_a_round_whose_leader_is_killed_everybody_else_has_its_reply(
    between: Proxy, protocol: str
) -> None:
    run(
        between.address.port,
        """
        line, other = line_of(protocol=int(sys.argv[2])), line_of()
        tell = lambda word: other.ask(pack(b"ECHO", word), None, READ)
        assert line.ask(pack(b"PING")) == b"PONG"
        first = gevent.spawn(echo, b"hold:a")
        until(lambda: line._state.lead)
        victims = [gevent.spawn(echo, b"hold:b"), gevent.spawn(incr)]
        others = [gevent.spawn(incr) for _ in range(3)]
        until(lambda: len(line._state.queue) == 5)
        tell(b"release:a")
        # One write with all five: it leads, then the next, and both are killed.
        until(lambda: other.ask(pack(b"GET", b"n"), None, READ) == b"4")
        assert first.value == b"hold:a"
        for victim in victims:
            victim.kill()
            gevent.sleep(0)
        late = gevent.spawn(incr)
        tell(b"release:b")
        gevent.joinall([*others, late], raise_error=True)
        assert [each.value for each in others] == [2, 3, 4], [each.value for each in others]
        assert late.value == 5
        assert line.stats()["connects"] == 1
        assert line.stats()["failures"] == 0
        assert not line._state.lead and not line._state.queue
        """,
        protocol,
    )


def test_who_is_interrupted_alone_keeps_the_connection_as_well(between: Proxy) -> None:
    run(
        between.address.port,
        """
        line, other = line_of(), line_of()
        assert line.ask(pack(b"PING")) == b"PONG"
        def alone():
            with gevent.Timeout(0.05, False):
                line.ask(pack(b"MSET", b"x", b"hold:a"), None, ONCE)
        # Nobody waits behind it: whoever comes next reads its reply first.
        gevent.spawn(alone).join()
        later = [gevent.spawn(incr) for _ in range(3)]
        until(lambda: line._state.lead)
        other.ask(pack(b"ECHO", b"release:a"), None, READ)
        gevent.joinall(later, raise_error=True)
        assert sorted(each.value for each in later) == [1, 2, 3]
        assert line.ask(pack(b"GET", b"x"), None, READ) == b"hold:a"
        assert line.stats()["connects"] == 1
        """,
    )


def test_what_had_left_in_part_is_sent_to_its_end(server: Server, between: Proxy) -> None:
    """The server is frozen; the kernel takes less than there is to send."""
    run(
        server.port,
        """
        line = line_of()
        pid = int(line.ask(pack(b"INFO", b"server")).split(b"process_id:")[1].split()[0])
        os.kill(pid, signal.SIGSTOP)
        big = os.urandom(30_000_000)
        first = gevent.spawn(echo, b"first")
        until(lambda: line._state.lead)
        victim = gevent.spawn(line.ask, pack(b"SET", b"big", big), None, ONCE)
        others = [gevent.spawn(incr) for _ in range(3)]
        until(lambda: len(line._state.queue) == 4)
        first.kill()
        until(lambda: line._state.lead.get(0) is not None)
        os.kill(pid, signal.SIGCONT)
        until(lambda: victim.ready() or line._state.channel.passed > 1_000_000)
        os.kill(pid, signal.SIGSTOP)
        victim.kill()
        os.kill(pid, signal.SIGCONT)
        gevent.joinall(others, raise_error=True)
        assert [each.value for each in others] == [1, 2, 3]
        assert line.ask(pack(b"GET", b"big"), None, READ) == big
        assert line.stats()["connects"] == 1
        """,
    )


def test_over_tls(tmp_path: Path, redis_directory: Path) -> None:
    files, port = certificate(tmp_path), free_port()
    with running(redis_directory, "--tls-port", str(port), *files.server_arguments):
        run(
            port,
            """
            line = line_of(tls=True, connection_kwargs=(("ssl_ca_certs", sys.argv[2]),))
            pid = int(line.ask(pack(b"INFO", b"server")).split(b"process_id:")[1].split()[0])
            os.kill(pid, signal.SIGSTOP)
            first = gevent.spawn(echo, b"first")
            until(lambda: line._state.lead)
            others = [gevent.spawn(incr) for _ in range(3)]
            until(lambda: len(line._state.queue) == 3)
            for victim in (first, others.pop(0)):
                victim.kill()
            os.kill(pid, signal.SIGCONT)
            gevent.joinall(others, raise_error=True)
            assert len({each.value for each in others}) == 2
            assert line.stats()["connects"] == 1
            """,
            str(files.cert),
        )


class Hit(Exception): ...


def test_a_signal_that_raises_in_a_thread_that_leads(server: Server, between: Proxy) -> None:
    target = Target(read_timeout_s=20.0, connect_timeout_s=20.0)
    line = SyncConnection(target, between.address)
    line.ask(pack(b"PING"))
    replies: list[Any] = []

    def ask(packed: bytes) -> None:
        replies.append(line.ask(packed, None, ONCE))

    def queued(count: int) -> None:
        while len(line._state.queue) < count or not line._state.lead:
            time.sleep(0.001)

    others = [threading.Thread(target=ask, args=(pack(b"INCR", b"n"),)) for _ in range(3)]
    first = threading.Thread(target=ask, args=(pack(b"ECHO", b"hold:a"),))

    def conduct() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        queued(1)
        for each in others:
            each.start()
        queued(4)
        between.release("a")
        with server.client() as client:
            while client.get("n") != b"3":  # the round is on its way, and its reply held
                time.sleep(0.001)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def hit(*_: Any) -> None:
        raise Hit

    before = signal.signal(signal.SIGUSR1, hit)
    try:
        first.start()
        while not line._state.lead:
            time.sleep(0.001)
        conductor = threading.Thread(target=conduct)
        conductor.start()
        with pytest.raises(Hit):
            line.ask(pack(b"ECHO", b"hold:b"), None, READ)
    finally:
        signal.signal(signal.SIGUSR1, before)
        between.release("b")
    for each in [first, conductor, *others]:
        each.join()
    assert sorted(replies, key=str) == [1, 2, 3, b"hold:a"]
    assert line.stats()["connects"] == 1
    line.close()
