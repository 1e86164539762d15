"""Error replies and broken connections as our errors. Each error says what to do next.

    error_of      for an error reply of a server
    connecting    for what redis-py raised while it connected
    broken        for what happened to a connection in use

Sources: the server's ``src/server.c`` (``createSharedObjects``), its command files, and the
exceptions of redis-py 5.2 to 8.1.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import Iterator

from redis import exceptions

from nearcache.engines.redis.protocol.resp import ErrorReply, ProtocolError
from nearcache.engines.redis.target.target import Address, Target
from nearcache.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    DataError,
    EngineError,
    EngineUnavailable,
    NotPermitted,
    ReplyTimeout,
    ServerMisconfigured,
    ServerNotReady,
)

Advice = tuple[type[EngineError], str]

_BY_CODE: dict[str, Advice] = {
    "NOAUTH": (AuthenticationFailed, "the server wants a password: set PASSWORD in OPTIONS"),
    "WRONGPASS": (AuthenticationFailed, "check USERNAME and PASSWORD"),
    "NOPERM": (NotPermitted, "grant it with ACL SETUSER; docs/redis.md has the rules"),
    "DENIED": (AuthenticationFailed, "protected mode: set a password on the server, or bind it"),
    "LOADING": (ServerNotReady, "it reads its data from disk: wait"),
    "MASTERDOWN": (ServerNotReady, "this replica lost its primary: wait, or ask another"),
    "BUSY": (ServerNotReady, "a script runs for too long: SCRIPT KILL ends it"),
    "OOM": (ServerNotReady, "its memory is full: raise maxmemory, or let it evict (allkeys-lru)"),
    "READONLY": (
        ServerNotReady,
        "this is a replica: a failover is under way, or LOCATION is wrong",
    ),
    "MISCONF": (ServerNotReady, "it cannot save to disk and takes no writes: look at its log"),
    "NOREPLICAS": (ServerNotReady, "too few replicas are in step: min-replicas-to-write"),
    "CLUSTERDOWN": (ServerNotReady, "slots without a server: wait for the failover"),
    "TRYAGAIN": (ServerNotReady, "these keys are being moved to another server: try again"),
    "UNBLOCKED": (ServerNotReady, "the server changed its role meanwhile: try again"),
    "WRONGTYPE": (DataError, "the key holds a list, set, hash or stream: it is somebody else's"),
    "MOVED": (ServerMisconfigured, "this is a node of a cluster: say so in LOCATION"),
    "ASK": (ServerMisconfigured, "this is a node of a cluster: say so in LOCATION"),
    "CROSSSLOT": (ServerMisconfigured, "keys of one command must be in one slot"),
    "NOPROTO": (ServerMisconfigured, "it speaks RESP2 only: set protocol to 2"),
}
_NOT_PROTECTED = "the server has no password: leave PASSWORD out, or set one there"
_BY_TEXT: list[tuple[str, Advice]] = [
    ("acl failure in script", _BY_CODE["NOPERM"]),
    ("max number of clients", (ServerNotReady, "raise maxclients, or use fewer connections")),
    ("invalid password", _BY_CODE["WRONGPASS"]),
    ("invalid username-password", _BY_CODE["WRONGPASS"]),
    ("without any password configured", (AuthenticationFailed, _NOT_PROTECTED)),
    ("but no password is set", (AuthenticationFailed, _NOT_PROTECTED)),
    ("db index", (ServerMisconfigured, "the server has fewer databases: choose a lower number")),
    (
        "select is not allowed in cluster",
        (ServerMisconfigured, "a cluster has database 0 only: leave the number out"),
    ),
    (
        "cluster support disabled",
        (ServerMisconfigured, "this server is no node of a cluster: check LOCATION"),
    ),
    ("unknown command", (ServerMisconfigured, "the server is too old, or the command is renamed")),
    ("not an integer", (DataError, "the value is no counter")),
    ("not a valid float", (DataError, "the value is no number")),
    ("would overflow", (DataError, "counters have 64 bits")),
    ("exceeds maximum allowed size", (DataError, "values may have proto-max-bulk-len bytes")),
]
# The server repeats the arguments of a command that it does not know; AUTH's is a password.
_ARGUMENTS = re.compile(r",? with args beginning with:.*", re.DOTALL)


def error_of(reply: ErrorReply, packed: bytes = b"") -> EngineError:
    """What the engine raises for an error reply to ``packed``. Its cause is the reply."""
    kind, advice = _advice(reply.code, str(reply))
    if kind is NotPermitted and packed:
        advice = f"asked was {_asked(packed)}: {advice}"
    text = _ARGUMENTS.sub("", str(reply))
    error = kind(f"{text} ({advice})" if advice else text)
    error.__cause__ = reply
    return error


def no_scripts(error: NotPermitted) -> bool:
    """Whether the user has no right to run scripts."""
    return "'eval" in str(error)


def _asked(packed: bytes) -> str:
    """The name of a packed command, and its key."""
    words = packed.split(b"\r\n", 9)[2::2]
    name = words[0].decode(errors="replace").upper()
    at = 3 if name in ("EVAL", "EVALSHA") else 1
    key = words[at].decode(errors="backslashreplace") if len(words) > at else ""
    return f"{name} {key}".strip()


def _advice(code: str, text: str) -> Advice:
    if code in _BY_CODE:
        return _BY_CODE[code]
    lower = text.lower()
    return next((advice for words, advice in _BY_TEXT if words in lower), (EngineError, ""))


# ---- while connecting

FOREIGN = (OSError, EOFError, UnicodeError, exceptions.RedisError, ProtocolError, EngineError)
"""What making a connection raises; anything else is an interrupt of its caller."""


def connecting(error: BaseException, target: Target, address: Address) -> EngineError:
    """What to raise for an error of making a connection, which becomes the cause."""
    if isinstance(error, EngineError):
        return error
    cause = error.__cause__
    if type(error) is exceptions.ConnectionError and isinstance(cause, exceptions.RedisError):
        error = cause  # on unix sockets redis.asyncio wraps the errors of the handshake
    mapped = _connecting(error, target, str(address))
    mapped.__cause__ = _without_secrets(error, target)
    return mapped


def _connecting(error: BaseException, target: Target, where: str) -> EngineError:
    text = str(error)
    replied = _replied(error)
    if replied is not None:
        return _refused(*replied, where)
    if isinstance(error, exceptions.InvalidResponse | ProtocolError | UnicodeDecodeError):
        return not_redis(where)
    if isinstance(error, exceptions.TimeoutError | TimeoutError):
        return _late(error, target, where)
    return _unreachable(os_error(error), text, where)


def refused(reply: ErrorReply, where: str) -> EngineError:
    """The error for a server that answered the handshake with an error reply."""
    error = _refused(reply.code, str(reply), where)
    error.__cause__ = reply
    return error


def _refused(code: str, text: str, where: str) -> EngineError:
    kind, advice = _advice(code, text)
    text = _ARGUMENTS.sub("", text)
    return kind(f"{where} refused the connection: {text}" + (f" ({advice})" if advice else ""))


def is_mute(error: EngineError) -> bool:
    """True if something answered, and did not say what is wrong."""
    cause = error.__cause__
    if isinstance(cause, ErrorReply | TypeError) or (cause is not None and _replied(cause)):
        return False
    below = os_error(cause)
    unreached = ConnectionRefusedError | FileNotFoundError | PermissionError | socket.gaierror
    if isinstance(below, unreached | ssl.SSLCertVerificationError):
        return False
    return isinstance(error, ServerMisconfigured | ConnectionFailed | ReplyTimeout)


def not_redis(where: str) -> ServerMisconfigured:
    return ServerMisconfigured(
        f"what answers at {where} does not speak Redis's protocol: check host and port,"
        " and whether the server expects TLS (rediss://)"
    )


def tls_expected(where: str) -> ServerMisconfigured:
    return ServerMisconfigured(f"{where} speaks TLS: use rediss:// in LOCATION")


def tls_unexpected(where: str) -> ServerMisconfigured:
    return ServerMisconfigured(
        f"{where} does not speak TLS: use redis:// in LOCATION, or the server's tls-port"
    )


def _replied(error: BaseException) -> tuple[str, str] | None:
    """The code and the text of an error reply that redis-py raised, if it was one."""
    codes: dict[type[BaseException], str] = {
        exceptions.BusyLoadingError: "LOADING",
        exceptions.NoPermissionError: "NOPERM",
        exceptions.AuthenticationError: "WRONGPASS",
        exceptions.OutOfMemoryError: "OOM",
        exceptions.ReadOnlyError: "READONLY",
        exceptions.MasterDownError: "MASTERDOWN",
        exceptions.ClusterDownError: "CLUSTERDOWN",
    }
    text = str(error)
    if isinstance(error, exceptions.AuthenticationError) and "password" in text.lower():
        by_text = _advice("", text)
        if by_text[0] is not EngineError:
            return ("", text)
    for kind, code in codes.items():
        if isinstance(error, kind):
            return (code, text)
    clients = isinstance(error, exceptions.ConnectionError) and "max number of clients" in text
    if clients or isinstance(error, exceptions.ResponseError):
        return (text.partition(" ")[0], text)
    return None


def _late(error: BaseException, target: Target, where: str) -> EngineError:
    if "connecting" in str(error) or isinstance(os_error(error), ssl.SSLError):
        return ConnectionFailed(
            f"no connection to {where} within {target.connect_timeout_s:g} s: check host, port"
            " and firewall, or raise SOCKET_CONNECT_TIMEOUT"
        )
    return ReplyTimeout(
        f"{where} took the connection and did not answer within {target.read_timeout_s:g} s:"
        " it is overloaded or frozen, or no Redis"
    )


def _unreachable(cause: BaseException | None, text: str, where: str) -> EngineError:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return ServerMisconfigured(
            f"the certificate of {where} is not trusted ({cause.verify_message}): set"
            " ssl_ca_certs to the authority that signed it"
        )
    if isinstance(cause, ssl.SSLError):
        return ServerMisconfigured(
            f"no TLS with {where} ({cause.reason or cause}): check rediss:// and the ssl_ options"
        )
    if isinstance(cause, socket.gaierror):
        return ConnectionFailed(f"{where}: the name is not known; check the host in LOCATION")
    number = getattr(cause, "errno", None)
    advice = {
        errno.ECONNREFUSED: "nothing listens there: is the server running?",
        errno.ENOENT: "there is no such socket: is the server running, and the path right?",
        errno.EACCES: "this user may not open the socket: check its permissions (unixsocketperm)",
        errno.EHOSTUNREACH: "no route to the host: check the network",
        errno.ENETUNREACH: "no route to the network",
        errno.ECONNRESET: "it closed the connection at once: is it up, and not asking for TLS?",
        errno.EMFILE: "this process has too many files open: raise its limit (ulimit -n)",
    }.get(number or 0, "")
    return ConnectionFailed(f"no connection to {where}: {advice or text}")


def os_error(error: BaseException | None) -> BaseException | None:
    """The operating system's error below redis-py's."""
    return next((each for each in _chain(error) if isinstance(each, OSError)), None)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and its causes. A cycle of causes is walked once."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _without_secrets(error: BaseException, target: Target) -> BaseException | None:
    """The error, to be a cause; None if it repeats a password, as errors of some servers do."""
    secrets = [target.password, target.sentinel_password]
    for each in _chain(error):
        if any(secret and secret in str(each) for secret in secrets):
            return None
    return error


# ---- while in use


def is_own(error: BaseException) -> bool:
    """True if the connection raised the error; False if something interrupted its user.

    A signal handler or gevent.Timeout may raise an OSError, too (mostly TimeoutError). The OSErrors
    of sockets have a number, or say that something "timed out".
    """
    if isinstance(error, OSError):
        return error.errno is not None or str(error).endswith("timed out")
    return isinstance(error, EOFError | ProtocolError | EngineError)


def is_timeout(error: BaseException) -> bool:
    """True if the time of a socket ran out. The kernel's own timeouts say EAGAIN."""
    return isinstance(error, TimeoutError | BlockingIOError)


