"""One connection's bytes: commands go out, replies come in, and neither side ever blocks the other.

Whoever uses a channel has it alone (see :mod:`.line`). After any error, and after anything that
interrupts an exchange, it must be closed: bytes may be under way that nobody would expect.

Time limits. A plain blocking socket with the kernel's own timeouts is the cheapest: Python's
``settimeout`` adds a ``poll`` to every read. TLS and gevent's sockets need ``settimeout``. Every
read must bring something in time; and together they must bring 64 KB per time limit, so that a
server which trickles cannot hold everybody up.
"""

from __future__ import annotations

import _socket
import contextlib
import select
import ssl
import struct
import time
from socket import MSG_DONTWAIT, MSG_PEEK, SHUT_RDWR, SHUT_WR, SO_RCVTIMEO, SO_SNDTIMEO, SOL_SOCKET
from typing import Any

from nearcache.engines.redis.connect import READ_BYTES, Connected
from nearcache.engines.redis.resp import MORE, PUSHES, ProtocolError

IDLE_S = 1.0
"""A channel that was idle for longer is looked at before use."""
BUSY = -1.0
"""``fresh_until`` during an exchange; one that an interrupt tore off leaves it so."""
AT_ONCE_BYTES = 32768
"""Several commands of so many bytes fit the buffers of both sides; more are sent while reading."""
BIG_READ_BYTES = 1 << 20
SEND_BYTES = 1 << 18
NOT_YET = BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError

_open: set[Any] = set()
"""The sockets of all channels. Errors and frames refer to each other, so a channel may end as
cyclic garbage; were its socket a part of that, it might be finalized first, with a warning."""


