"""A forked child starts anew: its own connection, and the parent's is left alone."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nearcache.base.per_process import once
from nearcache.engines.redis.connection.sync_connection import SyncConnection
from nearcache.engines.redis.contract import ONCE, READ
from nearcache.engines.redis.protocol.resp import pack
from nearcache.engines.redis.target.target import Address, Target
from nearcache.lab.servers import free_port
from tests.redis.servers import Server, running
from tests.redis.strangers import certificate

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


@pytest.fixture
def line(server: Server) -> Iterator[SyncConnection]:
    made = SyncConnection(
        Target(read_timeout_s=20.0, connect_timeout_s=20.0), Address(path=server.path)
    )
    yield made
    made.close()


def in_child(check: Callable[[], Any]) -> None:
    """Runs the check in a forked child, and fails if it does."""
    child = os.fork()
    if not child:
        code = 1
        try:
            check()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def client_id(line: SyncConnection) -> int:
    return int(line.ask(pack(b"CLIENT", b"ID"), None, READ))


def test_a_child_has_a_connection_of_its_own_and_the_parents_lives_on(line: SyncConnection) -> None:
    mine = client_id(line)

    def check() -> None:
        theirs = client_id(line)
        assert theirs != mine
        assert client_id(line) == theirs

    in_child(check)
    assert client_id(line) == mine


def test_a_grandchild_too(line: SyncConnection) -> None:
    mine = client_id(line)
    in_child(lambda: in_child(lambda: check_differs(line, mine)))
    assert client_id(line) == mine


def check_differs(line: SyncConnection, other: int) -> None:
    assert client_id(line) != other


def test_a_child_that_asks_nothing_says_nothing_on_the_parents_connection(
    line: SyncConnection,
) -> None:
    mine = client_id(line)
    for _ in range(3):
        in_child(line.close)
    assert client_id(line) == mine


def test_tls_is_not_ended_by_a_child(
    tmp_path_factory: pytest.TempPathFactory, redis_directory: Path
) -> None:
    files, port = certificate(tmp_path_factory.mktemp("tls")), free_port()
    with running(redis_directory, "--tls-port", str(port), *files.server_arguments):
        trust = (("ssl_ca_certs", str(files.cert)),)
        target = Target(tls=True, connection_kwargs=trust, read_timeout_s=20.0)
        line = SyncConnection(target, Address(host="127.0.0.1", port=port))
        mine = client_id(line)
        in_child(lambda: check_differs(line, mine))
        assert client_id(line) == mine
        line.close()


def test_a_fork_while_others_wait_for_replies(server: Server, line: SyncConnection) -> None:
    """The child has neither those threads nor their connection; their replies come to them."""
    line.ask(pack(b"PING"))
    replies: dict[int, Any] = {}

    def ask(number: int) -> None:
        replies[number] = line.ask(pack(b"INCR", b"n%d" % number), None, ONCE)

    def check() -> None:
        assert not line._state.lead
        assert not line._state.queue
        assert line.ask(pack(b"ECHO", b"child"), None, READ) == b"child"

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    server.pause()
    resume = threading.Timer(0.2, server.resume)
    try:
        for thread in threads:
            thread.start()
        while len(line._state.queue) < 7:
            time.sleep(0.001)
        resume.start()
        in_child(check)
    finally:
        resume.join()
        server.resume()
    for thread in threads:
        thread.join()
    assert replies == dict.fromkeys(range(8), 1)


def test_a_fork_from_a_thread(line: SyncConnection) -> None:
    mine = client_id(line)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            in_child(lambda: check_differs(line, mine))
        except BaseException as error:  # noqa: BLE001 - for the main thread to show
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failed == []
    assert client_id(line) == mine


def test_lines_may_be_state_of_the_process(server: Server) -> None:
    """``once`` keeps them over a fork, and they renew themselves."""
    key = ("line", server.path)
    line = once(key, lambda: SyncConnection(Target(read_timeout_s=20.0), Address(path=server.path)))
    mine = client_id(line)

    def check() -> None:
        assert once(key, lambda: pytest.fail("made twice")) is line
        check_differs(line, mine)

    in_child(check)
    line.close()


def test_a_fork_under_gevent(server: Server) -> None:
    """The parent's greenlets go on in the child as copies: none may touch its connection."""
    script = """
    from gevent import monkey; monkey.patch_all()
    import os, sys, gevent
    from nearcache.engines.redis.connection.sync_connection import SyncConnection
    from nearcache.engines.redis.protocol.resp import pack
    from nearcache.engines.redis.target.target import Address, Target
    from nearcache.engines.redis.contract import ONCE, READ
    from nearcache.errors import ConnectionFailed

    line = SyncConnection(Target(read_timeout_s=20.0), Address(path=sys.argv[1]))
    mine = line.ask(pack(b"CLIENT", b"ID"))
    parent = os.getpid()
    ends = []

    def work(number):
        try:
            # BLPOP keeps the leader waiting until somebody pushes.
            word = b"%d" % number
            command = pack(b"BLPOP", b"list", b"0") if not number else pack(b"ECHO", word)
            reply = line.ask(command, None, ONCE)
            ends.append("right" if reply in (word, [b"list", b"go"]) else repr(reply))
        except ConnectionFailed:
            ends.append("failed")

    greenlets = [gevent.spawn(work, number) for number in range(20)]
    while len(line._state.queue) < 19:
        gevent.sleep(0.001)
    other = SyncConnection(Target(read_timeout_s=20.0), Address(path=sys.argv[1]))
    child = os.fork()
    if not child:
        theirs = line.ask(pack(b"CLIENT", b"ID"))
        assert theirs != mine
        assert line.ask(pack(b"ECHO", b"child")) == b"child"
        gevent.joinall(greenlets, timeout=60)
        assert ends == ["failed"] * 20, ends
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ends == [], ends
    other.ask(pack(b"RPUSH", b"list", b"go"))
    gevent.joinall(greenlets, timeout=60)
    assert ends == ["right"] * 20, ends
    assert line.ask(pack(b"CLIENT", b"ID")) == mine
    print("done")
    """
    run(script, server)


