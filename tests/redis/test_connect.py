"""Connections: what redis-py makes is ours, and every failure says what it is and what to do."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nearcache.engines.redis.connection.connect import Connected, connect, connection_kwargs
from nearcache.engines.redis.protocol.resp import MORE, PythonReader, pack
from nearcache.engines.redis.target.target import Address, Target
from nearcache.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    EngineConfiguration,
    EngineError,
    ReplyTimeout,
    ServerMisconfigured,
    ServerNotReady,
)
from nearcache.lab.servers import free_port
from tests.redis.servers import Server, quickest, running, wait_for
from tests.redis.strangers import Certificate, certificate, commands_of, replying, stranger

SECRET = "s3cret-w0rd"


def at(server: Server) -> Address:
    return Address(host="127.0.0.1", port=server.port)


def failure(address: Address, **settings: Any) -> EngineError:
    times = {"connect_timeout_s": 20.0, "read_timeout_s": 20.0}  # a slow host is no fault
    with pytest.raises(EngineError) as caught:
        connect(Target(**times | settings), address).socket.close()
    assert str(address.port) in str(caught.value) or address.path in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    return caught.value


def asked(connected: Connected, *words: bytes) -> Any:
    connected.socket.sendall(pack(*words))
    while (reply := connected.reader.gets()) is MORE:
        connected.reader.feed(connected.socket.recv(65536))
    return reply


# ---- what works


@pytest.mark.parametrize("parser", ["hiredis", "python"])
@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("unix", [True, False])
def test_a_connection_answers(server: Server, parser: Any, protocol: Any, unix: bool) -> None:
    address = Address(path=server.path) if unix else at(server)
    connected = connect(Target(parser=parser, protocol=protocol), address)
    with connected.socket:
        assert asked(connected, b"ECHO", b"hello") == b"hello"
        assert isinstance(connected.reader, PythonReader) == (parser == "python")
        hello = asked(connected, b"CONFIG", b"GET", b"maxmemory")
        assert isinstance(hello, dict) == (protocol == 3)


def test_the_database_and_the_name_are_set(server: Server) -> None:
    target = Target(database=3, connection_kwargs=(("client_name", "mine"),))
    connected = connect(target, at(server))
    with connected.socket:
        info = asked(connected, b"CLIENT", b"INFO").decode()
    assert " db=3 " in info
    assert " name=mine " in info


def test_keepalive_is_on_unless_it_is_switched_off(server: Server) -> None:
    for wanted in (True, False):
        with connect(Target(keepalive=wanted), at(server)).socket as sock:
            on = sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert bool(on) == wanted


def test_arguments_suit_the_asyncio_classes_too() -> None:
    kwargs = connection_kwargs(Target(password="x", database=1), Address(path="/a.sock"))
    assert kwargs["path"] == "/a.sock"
    assert kwargs["protocol"] == 2
    assert "retry" not in kwargs
    assert "host" not in kwargs


# ---- nothing there


def test_refused() -> None:
    error = failure(Address(host="127.0.0.1", port=free_port()))
    assert type(error) is ConnectionFailed
    assert "is the server running" in str(error)
    assert error.__cause__ is not None


def test_no_such_socket(tmp_path: Path) -> None:
    error = failure(Address(path=str(tmp_path / "no.sock")))
    assert type(error) is ConnectionFailed
    assert "there is no such socket" in str(error)


def test_no_such_name() -> None:
    error = failure(Address(host="no-such-host.invalid"))
    assert type(error) is ConnectionFailed
    assert "name is not known" in str(error)


def test_nobody_accepts_in_time() -> None:
    # A queue of length 0 that is full: the kernel lets the next one wait.
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", free_port()))
        listener.listen(0)
        address = Address(host="127.0.0.1", port=listener.getsockname()[1])
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex((address.host, address.port))
        error = failure(address, connect_timeout_s=0.1)
        assert type(error) is ConnectionFailed
        assert "within 0.1 s" in str(error)
        for each in waiting:
            each.close()


def test_a_frozen_server_takes_one_time_limit(server: Server) -> None:
    def ask() -> float:
        began = time.monotonic()
        error = failure(at(server), read_timeout_s=0.2)
        assert type(error) is ReplyTimeout
        assert "overloaded or frozen" in str(error)
        return time.monotonic() - began

    server.pause()
    try:
        quickest(ask, 0.39)  # not two of them
    finally:
        server.resume()


# ---- not let in


@pytest.fixture(scope="module")
def guarded(redis_directory: Path) -> Iterator[Server]:
    server = Server(redis_directory, ("--requirepass", SECRET))
    server.start()
    try:
        server.wait_ready(password=SECRET)
        with server.client(password=SECRET) as client:
            client.execute_command("ACL", "SETUSER", "reader", "on", f">{SECRET}", "+get", "~*")
        yield server
    finally:
        server.kill()


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_password_lets_in(guarded: Server, protocol: Any) -> None:
    connect(Target(password=SECRET, protocol=protocol), at(guarded)).socket.close()


def test_a_user_who_may_not_ping_is_let_in(guarded: Server) -> None:
    connected = connect(Target(username="reader", password=SECRET), at(guarded))
    with connected.socket:
        assert asked(connected, b"GET", b"k") is None


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize(
    "who", [{}, {"password": "wrong"}, {"username": "joe", "password": "wrong"}]
)
def test_a_wrong_password(guarded: Server, who: dict[str, str], protocol: Any) -> None:
    error = failure(at(guarded), protocol=protocol, **who)
    assert type(error) is AuthenticationFailed
    assert "PASSWORD" in str(error)
    assert error.__cause__ is not None


def test_a_password_where_none_is_wanted(server: Server) -> None:
    error = failure(at(server), password=SECRET)
    assert type(error) is AuthenticationFailed
    assert "the server has no password" in str(error)


def test_a_server_that_repeats_the_password_in_its_error() -> None:
    reply = f"-ERR unknown command 'AUTH', with args beginning with: '{SECRET}' \r\n"
    with stranger(replying(reply.encode())) as address:
        error = failure(address, password=SECRET)
    assert isinstance(error, EngineConfiguration)


# ---- another server than the settings say


def test_no_such_database(server: Server) -> None:
    error = failure(at(server), database=99)
    assert type(error) is ServerMisconfigured
    assert "fewer databases" in str(error)


@pytest.mark.parametrize(
    "greeting",
    [
        b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2p1\r\n",
        b"\x00\x01\x02\xff\xfe",
    ],
    ids=["HTTP", "SSH", "bytes"],
)
def test_a_server_that_is_no_redis(greeting: bytes) -> None:
    with stranger(replying(greeting)) as address:
        error = failure(address)
    assert type(error) is ServerMisconfigured
    assert "does not speak Redis's protocol" in str(error)


def test_a_server_that_answers_more_than_it_was_asked() -> None:
    with stranger(replying(b"+OK\r\n", b"+OK\r\n", b"+PONG\r\n+PONG\r\n")) as address:
        assert type(failure(address)) is ServerMisconfigured


def test_a_server_that_hangs_up() -> None:
    with stranger(lambda peer: None) as address:
        assert type(failure(address)) is ConnectionFailed


def test_a_server_that_says_nothing() -> None:
    def listen(peer: socket.socket) -> None:
        list(commands_of(peer))

    with stranger(listen) as address:
        error = failure(address, read_timeout_s=0.1)
    assert type(error) is ReplyTimeout
    assert "no Redis" in str(error)


def test_an_option_that_redis_py_does_not_know(server: Server) -> None:
    error = failure(at(server), connection_kwargs=(("sokcet_type", 1),))
    assert type(error) is ServerMisconfigured
    assert "sokcet_type" in str(error)


# ---- TLS


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def tls_address(redis_directory: Path, files: Certificate) -> Iterator[Address]:
    port = free_port()
    with running(redis_directory, "--tls-port", str(port), *files.server_arguments):
        yield Address(host="127.0.0.1", port=port)


def trusting(files: Certificate) -> dict[str, Any]:
    return {"tls": True, "connection_kwargs": (("ssl_ca_certs", str(files.cert)),)}


def test_tls(tls_address: Address, files: Certificate) -> None:
    connected = connect(Target(**trusting(files)), tls_address)
    with connected.socket:
        assert asked(connected, b"ECHO", b"x" * 100_000) == b"x" * 100_000


def test_tls_with_an_unknown_authority(tls_address: Address) -> None:
    error = failure(tls_address, tls=True)
    assert type(error) is ServerMisconfigured
    assert "ssl_ca_certs" in str(error)


def test_tls_wanted_by_the_server_only(tls_address: Address) -> None:
    error = failure(tls_address)
    assert type(error) is ServerMisconfigured
    assert "speaks TLS: use rediss://" in str(error)


def test_tls_wanted_by_the_settings_only(server: Server) -> None:
    def is_found_out() -> bool:
        # The greeting takes its whole time limit. Who asks then has no more than that either.
        error = failure(at(server), tls=True, connect_timeout_s=0.3, read_timeout_s=0.3)
        return type(error) is ServerMisconfigured and "use redis://" in str(error)

    wait_for(is_found_out, "does not speak TLS: use redis://")


# ---- not now


@pytest.mark.parametrize("unix", [True, False])
def test_too_many_clients(server: Server, unix: bool) -> None:
    with server.client() as only:
        only.config_set("maxclients", 1)
        try:
            error = failure(Address(path=server.path) if unix else at(server))
        finally:
            only.config_set("maxclients", 1000)
    assert type(error) is ServerNotReady
    assert "raise maxclients" in str(error)


def listens(path: str) -> bool:
    """Its socket has a name before anybody may connect to it."""
    with socket.socket(socket.AF_UNIX) as caller:
        return not caller.connect_ex(path)


def test_a_server_that_still_loads_its_data(redis_directory: Path) -> None:
    with running(redis_directory) as server, server.client() as client:
        client.mset({f"k{number}": "v" for number in range(3000)})
        client.save()
        file = str(client.config_get("dbfilename")["dbfilename"])
    slow = ("--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024")
    server = Server(redis_directory, (*slow, "--dbfilename", file))
    server.start()
    try:
        wait_for(lambda: listens(server.path), "it listens")
        error = failure(Address(path=server.path))
    finally:
        server.kill()
    assert type(error) is ServerNotReady
    assert "LOADING" in str(error)


# ---- signals


RAISING = """
import random, signal, time
from nearcache.engines.redis.connection.clients import standalone_client
from nearcache.engines.redis.connection.connect import connect
from nearcache.engines.redis.target.target import Address, Target

class Hit(Exception): ...
def hit(*_): raise Hit
signal.signal(signal.SIGALRM, hit)
address, hits = Address(path={path!r}), 0
target = Target(database=7, protocol=3, connect_timeout_s=20.0, read_timeout_s=20.0)
raw, began = standalone_client(target, address), time.monotonic()
def once(work, most_s):
    global hits
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, most_s))
        work()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Hit:
        hits += 1
def greet(): connect(target, address).socket.close()
def pack(): pool.pack_command("SET", "k", *[12345] * 100)
pool = raw.connection_pool.get_connection()
while hits <= 100 or time.monotonic() - began < 2:
    assert time.monotonic() - began < 60, hits
    once(greet, 0.001)
    for _ in range(20): once(pack, 0.0001)
signal.setitimer(signal.ITIMER_REAL, 0)
assert raw.client_info()["db"] == 7
"""


def test_a_signal_handler_that_raises_during_the_handshake_crashes_nothing(server: Server) -> None:
    """hiredis does not survive it where it is given numbers."""
    program = RAISING.format(path=server.path)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