class Channel:
    """A connected socket and a reader. ``send``, ``recv``, ``feed`` and ``gets`` are theirs."""

    __slots__ = (
        "closing",
        "feed",
        "fresh_until",
        "gets",
        "has_data",
        "hub",
        "kernel",
        "received",
        "recv",
        "send",
        "sent",
        "sock",
        "timeout_s",
    )

    def __init__(self, connected: Connected, timeout_s: float, protocol: int = 2) -> None:
        sock, reader = connected
        self.sock = sock
        _open.add(sock)
        self.timeout_s = timeout_s
        self.kernel = isinstance(sock, _socket.socket) and not isinstance(sock, ssl.SSLSocket)
        self.hub = _hub_of(sock)
        # When a look at the socket is due. gevent's sockets are always looked at: they belong
        # to the hub, that is the thread, that made them.
        self.fresh_until = 0.0
        self.touch(time.monotonic())
        self.closing = False
        self.received = 0
        self.sent = 0
        """Bytes of the last exchange that may have left."""
        self.send, self.recv, self.feed = sock.send, sock.recv, reader.feed
        self.has_data = reader.has_data
        self.gets = reader.gets if protocol == 2 else _without_pushes(reader.gets)
        if self.kernel:
            sock.settimeout(None)
            seconds = max(timeout_s, 0.001)
            limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))
            sock.setsockopt(SOL_SOCKET, SO_RCVTIMEO, limit)
            sock.setsockopt(SOL_SOCKET, SO_SNDTIMEO, limit)
        else:
            sock.settimeout(timeout_s)

    def touch(self, now: float) -> None:
        if self.hub is None:
            self.fresh_until = now + IDLE_S

    def usable(self, now: float) -> bool:
        """False if it was closed, has unread bytes, or belongs to another thread's hub."""
        if self.closing or self.fresh_until == BUSY:
            return False
        if now < self.fresh_until:
            return True
        if self.hub is not None and self.hub is not _current_hub():
            return False
        try:
            if self.kernel:
                self.recv(1, MSG_DONTWAIT | MSG_PEEK)
            else:
                self.sock.settimeout(0)
                try:
                    self.recv(1)
                finally:
                    self.sock.settimeout(self.timeout_s)
        except NOT_YET:
            return True
        except OSError:
            return False
        return False

    def exchange(self, data: bytes, count: int, replies: list[Any]) -> None:
        """Sends ``count`` commands and appends their replies, those that came before an error too.

        Raises OSError (a timeout among them), EOFError, ProtocolError.
        """
        self.sent = 0
        fresh_until, self.fresh_until = self.fresh_until, BUSY
        if count > 1 and len(data) > AT_ONCE_BYTES:
            self._send_while_reading(data, count, replies)
        else:
            self._send_all(data)
        self.read(count, replies)
        self.fresh_until = fresh_until

    def finish(self, data: bytes, sent: int, reply: Any) -> Any:
        """The reply to a command of which so much was sent, and ``reply`` is what came."""
        self.sent = sent
        self._send_all(data)
        replies = [] if reply is MORE else [reply]
        self.read(1, replies)
        return replies[0]

    def read(self, count: int, replies: list[Any]) -> None:
        gets, feed, recv = self.gets, self.feed, self.recv
        size, started, before = READ_BYTES, time.monotonic(), self.received
        while len(replies) < count:
            reply = gets()
            if reply is not MORE:
                replies.append(reply)
                continue
            data = recv(size)
            self._count(data, started, before)
            feed(data)
            if len(data) == size:
                size = BIG_READ_BYTES
        if self.has_data() and gets() is not MORE:
            raise ProtocolError("more replies than there were commands")

    def _count(self, data: bytes, started: float, before: int) -> None:
        if not data:
            raise EOFError("the server closed the connection")
        self.received += len(data)
        come = self.received - before
        if time.monotonic() > started + self.timeout_s * (2 + come / READ_BYTES):
            raise TimeoutError(f"only {come} bytes came")

    def _send_all(self, data: bytes) -> None:
        rest = memoryview(data)[self.sent :]
        while rest:
            rest = rest[self._send(rest) :]

    def _send(self, rest: memoryview) -> int:
        """Sends some. ``sent`` is right whatever happens, or too high."""
        done = self.sent
        self.sent = done + len(rest)  # an interrupt hides how much has left
        try:
            count: int = self.send(rest)
        except NOT_YET:
            self.sent = done
            raise
        except OSError:
            # Refused at once by a plain socket; TLS may have sent part of a record.
            self.sent = done if self.kernel else self.sent
            raise
        self.sent = done + count
        return count

    def _send_while_reading(self, data: bytes, count: int, replies: list[Any]) -> None:
        # A server that may not write its replies need not read our commands. So while there is
        # something to send, nobody waits for only one direction.
        rest, started, before = memoryview(data), time.monotonic(), self.received
        self.sock.settimeout(0)
        try:
            while rest and len(replies) < count:
                moved = False
                with contextlib.suppress(*NOT_YET):
                    rest = rest[self._send(rest[:SEND_BYTES]) :]
                    moved = True
                with contextlib.suppress(*NOT_YET):
                    piece = self.recv(READ_BYTES)
                    self._count(piece, started, before - self.sent)
                    self.feed(piece)
                    moved = True
                if not moved:
                    self._wait()
                while len(replies) < count and (reply := self.gets()) is not MORE:
                    replies.append(reply)
            if rest:
                raise ProtocolError("replies came before the commands")
        finally:
            self.sock.settimeout(None if self.kernel else self.timeout_s)

    def _wait(self) -> None:
        poll = select.poll()  # looked up now: gevent's, where it has patched
        poll.register(self.sock.fileno(), select.POLLIN | select.POLLOUT)
        if not poll.poll(self.timeout_s * 1000):
            raise TimeoutError("neither readable nor writable")

    def drain(self) -> bool:
        """Waits until the server has done what it was sent, and has hung up; True if it has.

        The last thing to be done with a channel, before :meth:`close`.
        """
        try:
            self.sock.shutdown(SHUT_WR)
            started, before = time.monotonic(), self.received
            while data := self.recv(READ_BYTES):
                self._count(data, started, before)
        except ConnectionError:
            return True  # it hung up first
        except OSError:
            return False
        return True

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.close()
        _open.discard(self.sock)

    def wake(self) -> None:
        """Makes whoever is blocked in it fail. Another thread's socket must not be closed."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(SHUT_RDWR)

    def __del__(self) -> None:
        if hasattr(self, "sock"):
            self.close()


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
