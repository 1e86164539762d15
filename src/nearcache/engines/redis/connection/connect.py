"""redis-py makes the connection, we take its socket.

Names, addresses, TLS, users, HELLO, SELECT, CLIENT SETINFO and keepalive are left to redis-py and
its options. The result is a connected socket that has answered PING through our own reader. So a
server that is no Redis, is loading, or wants something else of us says so here, and not in the
middle of a request.

If the handshake fails for no stated reason, one more connection finds out which side speaks TLS and
which does not. Nothing else tells that.
"""

from __future__ import annotations

import contextlib

# `getaddrinfo` would import it at the first connection. A child that is forked meanwhile without
# Python's hooks inherits the lock of that import, and waits for it for ever.
import encodings.idna  # noqa: F401
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from nearcache.base.per_process import generation, nowhere, when_forked
from nearcache.engines.redis.protocol import faults
from nearcache.engines.redis.protocol.resp import MORE, ErrorReply, Reader, make_reader
from nearcache.engines.redis.target.target import Address, Target
from nearcache.errors import ConnectionFailed, EngineError, ReplyTimeout, ServerMisconfigured

try:
    from redis.maint_notifications import MaintNotificationsConfig
except ImportError:  # redis-py before 7
    QUIET: dict[str, Any] = {}
else:
    # Such a notification would move the connection to another server without our knowledge.
    QUIET = {"maint_notifications_config": MaintNotificationsConfig(enabled=False)}

try:
    import hiredis  # noqa: F401 - redis-py packs with it if it is installed
    from redis.connection import HiredisRespSerializer
except ImportError:
    PACKING: dict[str, Any] = {}
else:

    class _TextPacker(HiredisRespSerializer):
        """hiredis (3.5) crashes if a signal handler raises while it packs an int."""

        def pack(self, *words: Any) -> Any:
            texts: list[Any] = [str(word) if type(word) is int else word for word in words]
            return super().pack(*texts)

    # For SELECT and HELLO, and for what the users of our clients send.
    PACKING = {"command_packer": _TextPacker()}

PING = b"*1\r\n$4\r\nPING\r\n"
READ_BYTES = 65536
GREETING_S = 0.1


class Connected(NamedTuple):
    """A socket that has redis-py's timeouts still, and a reader without bytes left in it."""

    socket: Any
    reader: Reader


def connection_kwargs(target: Target, address: Address) -> dict[str, Any]:
    """Arguments of redis-py's connection classes, plain and asyncio, but class and retry."""
    if address.path:
        place: dict[str, Any] = {"path": address.path}
    else:
        place = {
            "host": address.host,
            "port": address.port,
            "socket_keepalive": target.keepalive,
        }
    return {
        **place,
        **QUIET,
        "db": target.database,
        "username": target.username,
        "password": target.password,
        "protocol": target.protocol,
        "socket_timeout": target.read_timeout_s,
        "socket_connect_timeout": target.connect_timeout_s,
        **dict(target.connection_kwargs),
    }


def connection_class(target: Target, address: Address, library: Any = redis) -> Any:
    """The class that ``redis`` or ``redis.asyncio`` has for connections to that place."""
    if address.path:
        return library.UnixDomainSocketConnection
    return library.SSLConnection if target.tls else library.Connection


def connect(target: Target, address: Address) -> Connected:
    """A connection that has answered PING.

    Raises :class:`~nearcache.errors.ConnectionFailed`, ``ReplyTimeout``, ``ServerNotReady``,
    ``AuthenticationFailed`` or ``ServerMisconfigured``, with the foreign error as cause.
    """
    sock = None
    try:
        sock = _socket(target, address)
        reader = make_reader(target.parser)
        with _put_away_by_forks(lambda: sock):
            _ping(sock, reader, str(address))
    except faults.FOREIGN as error:
        _close(sock)
        mapped = faults.connecting(error, target, address)
        raise found_out(mapped, target, address) from mapped.__cause__
    except BaseException:  # interrupted: gevent.Timeout raises whatever it was made with
        _close(sock)
        raise
    return Connected(sock, reader)