def test_a_fork_under_gevent_while_a_connection_is_made(server: Server) -> None:
    script = """
    from gevent import monkey; monkey.patch_all()
    import os, signal, sys, gevent
    from nearcache.engines.redis.connection.sync_connection import SyncConnection
    from nearcache.engines.redis.protocol.resp import pack
    from nearcache.engines.redis.target.target import Address, Target
    from nearcache.errors import ConnectionFailed

    line = SyncConnection(Target(read_timeout_s=20.0), Address(path=sys.argv[1]))
    server = int(sys.argv[2])
    os.kill(server, signal.SIGSTOP)
    asking = gevent.spawn(line.ask, pack(b"ECHO", b"x"))
    gevent.sleep(0.05)  # it has said hello, and waits
    child = os.fork()
    if not child:
        asking.join(timeout=60)
        os._exit(0 if isinstance(asking.exception, ConnectionFailed) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.kill(server, signal.SIGCONT)
    assert asking.get(timeout=60) == b"x"
    print("done")
    """
    run(script, server)


def test_a_fork_under_gevent_while_one_leads_what_another_was_torn_from(server: Server) -> None:
    """Its copy ends, though the exchange is of a round that was not its own."""
    script = """
    from gevent import monkey; monkey.patch_all()
    import os, signal, sys, gevent
    from nearcache.engines.redis.connection.sync_connection import SyncConnection
    from nearcache.engines.redis.protocol.resp import pack
    from nearcache.engines.redis.target.target import Address, Target
    from nearcache.errors import ConnectionFailed

    def when(true):
        with gevent.Timeout(60):
            while not true():
                gevent.sleep(0.001)

    def batch():
        exchange = line._state.channel.exchange
        return exchange.batch if exchange else ()

    target, address = Target(read_timeout_s=30.0), Address(path=sys.argv[1])
    line, other = SyncConnection(target, address), SyncConnection(target, address)
    line.ask(pack(b"PING"))
    first = gevent.spawn(line.ask, pack(b"BLPOP", b"first", b"0"))
    gevent.sleep(0)
    torn = gevent.spawn(line.ask, pack(b"BLPOP", b"second", b"0"))
    carrying = gevent.spawn(line.ask, pack(b"ECHO", b"x"))
    when(lambda: len(line._state.queue) == 2)
    other.ask(pack(b"RPUSH", b"first", b"go"))
    when(lambda: len(batch()) == 2 and len(line._state.channel.exchange.parts) == 2)
    gevent.kill(torn)
    when(lambda: line._state.lead.get(0) is batch()[1])
    child = os.fork()
    if not child:
        signal.alarm(30)
        assert line.ask(pack(b"ECHO", b"child")) == b"child"
        carrying.join()
        os._exit(0 if isinstance(carrying.exception, ConnectionFailed) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    other.ask(pack(b"RPUSH", b"second", b"go"))
    assert carrying.get() == b"x" and first.get() == [b"first", b"go"]
    print("done")
    """
    run(script, server)


def run(script: str, server: Server) -> None:
    assert server.process
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), server.path, str(server.process.pid)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
    )
    server.resume()
    assert done.stdout == "done\n", done.stderr[-3000:]