def broken(error: BaseException, where: str, timeout_s: float) -> EngineUnavailable:
    """What to raise for an error of a connection in use, which becomes the cause."""
    mapped: EngineUnavailable
    if is_timeout(error):
        mapped = ReplyTimeout(
            f"{where} did not answer within {timeout_s:g} s: find slow commands with SLOWLOG, or"
            " raise SOCKET_TIMEOUT"
        )
    elif isinstance(error, ProtocolError):
        mapped = ConnectionFailed(f"{where} sent what is not Redis's protocol: {error}")
    elif isinstance(error, EOFError | ssl.SSLEOFError):
        mapped = ConnectionFailed(f"{where} closed the connection: look at its log")
    else:
        mapped = ConnectionFailed(f"the connection to {where} broke: {error}")
    mapped.__cause__ = error
    return mapped


MAYBE = "; the command may or may not have been carried out"


def uncertain(error: EngineError) -> EngineError:
    """A copy of the error, for a command that was sent and must not be repeated."""
    copy = _like(error, f"{error}{MAYBE}")
    if isinstance(copy, EngineUnavailable):
        copy.uncertain = True
    return copy


def again(error: EngineError) -> EngineError:
    """A copy of the error. One object raised in many threads would mix their tracebacks."""
    return _like(error, str(error))


def _like(error: EngineError, text: str) -> EngineError:
    copy = type(error)(text)
    copy.__cause__ = error.__cause__
    return copy