def _socket(target: Target, address: Address) -> Any:
    kwargs, kind = connection_kwargs(target, address), connection_class(target, address)
    own, process = kwargs.pop("redis_connect_func", None), generation()

    def greet(connection: Any) -> None:
        if generation() != process:
            raise ConnectionFailed(f"{address}: this process was forked while it connected")
        (own or kind.on_connect)(connection)

    arguments = {"retry": Retry(NoBackoff(), 0), **PACKING, **kwargs, "redis_connect_func": greet}
    try:
        owner = kind(**arguments)
    except TypeError as error:
        raise ServerMisconfigured(
            f"redis-py cannot make a connection to {address} with these options: {error}"
        ) from error
    try:
        with _put_away_by_forks(lambda: owner._sock):
            owner.connect()
        # Taken from its owner: redis-py shuts down what its objects hold when they are collected.
        sock, owner._sock = owner._sock, None  # there is no public way
    finally:
        owner.disconnect()
    return sock


_connecting: list[tuple[int, Callable[[], Any]]] = []


@contextlib.contextmanager
def _put_away_by_forks(sock: Callable[[], Any]) -> Iterator[None]:
    """A greenlet that connects goes on in a forked child as a copy, on the parent's socket."""
    mine = (generation(), sock)
    _connecting.append(mine)
    try:
        yield
    finally:
        _connecting.remove(mine)


@when_forked
def _put_away_the_parents() -> None:
    for process, sock in _connecting:
        if process != generation():
            put_away(sock())


def put_away(sock: Any) -> None:
    """In a forked child: leaves what comes to that socket to the parent.

    It is not enough to close a socket of gevent's: gevent closes it when its loop has run, and a
    copy of a greenlet that is due to read runs before that.
    """
    if sock is not None:
        nowhere(sock.fileno())


def _ping(sock: Any, reader: Reader, where: str) -> None:
    sock.sendall(PING)
    while (reply := reader.gets()) is MORE:
        data = sock.recv(READ_BYTES)
        if not data:
            raise ConnectionFailed(f"{where} closed the connection during the handshake")
        reader.feed(data)
    check_pong(reply, reader, where)


def check_pong(reply: Any, reader: Reader, where: str) -> None:
    """Raises unless the reply is that of a Redis to PING, and no bytes came behind it."""
    if isinstance(reply, ErrorReply):
        # A user without the right to PING can do all else.
        if reply.code != "NOPERM":
            raise faults.refused(reply, where)
    elif reply != b"PONG" or reader.has_data():
        raise faults.not_redis(where)


def _close(sock: Any) -> None:
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.close()


# ---- finding out why


def found_out(error: EngineError, target: Target, address: Address) -> EngineError:
    """The error, or one that says more if the server answered and gave no reason."""
    where = str(address)
    if not faults.is_mute(error):
        return error
    if target.tls:
        return faults.tls_unexpected(where) if _answers_plainly(target, address) else error
    if isinstance(error, ReplyTimeout):
        return error  # and not TLS: a server that expects it would have hung up
    greeting = _greeting(target, address)
    if greeting[:1] == b"-":
        return faults.refused(ErrorReply(greeting[1:].decode(errors="replace").strip()), where)
    if not address.path and _answers_tls(target, address):
        return faults.tls_expected(where)
    return error


def _greeting(target: Target, address: Address) -> bytes:
    """What the server says unasked: "max number of clients" gets lost if we speak as well."""
    with contextlib.suppress(OSError), _bare(target, address) as sock:
        sock.settimeout(min(GREETING_S, target.read_timeout_s))
        return sock.recv(512)
    return b""


def _answers_plainly(target: Target, address: Address) -> bool:
    with contextlib.suppress(OSError), _bare(target, address) as sock:
        sock.sendall(PING)
        return sock.recv(64)[:1] in (b"+", b"-")
    return False


def _answers_tls(target: Target, address: Address) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent over it
    with contextlib.suppress(OSError), _bare(target, address) as sock:
        try:
            context.wrap_socket(sock, server_hostname=address.host).close()
        except ssl.SSLError as error:
            # A server that wants a client's certificate speaks TLS as well.
            return "ALERT" in (error.reason or "")
        return True
    return False


def _bare(target: Target, address: Address) -> socket.socket:
    if not address.path:
        return socket.create_connection((address.host, address.port), target.connect_timeout_s)
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(target.connect_timeout_s)
        sock.connect(address.path)
    except BaseException:
        sock.close()
        raise
    return sock
