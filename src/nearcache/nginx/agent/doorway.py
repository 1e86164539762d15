"""The connections of the agent, until each has sent a whole request, and again for its answer.

All of them are served by one thread (asyncio), which only looks at bytes that are there.

    place    for who has sent no signed head yet: 8 KiB, 10 s. Where all are taken, a newcomer
             gets that of whoever waits for longest, of the address that has most of them. A
             site sends its head at once; who has taken its place must be quicker than that
    slot     for who has signed: its body is read, the purge runs. Nobody can take it away, and
             one address has at most half of them

Numbers of both follow from how many files this process may open (RLIMIT_NOFILE), so that there
is always one left for a purge.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import resource
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from nearcache.nginx.agent.guard import Buckets, Guard, Refused
from nearcache.nginx.agent.hosts import PATH
from nearcache.nginx.agent.signing import ANSWER_HEADER, Signature, digest_of
from nearcache.report.words import printable

logger = logging.getLogger("nearcache.nginx.agent")

REQUEST_S = 10.0  # to send it
DRAIN_S = 2.0  # for what comes after an answer that was given before all was read
LARGEST_HEAD = 8192
LARGEST_BODY = 1 << 20
ONCE = frozenset({"authorization", "content-length", "transfer-encoding"})
HEAD_ENDS = b"\r\n\r\n"
MOST_FILES = 4096  # more than these are not counted on


@dataclass(frozen=True)
class Limits:
    """How many connections there may be."""

    places: int  # without a signature
    slots: int  # with one: each has a thread, and needs some five descriptors
    at_once: int  # accepted, before anybody is dropped


def limits() -> Limits:
    """What the limit on open files leaves room for."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = MOST_FILES if soft == resource.RLIM_INFINITY else min(soft, MOST_FILES)
    return Limits(max(8, files // 4), max(4, files // 16), max(8, files // 16))


@dataclass
class Places:
    """Who is where: connections by address, in the order of their arrival."""

    most: int
    _by_address: dict[str, dict[Connection, None]] = field(default_factory=dict)
    _count: int = 0

    def __len__(self) -> int:
        return self._count

    def add(self, connection: Connection) -> None:
        self._by_address.setdefault(connection.neighbourhood, {})[connection] = None
        self._count += 1

    def remove(self, connection: Connection) -> None:
        """If it is there."""
        mine = self._by_address.get(connection.neighbourhood, {})
        if connection in mine:
            del mine[connection]
            self._count -= 1
            if not mine:
                del self._by_address[connection.neighbourhood]

    def who_must_go_for(self, connection: Connection) -> Connection | None:
        """Whoever waits for longest of its own address, or of that with most; None while there
        is room.
        """
        mine = self._by_address.get(connection.neighbourhood, {})
        if len(mine) * 2 >= self.most:
            return next(iter(mine))
        if self._count >= self.most:
            largest = max(self._by_address.values(), key=len)
            return next(iter(largest))
        return None

    def everybody(self) -> list[Connection]:
        return [each for some in self._by_address.values() for each in some]


@dataclass(frozen=True)
class Request:
    """What somebody has sent who knows the secret."""

    connection: Connection
    signature: Signature
    body: bytes

    @property
    def is_awaited(self) -> bool:
        """Has nobody hung up?"""
        return not self.connection.has_hung_up.is_set()


class Doorway:
    """Gives each whole, signed request to ``act``, which calls :meth:`answer` at some time."""

    def __init__(self, guard: Guard, buckets: Buckets, act: Callable[[Request], None]) -> None:
        self.guard = guard
        self.buckets = buckets
        self.act = act
        self.limits = limits()
        self.places = Places(self.limits.places)
        self.slots = Places(self.limits.slots)

    def connection(self) -> Connection:
        return Connection(self)

    def enter(self, connection: Connection) -> None:
        """Takes a place."""
        other = self.places.who_must_go_for(connection)
        if other:
            self.places.remove(other)
            other.drop()
        self.places.add(connection)

    def admit(self, connection: Connection, signature: Signature) -> None:
        """From its place to a slot."""
        if self.slots.who_must_go_for(connection):
            raise Refused(503, "too many purges at once; send it again", signature)
        self.places.remove(connection)
        self.slots.add(connection)

    def leave(self, connection: Connection) -> None:
        self.places.remove(connection)
        self.slots.remove(connection)

    def answer(self, request: Request, status: int, facts: Mapping[str, Any]) -> None:
        self.slots.remove(request.connection)
        request.connection.answer(status, facts, request.signature)

    def close(self) -> None:
        """Drops everybody."""
        for connection in (*self.places.everybody(), *self.slots.everybody()):
            connection.drop()


class Connection(asyncio.Protocol):
    """One connection, with one request."""

    def __init__(self, doorway: Doorway) -> None:
        self.has_hung_up = threading.Event()
        self._doorway = doorway
        self._received = bytearray()
        self._signature: Signature | None = None
        self._length = 0  # of the body
        self._is_read = False  # the whole request
        self._is_answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.address = str((transport.get_extra_info("peername") or ("?",))[0])
        self.neighbourhood = _neighbourhood(self.address)
        self._cut = asyncio.get_running_loop().call_later(REQUEST_S, self.drop)
        self._doorway.enter(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._cut.cancel()
        self.has_hung_up.set()
        if not self._is_read or self._is_answered:  # else the purge has the slot until it ends
            self._doorway.leave(self)

    def drop(self) -> None:
        self._transport.abort()

    def eof_received(self) -> bool:
        """Who has sent all may close his side: he is answered nevertheless. But whether he has
        gone is not to be told from that, so his purge waits for nothing any more.
        """
        self.has_hung_up.set()
        return self._is_read and not self._is_answered

    def data_received(self, data: bytes) -> None:
        if self._is_read or self._is_answered:
            return
        self._received += data
        try:
            if self._signature is None:
                self._read_head()
            if self._signature:
                self._read_body(self._signature)
        except Refused as refused:
            self._refuse(refused)

    def _read_head(self) -> None:
        end = self._received.find(HEAD_ENDS, 0, LARGEST_HEAD)
        if end < 0 and len(self._received) >= LARGEST_HEAD:
            raise Refused(431, f"a head has at most {LARGEST_HEAD} bytes")
        if end < 0:
            return
        path, headers = _parsed(bytes(self._received[:end]))
        del self._received[: end + len(HEAD_ENDS)]
        self._length = _length(headers)
        signature = self._doorway.guard.check(headers.get("authorization"), path)
        self._doorway.admit(self, signature)
        self._signature = signature

    def _read_body(self, signature: Signature) -> None:
        if len(self._received) < self._length:
            return
        body = bytes(self._received[: self._length])
        self._received.clear()
        if digest_of(body) != signature.body:
            raise Refused(401, "the body is not the one that was signed", signature)
        self._is_read = True
        self._cut.cancel()
        self._doorway.act(Request(self, signature, body))

    def _refuse(self, refused: Refused) -> None:
        if not self._doorway.buckets.take(self.neighbourhood):
            self.drop()
            return
        logger.warning("refused %s: %s", self.address, refused)
        self.answer(refused.status, {"error": str(refused)}, refused.signature)

    def answer(self, status: int, facts: Mapping[str, Any], signature: Signature | None) -> None:
        """If there is still somebody to be answered."""
        self._is_answered = True
        self._cut.cancel()
        if self._transport.is_closing():
            return
        body = json.dumps(facts).encode()
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            "Connection: close",
        ]
        if signature:
            lines.append(f"{ANSWER_HEADER}: {self._doorway.guard.answer(signature, status, body)}")
        self._transport.write("\r\n".join(lines).encode() + HEAD_ENDS + body)
        if self._is_read:
            self._transport.close()
            return
        # Closed with something unread or still to come, the kernel would reset it, and the answer
        # be lost. So until the other side has closed.
        with contextlib.suppress(OSError):
            self._transport.write_eof()
        self._cut = asyncio.get_running_loop().call_later(DRAIN_S, self.drop)


def _parsed(head: bytes) -> tuple[str, dict[str, str]]:
    """Path and headers of a POST, names in lower case; Refused for all else.

    Only what no two programs read differently: a proxy may be before this one.
    """
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise Refused(400, "this is no request of HTTP/1")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.lower()
        is_doubtful = name in headers and name in ONCE
        if not colon or not name or name != name.strip() or is_doubtful:
            raise Refused(400, f"the header {printable(line[:40])!r} is malformed, or there twice")
        headers[name] = value.strip()
    if words[0] != "POST":
        raise Refused(405, "there is only POST")
    if words[1] != PATH:
        raise Refused(404, f"there is only {PATH}")
    return words[1], headers


def _length(headers: Mapping[str, str]) -> int:
    length = headers.get("content-length", "")
    if not (length.isascii() and length.isdecimal()) or "transfer-encoding" in headers:
        raise Refused(411, "say the length of the body")
    if len(length) > 9 or int(length) > LARGEST_BODY:
        raise Refused(413, f"a body has at most {LARGEST_BODY} bytes")
    return int(length)


def _neighbourhood(address: str) -> str:
    """The address, or the network of one IPv6 host, which has addresses without number."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and not found.ipv4_mapped:
        return str(ipaddress.ip_network((int(found) >> 64 << 64, 64)))
    return address
