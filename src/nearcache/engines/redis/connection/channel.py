"""One connection's bytes: commands go out, replies come in, and neither side ever blocks the other.

The caller that uses a channel has it alone (see :mod:`.sync_connection`). After any error the
channel must be closed: bytes may be under way that nobody would expect.

Interrupts. gevent.Timeout, a signal handler that raises or a thread's pending exception may come
between any two bytecodes. So one call into C moves bytes and notes the outcome as well (a list that
is extended by a ``map``): either nothing has moved, or the move is known. Commands on their way are
an :class:`Exchange`, kept in ``exchange`` until the last reply is there. If a caller is torn from
its exchange, the next caller calls :meth:`Channel.carry` and goes on where the exchange stood.
``exact`` says whether that holds. The Python reader is many bytecodes: an interrupt inside of it
costs the connection.

Time limits. A plain blocking socket with the kernel's own timeouts is the cheapest: Python's
``settimeout`` adds a ``poll`` to every read. TLS and gevent's sockets need ``settimeout``. Every
read must bring something in time. All reads together must bring 64 KB per time limit, so that a
server that trickles cannot hold up all callers.
"""

from __future__ import annotations

import _socket
import contextlib
import errno
import functools
import select
import ssl
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat, starmap
from socket import (
    AF_UNIX,
    MSG_DONTWAIT,
    MSG_PEEK,
    SHUT_RDWR,
    SHUT_WR,
    SO_ERROR,
    SO_RCVTIMEO,
    SO_SNDTIMEO,
    SOL_SOCKET,
)
from typing import Any

from nearcache.base.per_process import generation
from nearcache.engines.redis.connection.connect import READ_BYTES, Connected, put_away
from nearcache.engines.redis.protocol.faults import is_own
from nearcache.engines.redis.protocol.resp import MORE, PUSHES, ProtocolError, PythonReader

IDLE_S = 0.1
"""A channel that was idle for longer is looked at before use."""
BUSY = -1.0
"""``fresh_until`` during an exchange, and after an exchange that an interrupt tore off."""
AT_ONCE_BYTES = 32768
"""So many bytes of commands fit the buffers of both sides. More are sent while we read."""
BIG_READ_BYTES = 1 << 20
SEND_BYTES = 1 << 18
RESET_S = 0.1
"""How long to wait for a reset, which tells that the last command was not read."""
NOT_YET = BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError

_open: set[Any] = set()
"""The sockets of all channels. Errors and frames refer to each other, so a channel may end as
cyclic garbage. A socket in that garbage might be finalized before its channel, with a warning."""


class Exchange:
    """``count`` commands on their way: what has left of them, and what has come back.

    ``batch`` are the requests that get the replies: none, if the only caller that asked is gone.
    """

    __slots__ = ("batch", "begun", "count", "data", "parts", "replies")

    def __init__(self, data: bytes, count: int, batch: Sequence[Any] = (), sent: int = 0) -> None:
        self.data = data
        self.count = count
        self.batch = batch
        self.parts = [sent]
        """The numbers of bytes that left, call by call."""
        self.replies: list[Any] = []
        self.begun = not batch
        """True if replies may have come, as to a command that the short way sent."""

    @property
    def sent(self) -> int:
        return sum(self.parts)


