"""One connection for all: what it answers, and what it does when something breaks."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nearcache.engines.redis.connection.channel import BUSY
from nearcache.engines.redis.connection.connection_state import BATCH_BYTES, BATCH_COMMANDS, Request
from nearcache.engines.redis.connection.sync_connection import SyncConnection
from nearcache.engines.redis.contract import ONCE, READ, SAFE
from nearcache.engines.redis.protocol.resp import ErrorReply, pack
from nearcache.engines.redis.target.target import Address, Target
from nearcache.errors import (
    CircuitOpen,
    ConnectionFailed,
    EngineUnavailable,
    ReplyTimeout,
    ServerNotReady,
)
from nearcache.lab.servers import free_port
from tests.redis.servers import Server, quickest, running, wait_for
from tests.redis.strangers import certificate, commands_of, replying, stranger

Eventually = Callable[[Callable[[], object]], None]
PONG = b"+PONG\r\n"
HANDSHAKE = (b"+OK\r\n", b"+OK\r\n", PONG)  # CLIENT SETINFO twice, PING


@pytest.fixture
def lines() -> Iterator[list[SyncConnection]]:
    made: list[SyncConnection] = []
    yield made
    for line in made:
        line.close()


def line_to(
    lines: list[SyncConnection], where: Server | Address, **settings: Any
) -> SyncConnection:
    address = where if isinstance(where, Address) else Address(path=where.path)
    patient = {"read_timeout_s": 20.0, "connect_timeout_s": 20.0}  # a slow host is no fault
    line = SyncConnection(Target(**patient | settings), address)
    lines.append(line)
    return line


@pytest.fixture
def line(server: Server, lines: list[SyncConnection]) -> SyncConnection:
    # Never opens: what breaks here is broken on purpose.
    return line_to(lines, server, breaker_failures=0)


def kill_connections(server: Server) -> None:
    with server.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def impatient(line: SyncConnection, read_timeout_s: float) -> None:
    """The connection that there is waits no longer for a reply; the next is patient again."""
    limit = struct.pack("ll", 0, int(read_timeout_s * 1_000_000))
    line._state.channel.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)


def in_use_a_moment_ago(line: SyncConnection) -> None:
    """As far as the line knows, however long this host has stood still since."""
    line._state.channel.fresh_until = time.monotonic() + 3600


# ---- answers


@pytest.mark.parametrize("parser", ["hiredis", "python"])
@pytest.mark.parametrize("protocol", [2, 3])
def test_a_command_is_answered(
    server: Server, lines: list[SyncConnection], protocol: Any, parser: Any
) -> None:
    line = line_to(lines, server, protocol=protocol, parser=parser)
    assert line.ask(pack(b"SET", b"k", b"v"), b"k", SAFE) == b"OK"
    assert line.ask(pack(b"GET", b"k"), b"k", READ) == b"v"
    assert line.ask(pack(b"GET", b"none"), b"none", READ) is None
    assert line.ask(pack(b"INCR", b"n")) == 1
    assert line.stats()["parser_hiredis"] == (parser == "hiredis")
    readers = {
        "hiredis": "hiredis.Reader",
        "python": "nearcache.engines.redis.protocol.resp.PythonReader",
    }
    assert line.reader_class == readers[parser]


def test_constructing_one_connects_to_nothing() -> None:
    line = SyncConnection(Target(), Address(host="127.0.0.1", port=free_port()))
    assert line.stats()["open"] == 0


def test_many_commands_are_answered_in_their_order(line: SyncConnection) -> None:
    commands = [pack(b"ECHO", b"%d" % number) for number in range(5000)]
    replies = line.ask_many(b"".join(commands), 5000, READ)
    assert replies == [b"%d" % number for number in range(5000)]


def test_many_commands_again_and_again_on_one_connection(line: SyncConnection) -> None:
    stored = b"".join(pack(b"SET", b"k%d" % n, bytes(1000)) for n in range(200))
    for _ in range(20):  # 4 MB: what was sent before is no reason to give up
        assert line.ask_many(stored, 200, SAFE) == [b"OK"] * 200
    assert line.stats()["connects"] == 1


def test_error_replies_are_returned_in_their_place(line: SyncConnection) -> None:
    line.ask(pack(b"LPUSH", b"list", b"x"))
    replies = line.ask_many(pack(b"ECHO", b"a") + pack(b"GET", b"list") + pack(b"ECHO", b"b"), 3)
    assert [replies[0], replies[2]] == [b"a", b"b"]
    assert isinstance(replies[1], ErrorReply)
    assert isinstance(line.ask(pack(b"GET", b"list")), ErrorReply)


def test_a_value_of_a_hundred_megabytes(server: Server, lines: list[SyncConnection]) -> None:
    line, big = line_to(lines, server), os.urandom(100_000_000)
    assert line.ask(pack(b"SET", b"big", big), b"big", SAFE) == b"OK"
    assert line.ask(pack(b"GET", b"big"), b"big", READ) == big
    line.ask(pack(b"DEL", b"big"))


def test_threads_share_one_connection_and_get_their_own_replies(line: SyncConnection) -> None:
    wrong: list[Any] = []

    def work(me: int) -> None:
        for number in range(300):
            word = b"%d:%d" % (me, number)
            if number % 3:
                replies = [line.ask(pack(b"ECHO", word), None, READ)]
            else:
                replies = line.ask_many(pack(b"ECHO", word) * me, me, READ)
            wrong.extend(reply for reply in replies if reply != word)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(1, 17)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert line.stats()["connects"] == 1
    assert line.stats()["rounds"] < line.stats()["combined"]


def test_a_round_is_bounded_in_commands_and_bytes(server: Server, line: SyncConnection) -> None:
    """Requests queued behind a busy leader go out in several rounds."""
    line.ask(pack(b"PING"))
    rounds = line.stats()["rounds"]
    asking = queue_behind(line, server, [pack(b"ECHO", b"x" * (BATCH_BYTES // 2))] * 4)
    assert asking == [b"x" * (BATCH_BYTES // 2)] * 4
    assert line.stats()["rounds"] - rounds >= 4
    assert BATCH_COMMANDS >= 1000


def queue_behind(line: SyncConnection, server: Server, commands: list[bytes]) -> list[Any]:
    """The replies to commands that threads asked for while the server was frozen."""
    replies: list[Any] = [None] * (len(commands) + 1)

    def ask(place: int, command: bytes) -> None:
        replies[place] = line.ask(command, None, READ)

    threads = [
        threading.Thread(target=ask, args=(place, command))
        for place, command in enumerate([pack(b"PING"), *commands])
    ]
    server.pause()
    try:
        threads[0].start()
        while not line._state.lead:
            time.sleep(0.001)
        for thread in threads[1:]:
            thread.start()
        while len(line._state.queue) < len(commands):
            time.sleep(0.001)
    finally:
        server.resume()
    for thread in threads:
        thread.join()
    return replies[1:]


def test_tls_carries_large_pipelines_both_ways(
    tmp_path_factory: pytest.TempPathFactory, redis_directory: Any, lines: list[SyncConnection]
) -> None:
    files, port = certificate(tmp_path_factory.mktemp("tls")), free_port()
    with running(redis_directory, "--tls-port", str(port), *files.server_arguments):
        trust = (("ssl_ca_certs", str(files.cert)),)
        address = Address(host="127.0.0.1", port=port)
        line = line_to(lines, address, tls=True, connection_kwargs=trust)
        words = [os.urandom(100_000) for _ in range(50)]
        assert line.ask_many(b"".join(pack(b"ECHO", w) for w in words), 50, READ) == words
        assert line.ask(pack(b"ECHO", words[0]), None, READ) == words[0]
        line.close()


def test_a_server_that_reads_no_further_than_it_can_write_does_not_block_us(
    lines: list[SyncConnection],
) -> None:
    """A proxy, for one. Redis itself keeps replies in its memory."""

    def talk(peer: socket.socket) -> None:
        commands = commands_of(peer)
        for reply in HANDSHAKE:
            next(commands)
            peer.sendall(reply)
        for words in commands:
            peer.sendall(b"$%d\r\n%b\r\n" % (len(words[1]), words[1]))

    with stranger(talk) as address:
        line = line_to(lines, address)
        # More than the kernel holds for both directions together.
        words = [bytes([number]) * 300_000 for number in range(100)]
        assert line.ask_many(b"".join(pack(b"ECHO", w) for w in words), 100, READ) == words
        line.close()


# ---- connections that end


def test_a_connection_that_ended_while_idle_is_not_an_error(
    server: Server, line: SyncConnection
) -> None:
    line.ask(pack(b"PING"))
    kill_connections(server)
    line._state.channel.fresh_until = 0.0  # as if a second had passed
    assert line.ask(pack(b"INCR", b"n"), b"n", ONCE) == 1
    assert line.stats()["connects"] == 2
    assert line.stats()["failures"] == 0


@pytest.mark.parametrize("safety", [READ, SAFE])
def test_what_may_be_repeated_is_repeated_once(
    server: Server, line: SyncConnection, safety: int
) -> None:
    line.ask(pack(b"PING"))
    kill_connections(server)
    in_use_a_moment_ago(line)
    assert line.ask(pack(b"ECHO", b"x"), None, safety) == b"x"
    assert line.stats()["again"] == 1


def test_what_must_not_be_repeated_says_that_it_may_have_been_done(
    lines: list[SyncConnection],
) -> None:
    """The server read it, and then hung up without a word."""

    def talk(peer: socket.socket) -> None:
        replying(*HANDSHAKE, PONG)(peer)
        read.append(peer.recv(1000))

    read: list[bytes] = []
    with stranger(talk) as address:
        line = line_to(lines, address, breaker_failures=0)
        line.ask(pack(b"PING"))
        with pytest.raises(ConnectionFailed, match="may or may not have been carried out"):
            line.ask(pack(b"INCR", b"n"), b"n", ONCE)
        line.close()
    assert read == [pack(b"INCR", b"n")]


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_what_came_to_an_end_that_was_closed_is_sent_on_the_next_connection(
    server: Server, lines: list[SyncConnection], kind: str
) -> None:
    """TCP takes it, and a reset answers it; nobody has read it."""
    tcp = Address(host="127.0.0.1", port=server.port)
    line = line_to(lines, tcp if kind == "tcp" else server, breaker_failures=0)
    line.ask(pack(b"PING"))
    kill_connections(server)
    in_use_a_moment_ago(line)
    assert line.ask(pack(b"INCR", b"n"), b"n", ONCE) == 1
    assert line.stats()["connects"] == 2


def test_what_was_never_sent_is_sent_on_the_next_connection(
    server: Server, line: SyncConnection
) -> None:
    line.ask(pack(b"PING"))
    kill_connections(server)
    in_use_a_moment_ago(line)
    # EPIPE: the kernel took nothing.
    assert line.ask(pack(b"INCR", b"n"), b"n", ONCE) == 1
    kill_connections(server)
    in_use_a_moment_ago(line)
    assert line.ask_many(pack(b"INCR", b"n") * 2, 2, ONCE) == [2, 3]


def test_repeating_ends_after_the_second_time(lines: list[SyncConnection]) -> None:
    with stranger(replying(*HANDSHAKE)) as address:
        line = line_to(lines, address)
        with pytest.raises(ConnectionFailed):
            line.ask(pack(b"ECHO", b"x"), None, READ)
        assert line.stats()["connects"] == 2
        line.close()


def test_replies_that_came_before_the_end_are_delivered(lines: list[SyncConnection]) -> None:
    """Of three requests in one round, two were answered; the third must not be repeated."""
    gate = threading.Event()

    def talk(peer: socket.socket) -> None:
        commands = commands_of(peer)
        for reply in HANDSHAKE:
            next(commands)
            peer.sendall(reply)
        next(commands)
        gate.wait(60)
        peer.sendall(b":1\r\n")
        for _ in range(3):
            next(commands)
        peer.sendall(b":2\r\n:3\r\n")

    results: list[Any] = []

    def ask(line: SyncConnection) -> None:
        try:
            results.append(line.ask(pack(b"INCR", b"n"), b"n", ONCE))
        except ConnectionFailed as error:
            results.append(str(error))

    with stranger(talk) as address:
        line = line_to(lines, address)
        threads = [threading.Thread(target=ask, args=(line,)) for _ in range(4)]
        threads[0].start()
        while not line._state.lead:
            time.sleep(0.001)
        for thread in threads[1:]:
            thread.start()
        while len(line._state.queue) < 3:
            time.sleep(0.001)
        gate.set()
        for thread in threads:
            thread.join()
        line.close()
    texts = [result for result in results if isinstance(result, str)]
    assert sorted(result for result in results if isinstance(result, int)) == [1, 2, 3]
    assert len(texts) == 1
    assert "may or may not" in texts[0]


def test_garbage_in_mid_stream_drops_the_connection(lines: list[SyncConnection]) -> None:
    with stranger(replying(*HANDSHAKE, b"HTTP/1.1 200 OK\r\n\r\n")) as address:
        line = line_to(lines, address)
        with pytest.raises(ConnectionFailed, match="not Redis's protocol"):
            line.ask(pack(b"INCR", b"n"), b"n", ONCE)
        assert line.stats()["open"] == 0
        line.close()


@pytest.mark.parametrize("alone", [True, False])
def test_a_reply_too_many_drops_the_connection(lines: list[SyncConnection], alone: bool) -> None:
    with stranger(replying(*HANDSHAKE, *[PONG] * alone, b":1\r\n:2\r\n")) as address:
        line = line_to(lines, address)
        if alone:  # the short way
            line.ask(pack(b"PING"))
        with pytest.raises(ConnectionFailed, match="more replies than"):
            line.ask(pack(b"INCR", b"n"), b"n", ONCE)
        line.close()


# ---- time limits


def test_a_frozen_server_takes_its_time_limit_and_no_reply_is_anothers(
    server: Server, lines: list[SyncConnection]
) -> None:
    line = line_to(lines, server, breaker_failures=0)
    line.ask(pack(b"PING"))
    impatient(line, 0.1)
    server.pause()
    try:
        with pytest.raises(ReplyTimeout, match="within"):
            line.ask(pack(b"ECHO", b"late"), None, READ)
    finally:
        server.resume()
    assert line.stats()["again"] == 0  # it is not asked twice
    assert line.stats()["connects"] == 1
    assert line.ask(pack(b"ECHO", b"new"), None, READ) == b"new"


def test_all_who_wait_for_a_frozen_server_are_told_within_both_limits(
    server: Server, lines: list[SyncConnection]
) -> None:
    line = line_to(lines, server, read_timeout_s=0.2, connect_timeout_s=0.2, breaker_failures=0)
    told: list[ReplyTimeout] = []

    def ask() -> None:
        with pytest.raises(ReplyTimeout) as caught:
            line.ask(pack(b"ECHO", b"late"), None, READ)
        told.append(caught.value)

    def answers() -> bool:
        with contextlib.suppress(EngineUnavailable):
            return line.ask(pack(b"PING"), None, READ) == b"PONG"
        return False

    def all_ask() -> None:
        threads = [threading.Thread(target=ask) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def frozen() -> float:
        wait_for(answers)
        server.pause()
        try:
            began = time.monotonic()
            all_ask()
            return time.monotonic() - began
        finally:
            server.resume()

    quickest(frozen, 0.4 + 0.2)
    assert len(told) % 20 == 0


def test_a_server_that_trickles_holds_nobody_for_ever(lines: list[SyncConnection]) -> None:
    def talk(peer: socket.socket) -> None:
        replying(*HANDSHAKE)(peer)
        while True:
            peer.sendall(b"$")
            time.sleep(0.02)

    with stranger(talk) as address:
        line = line_to(lines, address, read_timeout_s=0.1, breaker_failures=0)

        def trickling() -> float:
            began = time.monotonic()
            with pytest.raises((ReplyTimeout, ConnectionFailed)):
                line.ask(pack(b"GET", b"k"), b"k", ONCE)
            return time.monotonic() - began

        quickest(trickling, 1)
        line.close()


def test_a_leader_that_is_stuck_is_left_behind(server: Server, lines: list[SyncConnection]) -> None:
    line = line_to(lines, server)
    line.ask(pack(b"PING"))
    line._wait_s = 0.1
    stuck = line._state
    stuck.lead[0] = object()  # a greenlet whose thread has ended
    with pytest.raises(ReplyTimeout, match="behind other commands"):
        line.ask(pack(b"ECHO", b"x"), None, READ)
    line._wait_s = 40.0
    assert line.ask(pack(b"ECHO", b"x"), None, READ) == b"x"
    assert line.stats()["deposed"] == 1
    assert stuck.channel.recv(1) == b""  # whoever is blocked in it is not any more
    stuck.drop()


# ---- servers that are away


def test_an_outage_costs_microseconds_after_three_failures(lines: list[SyncConnection]) -> None:
    line = line_to(lines, Address(host="127.0.0.1", port=free_port()), breaker_s=30.0)
    for _ in range(3):
        with pytest.raises(ConnectionFailed):
            line.ask(pack(b"PING"))
    best_s = 1.0
    for _ in range(200):
        started = time.perf_counter()
        with pytest.raises(CircuitOpen, match="nothing listens there"):
            line.ask(pack(b"PING"))
        best_s = min(best_s, time.perf_counter() - started)
    assert best_s < 60e-6  # pytest.raises is most of it
    assert line.stats()["breaker_refused"] == 200


def test_after_an_outage_the_first_probe_brings_it_back(
    redis_directory: Any, lines: list[SyncConnection], eventually: Eventually
) -> None:
    with running(redis_directory) as server:
        line = line_to(lines, server, breaker_s=0.02)
        assert line.ask(pack(b"PING")) == b"PONG"
        server.kill()
        for _ in range(5):
            with pytest.raises((ConnectionFailed, CircuitOpen)):
                line.ask(pack(b"PING"), None, READ)
        server.start()
        server.wait_ready()

        def answers() -> bool:
            try:
                return bool(line.ask(pack(b"PING"), None, READ) == b"PONG")
            except (CircuitOpen, ConnectionFailed):
                return False

        eventually(answers)
        assert line.breaker.state == "closed"
        line.close()


def test_the_address_is_asked_for_at_every_connect(
    server: Server, lines: list[SyncConnection]
) -> None:
    asked: list[int] = []

    def resolve() -> Address:
        asked.append(1)
        if len(asked) == 2:
            raise ServerNotReady("the sentinels know no primary: wait for the failover")
        return Address(path=server.path)

    line = SyncConnection(Target(), Address(host="sentinel"), resolve=resolve)
    lines.append(line)
    assert line.ask(pack(b"PING")) == b"PONG"
    line.close()
    with pytest.raises(ServerNotReady, match="no primary"):
        line.ask(pack(b"PING"))
    assert line.ask(pack(b"PING")) == b"PONG"


# ---- closing


def test_closing_drops_the_connection_and_asking_makes_a_new_one(
    server: Server, line: SyncConnection
) -> None:
    line.ask(pack(b"PING"))
    line.close()
    assert line.stats()["open"] == 0
    assert line.ask(pack(b"PING")) == b"PONG"
    assert line.stats()["connects"] == 2


def test_closing_during_anothers_call_wins_when_that_is_over(
    server: Server, line: SyncConnection
) -> None:
    old = line.ask(pack(b"CLIENT", b"ID"))
    in_use_a_moment_ago(line)
    popped: list[Any] = []

    def pop() -> None:
        popped.append(line.ask(pack(b"BLPOP", b"list", b"0")))

    popping = threading.Thread(target=pop)
    popping.start()
    wait_for(lambda: int(server.ask("INFO", "clients").split("blocked_clients:")[1].split()[0]))
    line.close()
    with server.client() as client:
        client.rpush("list", "value")
    popping.join()
    assert popped == [[b"list", b"value"]]
    assert line.ask(pack(b"CLIENT", b"ID")) != old


def test_closing_while_it_is_in_use_takes_nobodys_reply(
    server: Server, line: SyncConnection
) -> None:
    stop, wrong = threading.Event(), []

    def work() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            if line.ask(pack(b"ECHO", b"%d" % number), None, READ) != b"%d" % number:
                wrong.append(number)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        line.close()
        time.sleep(0.001)
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_line_that_is_forgotten_closes_its_socket(server: Server) -> None:
    line = SyncConnection(Target(), Address(path=server.path))
    line.ask(pack(b"PING"))
    sock = line._state.channel.sock
    del line
    gc.collect()
    assert sock.fileno() == -1


def test_a_line_in_cyclic_garbage_closes_its_socket_without_a_warning(
    server: Server, recwarn: pytest.WarningsRecorder
) -> None:
    """As after an error whose frames hold it. Its socket is older, and would be finalized first."""
    line = SyncConnection(Target(), Address(path=server.path))
    line.ask(pack(b"PING"))
    sock = weakref.ref(line._state.channel.sock)
    cycle: list[Any] = [line._state.channel]
    cycle.append(cycle)
    del line, cycle
    gc.collect()
    assert sock() is None
    assert not recwarn.list


# ---- interrupts


# An interrupt may come inside redis-py's parser's __del__, which Python then prints and ignores.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_who_is_interrupted_stalls_nobody(server: Server, line: SyncConnection) -> None:
    line.ask(pack(b"MSET", *[b"%d" % number for number in range(20) for _ in "kv"]), None, SAFE)
    until, slow, wrong = time.monotonic() + 2, [], []

    def work() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        number = 0
        while time.monotonic() < until:
            number = (number + 1) % 20
            started = time.monotonic()
            if line.ask(pack(b"GET", b"%d" % number), None, READ) != b"%d" % number:
                wrong.append(number)
            # Who is left behind waits for the line's limits, 40 s.
            slow.extend([took] if (took := time.monotonic() - started) > 20 else [])

    class Hit(Exception): ...

    armed = False

    def hit(*_: Any) -> None:
        if armed:  # a signal that another thread took for us may come late
            raise Hit

    before, hits = signal.signal(signal.SIGALRM, hit), 0
    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    try:
        while hits <= 50 or time.monotonic() < until:
            try:
                try:
                    armed = True
                    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 0.005))
                    line.ask(pack(b"GET", b"1"), None, READ)
                finally:
                    armed = False
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Hit:
                hits += 1
    finally:
        for thread in threads:
            thread.join()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert hits > 50
    assert (wrong, slow) == ([], [])


@pytest.mark.parametrize("where", ["taken", "queued", "nowhere"])
def test_who_finds_that_nobody_leads_steps_in(line: SyncConnection, where: str) -> None:
    """As a leader leaves it that was interrupted while it mended an interrupt."""
    line.ask(pack(b"PING"))
    state = line._state
    left, lost = Request(b"", 0, READ), Request(pack(b"ECHO", b"x"), 1, READ)
    left.abandoned = True
    state.lead[0] = left
    state.channel.fresh_until = BUSY
    state.channel.send(pack(b"ECHO", b"left"))
    lost.taken = where == "taken"
    if where == "queued":
        state.queue.append(lost)
    while not lost.done:
        if state.lead.get(0) is lost:
            line._lead(state, lost)
        else:
            line._wait(state, lost)
    assert line.stats()["abandoned"] == 0  # it did not wait for the time limit
    assert lost.result() == [b"x"]
    assert not state.lead
    assert line.ask(pack(b"ECHO", b"y"), None, READ) == b"y"
