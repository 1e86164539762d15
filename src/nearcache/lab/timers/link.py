"""The way to a Redis server: how long nothing takes, and how many bytes a second.

Asked on the bare socket of a connection, after redis-py has opened it (so that TLS and
passwords work): no parser, no decoding, no library in the time. What a client adds to
this is the client's.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

PINGS = 50
FIRST_WINDOW_BYTES = 10 * 1448
LARGE_BYTES = 512 * 1024
LARGE_GETS = 3
PING, PONG = b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n"
clock = time.perf_counter_ns


class LinkBroken(Exception):
    """The server answered something else than it was asked for, or hung up."""


@dataclass(frozen=True)
class Link:
    """A way to a server: the round trip of next to nothing, and the rate of large replies.

    ``starts_slowly``: as a TCP connection that was idle for a while, which Linux lets send
    ten segments, then twice as many after every round trip (RFC 6928, RFC 5681). One that
    was measured has no such start: what it had is in its rate.
    """

    rtt_ns: float
    bytes_per_s: float
    starts_slowly: bool = False

    def way_ns(self, size_bytes: float) -> float:
        """Of one call that moves so many bytes."""
        total_ns, left, window = self.rtt_ns, size_bytes, FIRST_WINDOW_BYTES
        while self.starts_slowly and left > window and self._stream_ns(window) < self.rtt_ns:
            total_ns += self.rtt_ns  # the sender waits for the receiver's word
            left -= window
            window *= 2
        return total_ns + self._stream_ns(left)

    def _stream_ns(self, size_bytes: float) -> float:
        return size_bytes / self.bytes_per_s * 1e9


def ping(client: Any, times: int = PINGS) -> array[int]:
    """The ns of so many PINGs, in order."""
    with _socket_of(client) as bare:
        return array("Q", (_ping_ns(bare) for _ in range(times)))


def bytes_per_s(client: Any, key: str, rtt_ns: float) -> float:
    """How fast a large reply comes in. Writes ``key`` and deletes it."""
    client.set(key, b"x" * LARGE_BYTES, ex=60)
    try:
        with _socket_of(client) as bare:
            took_ns = median(_large_ns(bare, key.encode()) for _ in range(LARGE_GETS))
    finally:
        client.delete(key)
    return LARGE_BYTES / max(1.0, took_ns - rtt_ns) * 1e9


def _ping_ns(bare: Any) -> int:
    start = clock()
    bare.sendall(PING)
    answer = bare.recv(64)
    took_ns = clock() - start
    if answer != PONG:
        raise LinkBroken(f"the server answered {answer[:40]!r} to PING")
    return took_ns


def _large_ns(bare: Any, key: bytes) -> int:
    expected = len(b"$%d\r\n" % LARGE_BYTES) + LARGE_BYTES + 2
    into = memoryview(bytearray(expected))
    start = clock()
    bare.sendall(b"*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n" % (len(key), key))
    received = 0
    while received < expected:
        count = bare.recv_into(into[received:])
        if not count:
            raise LinkBroken("the server hung up in the middle of a reply")
        received += count
    return clock() - start


@contextmanager
def _socket_of(client: Any) -> Iterator[Any]:
    """The socket of an idle connection, which nobody else uses meanwhile."""
    pool = client.connection_pool
    connection = pool.get_connection()
    try:
        connection.connect()
        yield connection._sock
    finally:
        pool.release(connection)