class Channel:
    """A connected socket and a reader. ``send``, ``step`` and ``gets`` are the short way's."""

    __slots__ = (
        "_green",
        "_has_pushes",
        "_inbox",
        "_pieces",
        "_poll",
        "_raw_gets",
        "_raw_recv",
        "_raw_send",
        "_unblocked",
        "closing",
        "exact",
        "exchange",
        "fresh_until",
        "gets",
        "has_data",
        "hub",
        "kernel",
        "passed",
        "received",
        "recv",
        "send",
        "sock",
        "step",
        "timeout_s",
    )

    def __init__(self, connected: Connected, timeout_s: float, protocol: int = 2) -> None:
        sock, reader = connected
        self.sock = sock
        _open.add(sock)
        self.timeout_s = timeout_s
        self.kernel = isinstance(sock, _socket.socket) and not isinstance(sock, ssl.SSLSocket)
        self.hub = _hub_of(sock)
        self.exchange: Exchange | None = None
        self.exact = not isinstance(reader, PythonReader)
        self.closing = False
        self.received = self.passed = 0
        """Bytes that came, and that left, by the long way."""
        self._inbox: deque[bytes] = deque()
        self._green = None if self.hub is None else _Green(sock)
        self._raw_send, self._raw_recv = _raw(sock)
        # Takes from the inbox and gives to the reader, with no instruction of Python between.
        self._pieces = map(reader.feed, starmap(self._inbox.popleft, repeat(())))
        self._raw_gets = reader.gets
        self.send, self.recv = sock.send, sock.recv
        # When `step` returns, the bytes are in the reader. If it raises, no bytes have come.
        come = map(reader.feed, map(self._raw_recv, repeat(READ_BYTES)))
        step = functools.partial(next, come)
        self.step = step if self._green is None else self._green.patient(step, False)
        self.has_data = reader.has_data
        self._has_pushes = protocol != 2
        self.gets = _without_pushes(reader.gets) if self._has_pushes else reader.gets
        # The time from which a look at the socket is due. gevent's sockets are always looked at:
        # each belongs to the hub (the thread) that made it.
        self.fresh_until = 0.0
        self.touch(time.monotonic())
        if self.kernel:
            seconds = max(timeout_s, 0.001)
            limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))
            sock.setsockopt(SOL_SOCKET, SO_RCVTIMEO, limit)
            sock.setsockopt(SOL_SOCKET, SO_SNDTIMEO, limit)
            self._poll = select.poll()
            self._poll.register(sock.fileno(), select.POLLIN)
        self._unblocked = True
        self._block()

    def touch(self, now: float) -> None:
        if self.hub is None:
            self.fresh_until = now + IDLE_S

    @property
    def moved(self) -> int:
        """Bytes of large exchanges, in both directions: callers that wait see that these move."""
        return self.received + self.passed

    def usable(self) -> bool:
        """False if the socket was closed, has unread bytes, or belongs to another thread's hub.

        Only a channel that was idle for longer than ``IDLE_S`` looks at its socket.
        """
        if self.closing or self.fresh_until == BUSY:
            return False
        if time.monotonic() < self.fresh_until:
            return True
        if self.hub is not None and self.hub is not _current_hub():
            return False
        if self.kernel:
            return not self._poll.poll(0)
        try:
            if _tls(self.sock) is None:
                self._raw_recv(1, MSG_DONTWAIT | MSG_PEEK)
            else:
                self._look_through_tls()
        except NOT_YET:
            return True
        except OSError:
            return False
        return False

    def _look_through_tls(self) -> None:
        """Reads a byte that may be there: what came may be a ticket of TLS, and no byte for us."""
        self._unblock()
        try:
            self.recv(1)
        finally:
            self._block()

    def _block(self) -> None:
        if self._unblocked:
            self.sock.settimeout(None if self.kernel else self.timeout_s)
            self._unblocked = False

    def _unblock(self) -> None:
        self._unblocked = True
        self.sock.settimeout(0)

    # ---- exchanges

    def finish(self, data: bytes, sent: int, reply: Any) -> Any:
        """The reply to a command, of which ``sent`` bytes have left and ``reply`` has come."""
        exchange = Exchange(data, 1, sent=sent)
        if reply is not MORE:
            exchange.replies.append(reply)
        self.exchange = exchange
        self.carry()
        self.end(0.0)
        return exchange.replies[0]

    def tear(self, data: bytes, sent: int) -> bool:
        """Keeps the exchange that the short way was torn from; False if its state is not known.

        ``sent`` are the bytes that surely left. It is 0 once the reader was asked for the reply.
        """
        if self.exchange is None and self.fresh_until == BUSY:
            if not self.exact or sent != len(data):
                return False
            self.exchange = Exchange(data, 1, sent=sent)
        return True

    def carry(self) -> None:
        """Sends what has not left of ``exchange``, and reads what has not come.

        Raises OSError (a timeout among them), EOFError, ProtocolError. After anything else it
        may be called again, if the channel is ``exact``.
        """
        exchange = self.exchange
        assert exchange is not None
        self.fresh_until = BUSY
        if self._unblocked:
            self._block()
        begun, exchange.begun = exchange.begun, True
        if exchange.count > 1 and len(exchange.data) > AT_ONCE_BYTES:
            self._send_while_reading(exchange)
        else:
            self._send_all(exchange)
        if begun:
            self._parse(exchange)
        self._read(exchange)

    def end(self, fresh_until: float) -> None:
        """Notes that the exchange is settled."""
        # In this order: a channel that is fresh must have no exchange.
        self.exchange = None
        self.fresh_until = 0.0 if self.hub is not None else fresh_until

    def left(self) -> int:
        """How many bytes of the exchange may have left, at the most."""
        if self.exchange is None:
            return 0
        # TLS may have sent a part of what it then failed to send.
        return len(self.exchange.data) if _tls(self.sock) else self.exchange.sent

    def refused(self, error: BaseException) -> bool:
        """After the connection broke: True if the last command certainly was not carried out.

        That is certain if the other end was closed before it had read all of the command. A unix
        socket tells it when bytes of ours were left unread. TCP tells it when the other end closed,
        and then a reset answers our bytes: the kernel makes EPIPE of that reset.
        """
        ended = isinstance(error, EOFError | ConnectionError)
        if not ended or _tls(self.sock) or not sys.platform.startswith("linux"):
            return False
        if self.sock.family == AF_UNIX:
            return isinstance(error, ConnectionResetError)
        try:
            poll = select.poll()  # looked up now: gevent's, where it has patched
            poll.register(self.sock.fileno(), select.POLLERR)
            poll.poll(RESET_S * 1000)
            return bool(self.sock.getsockopt(SOL_SOCKET, SO_ERROR) == errno.EPIPE)
        except (OSError, ValueError):
            return False

    def _read(self, exchange: Exchange) -> None:
        size, started, before = READ_BYTES, time.monotonic(), self.moved
        while len(exchange.replies) < exchange.count:
            if self._receive(size) == size:
                size = BIG_READ_BYTES
            self._parse(exchange)
            if len(exchange.replies) < exchange.count:
                self._count(started, before)
        if len(exchange.replies) > exchange.count or (self.has_data() and not self._has_pushes):
            raise ProtocolError("more replies than there were commands")

    def _receive(self, size: int) -> int:
        """Receives some bytes; how many."""
        inbox, recv = self._inbox, self._raw_recv
        if not inbox:
            if self._green is None:
                inbox.extend(map(recv, (size,)))
            else:
                self._green.patient(lambda: inbox.extend(map(recv, (size,))), False)()
        count = len(inbox[0])
        if not count:
            raise EOFError("the server closed the connection")
        self.received += count
        return count

    def _parse(self, exchange: Exchange) -> None:
        """Gives the bytes that came to the reader, and takes complete replies from it."""
        inbox, replies = self._inbox, exchange.replies
        while inbox:
            next(self._pieces)
        replies.extend(iter(self._raw_gets, MORE))
        if self._has_pushes:
            replies[:] = [each for each in replies if type(each) not in PUSHES]

    def _count(self, started: float, before: int) -> None:
        moved = self.moved - before
        if time.monotonic() > started + self.timeout_s * (2 + moved / READ_BYTES):
            raise TimeoutError(errno.ETIMEDOUT, f"only {moved} bytes came or left")

    def _send_all(self, exchange: Exchange) -> None:
        data = exchange.data
        if len(data) <= SEND_BYTES and not exchange.sent:
            self._send(exchange, data)  # mostly one call sends all
        while (at := exchange.sent) < len(data):
            self._send(exchange, memoryview(data)[at : at + SEND_BYTES])

    def _send(self, exchange: Exchange, piece: bytes | memoryview) -> None:
        parts, send = exchange.parts, self._raw_send
        if self._green is None:
            parts.extend(map(send, (piece,)))
        else:
            self._green.patient(lambda: parts.extend(map(send, (piece,))), True)()
        self.passed += parts[-1]

    def _send_while_reading(self, exchange: Exchange) -> None:
        # A server that cannot write its replies may stop to read our commands. So while there is
        # something to send, we never wait for one direction only.
        data, started, before = memoryview(exchange.data), time.monotonic(), self.moved
        green, self._green = self._green, None
        self._unblock()
        try:
            while (at := exchange.sent) < len(data) and len(exchange.replies) < exchange.count:
                moved = self.moved
                with contextlib.suppress(*NOT_YET):
                    self._send(exchange, data[at : at + SEND_BYTES])
                with contextlib.suppress(*NOT_YET):
                    self._receive(READ_BYTES)
                    self._count(started, before)
                if moved == self.moved:
                    self._wait()
                self._parse(exchange)
            if exchange.sent < len(data):
                raise ProtocolError("replies came before the commands")
        finally:
            self._green = green
            self._block()

    def _wait(self) -> None:
        poll = select.poll()  # looked up now: gevent's, where it has patched
        poll.register(self.sock.fileno(), select.POLLIN | select.POLLOUT)
        if not poll.poll(self.timeout_s * 1000):
            raise TimeoutError(errno.ETIMEDOUT, "neither readable nor writable")

    # ---- the end

    def drain(self) -> bool:
        """Waits until the server has done what it was sent, and has hung up; True if it has.

        After it, :meth:`close` is all that may be called.
        """
        try:
            self._block()
            self.sock.shutdown(SHUT_WR)
            started, before = time.monotonic(), self.moved
            while data := self.recv(READ_BYTES):
                self.received += len(data)
                self._count(started, before)
        except ConnectionError:
            return True  # it hung up first
        except OSError as error:
            if not is_own(error):
                raise
            return False
        return True

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.close()
        _open.discard(self.sock)

    def put_away(self) -> None:
        """In a forked child: leaves what comes to the parent."""
        put_away(self.sock)

    def wake(self) -> None:
        """Makes a thread that is blocked in the socket fail. Only that thread may close it."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(SHUT_RDWR)

    def __del__(self) -> None:
        if hasattr(self, "sock"):
            self.close()


class _Green:
    """Waits for a gevent socket as gevent's methods do. The raw socket below it never waits."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock

    def patient(self, act: Callable[[], Any], writing: bool) -> Callable[[], Any]:
        """``act``, repeated until the socket takes or has something."""
        sock = self._sock

        def patiently() -> Any:
            while True:
                try:
                    return act()
                except ssl.SSLWantReadError:
                    sock._wait(sock._read_event)
                except ssl.SSLWantWriteError:
                    sock._wait(sock._write_event)
                except BlockingIOError:
                    sock._wait(sock._write_event if writing else sock._read_event)
                generation()  # in a forked child, for a copy of this greenlet: puts the socket away

        return patiently


def _tls(sock: Any) -> Any:
    """The object that encrypts; None if nothing does."""
    return getattr(sock, "_sslobj", None)


def _raw(sock: Any) -> tuple[Any, Any]:
    """``send`` and ``recv`` in C. TLS and gevent wrap them in Python, which can be torn."""
    tls = _tls(sock)
    if tls is not None:
        return tls.write, tls.read
    below = getattr(sock, "_sock", sock)  # gevent's
    return below.send, below.recv


def _without_pushes(gets: Any) -> Any:
    def without() -> Any:
        while type(reply := gets()) in PUSHES:
            pass
        return reply

    return without


def _hub_of(sock: Any) -> Any:
    """gevent's hub that the socket belongs to; None for any other socket."""
    return _current_hub() if type(sock).__module__.startswith("gevent") else None


def _current_hub() -> Any:
    from gevent import get_hub

    return get_hub()
