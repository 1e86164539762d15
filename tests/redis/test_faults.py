"""Error replies become errors of the right branch, with advice. Replies are a real server's."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

from nearcache.engines.redis.connection.channel import Channel, Exchange
from nearcache.engines.redis.connection.connect import connect
from nearcache.engines.redis.protocol import faults
from nearcache.engines.redis.protocol.resp import ErrorReply, ProtocolError, pack
from nearcache.engines.redis.target.target import Address, Target
from nearcache.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    DataError,
    EngineError,
    NotPermitted,
    ReplyTimeout,
    ServerMisconfigured,
    ServerNotReady,
)
from tests.redis.servers import Server

PATIENT = Target(connect_timeout_s=20.0, read_timeout_s=20.0)
"""A slow host is no fault."""


def error_for(server: Server, *words: bytes) -> EngineError:
    """The error for what the server replies to the last of these commands, ";" between them."""
    channel = Channel(connect(PATIENT, Address(path=server.path)), 20.0)
    commands = [command.split() for command in b" ".join(words).split(b";")]
    exchange = Exchange(b"".join(pack(*words) for words in commands), len(commands))
    channel.exchange = exchange
    channel.carry()
    channel.close()
    reply = exchange.replies[-1]
    assert isinstance(reply, ErrorReply), reply
    error = faults.error_of(reply)
    assert error.__cause__ is reply
    return error


@pytest.mark.parametrize(
    ("command", "kind", "advice"),
    [
        (b"LPUSH list x ; GET list", DataError, "somebody else's"),
        (b"LPUSH list x ; INCR list", DataError, "somebody else's"),
        (b"SET text abc ; INCR text", DataError, "no counter"),
        (b"SET most 9223372036854775807 ; INCR most", DataError, "64 bits"),
        (b"SET text abc ; INCRBYFLOAT text 1", DataError, "no number"),
        (b"SELECT 99", ServerMisconfigured, "fewer databases"),
        (b"CLUSTER SLOTS", ServerMisconfigured, "no node of a cluster"),
        (b"NONSENSE s3cret", ServerMisconfigured, "too old"),
        (b"AUTH joe s3cret", AuthenticationFailed, "PASSWORD"),
        (b"CONFIG SET maxmemory 1 ; SET k v", ServerNotReady, "maxmemory"),
        (b"CONFIG SET min-replicas-to-write 1 ; SET k v", ServerNotReady, "replicas"),
        (b"REPLICAOF 127.0.0.1 1 ; SET k v", ServerNotReady, "this is a replica"),
        (
            b"REPLICAOF 127.0.0.1 1 ; CONFIG SET replica-serve-stale-data no ; GET k",
            ServerNotReady,
            "lost its primary",
        ),
        (b"ACL SETUSER default -get ; GET k", NotPermitted, "ACL SETUSER"),
    ],
    ids=lambda value: value.decode() if isinstance(value, bytes) else "",
)
def test_replies_of_a_server(
    server: Server, command: bytes, kind: type[EngineError], advice: str
) -> None:
    try:
        error = error_for(server, command)
    finally:
        mend(server)
    assert type(error) is kind
    assert advice in str(error)
    assert "s3cret" not in str(error)


def mend(server: Server) -> None:
    with server.client() as client:
        client.replicaof("NO", "ONE")
        for name, value in (("maxmemory", 0), ("min-replicas-to-write", 0)):
            client.config_set(name, value)
        client.config_set("replica-serve-stale-data", "yes")
        client.execute_command("ACL", "SETUSER", "default", "+@all")


def test_a_server_that_runs_a_script_for_too_long(server: Server) -> None:
    with server.client() as client, server.client(socket_timeout=90) as busy:
        client.config_set("busy-reply-threshold", 1)

        def loop() -> None:
            with contextlib.suppress(Exception):
                busy.eval("while true do end", 0)

        script = threading.Thread(target=loop)
        script.start()
        try:
            give_up_at = time.monotonic() + 60
            while True:
                try:
                    error = error_for_ping(server)
                except AssertionError:  # not busy yet
                    assert time.monotonic() < give_up_at
                else:
                    break
        finally:
            client.script_kill()
            script.join()
    assert type(error) is ServerNotReady
    assert "SCRIPT KILL" in str(error)


def error_for_ping(server: Server) -> EngineError:
    try:
        connect(PATIENT, Address(path=server.path)).socket.close()
    except ServerNotReady as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("LOADING Redis is loading the dataset in memory", ServerNotReady),
        ("CLUSTERDOWN The cluster is down", ServerNotReady),
        ("TRYAGAIN Multiple keys request during rehashing of slot", ServerNotReady),
        ("MISCONF Redis is configured to save RDB snapshots", ServerNotReady),
        ("ERR max number of clients reached", ServerNotReady),
        ("MOVED 3999 127.0.0.1:6381", ServerMisconfigured),
        ("CROSSSLOT Keys in request don't hash to the same slot", ServerMisconfigured),
        ("NOPROTO unsupported protocol version", ServerMisconfigured),
        ("NOAUTH Authentication required.", AuthenticationFailed),
        ("ERR invalid password", AuthenticationFailed),
        ("NOSCRIPT No matching script. Please use EVAL.", EngineError),
        ("SOMETHING that no server says yet", EngineError),
        ("", EngineError),
    ],
)
def test_other_replies(reply: str, kind: type[EngineError]) -> None:
    assert type(faults.error_of(ErrorReply(reply))) is kind


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (BlockingIOError(11, "try again"), ReplyTimeout, "within 2 s"),
        (TimeoutError("timed out"), ReplyTimeout, "SLOWLOG"),
        (EOFError(), ConnectionFailed, "closed the connection"),
        (ConnectionResetError(104, "reset by peer"), ConnectionFailed, "reset by peer"),
        (ProtocolError("no reply begins with b'H'"), ConnectionFailed, "not Redis's protocol"),
    ],
)
def test_broken_connections(error: Exception, kind: type[EngineError], says: str) -> None:
    mapped = faults.broken(error, "here:1", 2.0)
    assert type(mapped) is kind
    assert says in str(mapped)
    assert "here:1" in str(mapped)
    assert mapped.__cause__ is error


def test_a_copy_has_the_same_cause_and_says_what_may_have_happened() -> None:
    error = faults.broken(EOFError(), "here:1", 2.0)
    assert str(faults.again(error)) == str(error)
    assert faults.again(error) is not error
    copy = faults.uncertain(error)
    assert type(copy) is ConnectionFailed
    assert copy.__cause__ is error.__cause__
    assert "may or may not have been carried out" in str(copy)


def test_errors_that_are_each_other_s_cause_end_the_search() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert faults.os_error(first) is None
    second.__cause__ = refused = ConnectionRefusedError()
    assert faults.os_error(first) is refused
