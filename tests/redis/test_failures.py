"""Bad input: each has its own error, which says what to do, by plain calls and from coroutines."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nearcache import errors
from nearcache.engines.redis.engine import RedisEngine
from nearcache.engines.redis.target.target import Address, Target
from nearcache.engines.redis.topology.standalone import Standalone
from nearcache.lab.servers import free_port
from tests.redis.askers import Plain
from tests.redis.servers import Certificates, Server, running, wait_for

Ask = Callable[[Any], Plain]
Engine = Callable[..., Any]

SECRET = "s3cret-word"


@pytest.fixture
def engine(asker: Ask) -> Engine:
    """Makes a function that calls (or awaits) methods of an engine; a slow host is no fault."""

    def make(address: Address | Server, **fields: Any) -> Any:
        where = Address(path=address.path) if isinstance(address, Server) else address
        limits = {"connect_timeout_s": 20.0, "read_timeout_s": 20.0}
        topology = Standalone(Target(addresses=(where,), **(limits | fields)))
        made = RedisEngine(topology)
        made.close = topology.close  # type: ignore[attr-defined]
        return asker(made).run

    return make


def port(number: int) -> Address:
    return Address(host="127.0.0.1", port=number)


def fails(run: Any, kind: type[Exception], *words: str, times: int = 2) -> str:
    """The message. It is the same kind every time, also once the circuit is open."""
    with pytest.raises(kind) as caught:
        run("get", b"key")
    assert type(caught.value) is kind
    said = str(caught.value)
    assert all(word in said for word in words), said
    assert SECRET not in said
    for _ in range(times - 1):
        with pytest.raises(
            kind if issubclass(kind, errors.EngineConfiguration) else errors.EngineUnavailable
        ):
            run("get", b"key")
    return said


# ---- no server


def test_nobody_listens(engine: Engine) -> None:
    number = free_port()
    fails(engine(port(number)), errors.ConnectionFailed, str(number), "nothing listens there")


def test_there_is_no_such_socket(engine: Engine) -> None:
    fails(engine(Address(path="/nowhere/redis.sock")), errors.ConnectionFailed, "no such socket")


def test_there_is_no_such_host(engine: Engine) -> None:
    where = Address(host="nowhere.invalid")
    # A busy resolver may need longer than this test gives it.
    with pytest.raises(errors.ConnectionFailed, match=r"nowhere\.invalid"):
        engine(where)("get", b"key")


def test_nobody_takes_the_connection(engine: Engine) -> None:
    with socket.socket() as full, contextlib.ExitStack() as waiting:
        full.bind(("127.0.0.1", free_port()))
        full.listen(0)
        for _ in range(4):  # more than its queue takes
            client = waiting.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        run = engine(port(full.getsockname()[1]), connect_timeout_s=0.3)
        fails(run, errors.ConnectionFailed, "within 0.3 s", "SOCKET_CONNECT_TIMEOUT", times=1)


def test_an_outage_is_told_without_asking(engine: Engine) -> None:
    run = engine(port(free_port()), breaker_s=600.0)
    for _ in range(3):
        with pytest.raises(errors.ConnectionFailed):
            run("get", b"key")
    for _ in range(50):
        with pytest.raises(errors.CircuitOpen, match="3 times in a row"):
            run("get", b"key")


# ---- another server than expected


@pytest.fixture
def guarded(redis_directory: Path) -> Iterator[Server]:
    with running(redis_directory, "--requirepass", SECRET) as server:
        server.ask("ACL", "SETUSER", "me", "on", f">{SECRET}", "~mine:*", "+@all", password=SECRET)
        yield server


def test_passwords(guarded: Server, engine: Engine) -> None:
    fails(engine(guarded), errors.AuthenticationFailed, "NOAUTH", "PASSWORD")
    fails(engine(guarded, password="wrong"), errors.AuthenticationFailed, "PASSWORD")
    fails(engine(guarded, username="you", password=SECRET), errors.AuthenticationFailed)
    assert engine(guarded, password=SECRET)("get", b"key") is None


def test_rights(guarded: Server, engine: Engine) -> None:
    run = engine(guarded, username="me", password=SECRET)
    assert run("get", b"mine:key") is None
    fails(run, errors.NotPermitted, "NOPERM", "ACL SETUSER", "GET key")
    assert run("get", b"mine:key") is None


def test_a_password_that_nobody_asked_for(server: Server, engine: Engine) -> None:
    fails(engine(server, password=SECRET), errors.AuthenticationFailed, "no password")


def test_a_database_that_is_not_there(server: Server, engine: Engine) -> None:
    fails(engine(server, database=99), errors.ServerMisconfigured, "fewer databases")


def test_a_node_of_a_cluster(redis_directory: Path, engine: Engine) -> None:
    more = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    file = ("--cluster-config-file", f"lonely-{free_port()}.conf")
    with running(redis_directory, *more, *file) as node:
        fails(engine(node, database=1), errors.ServerMisconfigured, "database 0 only")


def test_tls_where_there_is_none(server: Server, engine: Engine) -> None:
    # The greeting takes its whole time limit. Who asks then has no more than that either.
    run = engine(port(server.port), tls=True, connect_timeout_s=0.3, read_timeout_s=0.3)
    wait_for(lambda: type(reply_of(run, "get", b"key")) is errors.ServerMisconfigured, "the cause")
    fails(run, errors.ServerMisconfigured, "does not speak TLS", "redis://")


def test_no_tls_where_there_is(
    redis_directory: Path, certificates: Certificates, engine: Engine
) -> None:
    number = free_port()
    with running(redis_directory, *certificates.options(number)):
        fails(engine(port(number)), errors.ServerMisconfigured, "speaks TLS", "rediss://")


@contextlib.contextmanager
def answering(words: bytes) -> Iterator[Address]:
    """A server that says these words to whatever it is asked."""
    with socket.create_server(("127.0.0.1", free_port())) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    with client, contextlib.suppress(OSError):
                        client.settimeout(20)
                        client.recv(1024)
                        client.sendall(words)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield port(listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize(
    "words",
    [
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"ERROR\r\n",
        bytes(range(256)),
    ],
    ids=["http", "ssh", "memcached", "noise"],
)
def test_what_answers_is_no_redis(words: bytes, engine: Engine) -> None:
    with answering(words) as address:
        fails(engine(address), errors.ServerMisconfigured, "does not speak Redis's protocol")


def test_what_answers_says_nothing_and_goes(engine: Engine) -> None:
    with answering(b"") as address:
        fails(engine(address), errors.ConnectionFailed, str(address))


# ---- a server that cannot now


def test_a_server_that_hangs(server: Server, engine: Engine) -> None:
    short = {"connect_timeout_s": 0.3, "read_timeout_s": 0.3}
    run = engine(server, **short)
    wait_for(lambda: reply_of(run, "get", b"key") is None, "it answers")
    server.pause()
    try:
        fails(run, errors.ReplyTimeout, "0.3 s", times=1)
        fails(engine(server, **short), errors.ReplyTimeout, times=1)  # in the handshake
    finally:
        server.resume()
    wait_for(lambda: reply_of(run, "get", b"key") is None, "it answers again")


def reply_of(run: Any, *words: Any) -> Any:
    try:
        return run(*words)
    except errors.EngineError as error:
        return error


def test_a_server_that_loads_its_data(redis_directory: Path, engine: Engine) -> None:
    number = free_port()
    with running(redis_directory, "--dbfilename", f"{number}.rdb") as server:
        with server.client() as client:
            client.mset({f"key:{n}": "value" for n in range(20_000)})
        server.ask("SAVE")
        server.kill()
        # Slower by this many microseconds per key: it is still loading when it is asked.
        server.arguments += (
            "--key-load-delay",
            "300",
            "--loading-process-events-interval-bytes",
            "1024",
        )
        server.start()
        run = engine(server, breaker_failures=0)
        seen: list[str] = []

        def loading() -> bool:
            reply = reply_of(run, "get", b"key")
            seen.append(f"{type(reply).__name__}: {reply}")
            return isinstance(reply, errors.ServerNotReady) and "LOADING" in str(reply)

        wait_for(loading, "LOADING")
        server.ask("CONFIG", "SET", "key-load-delay", "0")
        wait_for(lambda: reply_of(run, "get", b"key:1") == b"value", "loaded")


def test_a_full_server(redis_directory: Path, engine: Engine) -> None:
    with running(redis_directory, "--maxmemory-policy", "noeviction") as server:
        run = engine(server)
        assert run("set", b"key", b"value", None)
        server.ask("CONFIG", "SET", "maxmemory", "1")
        for _ in range(5):
            with pytest.raises(errors.ServerNotReady, match=r"OOM.*maxmemory"):
                run("set", b"key", b"value", None)
            assert run("get", b"key") == b"value"  # no outage: reading goes on


def test_a_primary_that_was_demoted(pair: list[Server], engine: Engine) -> None:
    run = engine(pair[0])
    assert run("set", b"key", b"value", None)
    pair[0].ask("REPLICAOF", "127.0.0.1", pair[1].port)
    with pytest.raises(errors.ServerNotReady, match=r"READONLY.*failover"):
        run("set", b"key", b"other", None)
    pair[0].ask("REPLICAOF", "NO", "ONE")
    assert run("set", b"key", b"other", None)


def test_a_replica_without_its_primary(pair: list[Server], engine: Engine) -> None:
    pair[1].ask("CONFIG", "SET", "replica-serve-stale-data", "no")
    pair[1].ask("REPLICAOF", "127.0.0.1", 1)
    fails(engine(pair[1]), errors.ServerNotReady, "MASTERDOWN")


def test_too_many_clients(redis_directory: Path, engine: Engine) -> None:
    with running(redis_directory, "--maxclients", "1") as server:
        with server.client(protocol=2) as only:
            wait_for(only.ping, "the connection that looked whether it is ready is gone")
            fails(engine(server), errors.ServerNotReady, "maxclients")
        wait_for(lambda: reply_of(engine(server), "get", b"key") is None, "room for one")


def test_a_server_that_cannot_save(redis_directory: Path, engine: Engine) -> None:
    more = ("--save", "3600 1", "--enable-protected-configs", "yes")
    with running(redis_directory, *more) as server:
        run = engine(server)
        server.ask("CONFIG", "SET", "dir", "/proc")
        server.ask("SET", "key", "value")
        server.ask("BGSAVE")
        wait_for(lambda: "rdb_last_bgsave_status:err" in server.ask("INFO"), "a failed save")
        with pytest.raises(errors.ServerNotReady, match="MISCONF"):
            run("set", b"key", b"value", None)


def test_a_script_that_does_not_end(redis_directory: Path, engine: Engine) -> None:
    with running(redis_directory, "--busy-reply-threshold", "1") as server:
        run = engine(server)
        assert run("get", b"key") is None
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as busy:
            busy.connect(server.path)
            busy.sendall(b'EVAL "while true do end" 0\r\n')
            wait_for(lambda: "BUSY" in str(reply_of(run, "get", b"key")), "a busy server")
            fails(run, errors.ServerNotReady, "BUSY", "SCRIPT KILL")
            server.ask("SCRIPT", "KILL")
            assert b"killed" in busy.recv(1024).lower()
        assert run("get", b"key") is None


# ---- data


def test_a_key_that_holds_something_else(server: Server, engine: Engine) -> None:
    server.ask("RPUSH", "key", "value")
    server.ask("SET", "text", "value")
    run = engine(server)
    with pytest.raises(errors.DataError, match="WRONGTYPE"):
        run("get", b"key")
    with pytest.raises(errors.DataError, match="not an integer"):
        run("incr", b"text", 1)
