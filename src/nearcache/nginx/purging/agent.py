"""A small HTTP endpoint that purges the caches of its host, for sites on other hosts.

    POST /purge     {"urls": [...], "keys": [...], "how": "soft"}, signed (signing.py)
    200             {"state": "purged", "files": 3, "error": ""}, signed
    4xx, 5xx        {"error": "..."}

It can do nothing else: no listing, no patterns, no reading. What guards it, in this order:

    connections     at most 16, one request each, 10 s to send it; more are closed
    rate            a bucket of tokens for each address, before anything is read
    size            a body of at most 1 MiB, its length said beforehand
    signature       before a byte of the body is understood
    time, nonce     within 30 s of this clock, after the start, and never twice

The server is the standard library's: its few dependencies are its advantage, and what its
documentation warns of is bounded above. It speaks no TLS. Bind it to loopback or a private
network; where that is shared, put nginx with TLS before it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from nearcache.errors import NginxError
from nearcache.nginx.purging.hosts import PATH, Host, Outcome, State, Wanted
from nearcache.nginx.purging.signing import (
    ANSWER_HEADER,
    Signature,
    is_right,
    read_signature,
    sign_answer,
)
from nearcache.nginx.text import printable
from nearcache.options import Secret

logger = logging.getLogger("nearcache.nginx.agent")

CONNECTIONS = 16
REQUEST_S = 10.0  # to send it
DRAIN_S = 2.0  # for what comes after an answer that was given before all was read
LARGEST_BODY = 1 << 20
BELIEVED_S = 30  # how far two clocks may differ
MOST_NONCES = 100_000
RATE, BURST = 20.0, 100.0  # requests a second, and at once, of one address
MOST_ADDRESSES = 1024
LOGGED = 20  # URLs and keys of one request
PURGE_S = 60.0  # for one scan
TOO_MANY = b"HTTP/1.0 429 Too Many Requests\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n"


class Refused(Exception):
    """A request that gets nothing; ``status`` is that of the answer."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass
class Buckets:
    """A bucket of tokens for each address; those not seen for longest are forgotten (full)."""

    clock: Callable[[], float] = time.monotonic
    rate: float = RATE
    burst: float = BURST
    _left: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, address: str) -> bool:
        now = self.clock()
        with self._lock:
            left, then = self._left.pop(address, (self.burst, now))
            left = min(self.burst, left + (now - then) * self.rate)
            self._left[address] = (left - 1 if left >= 1 else left, now)
            if len(self._left) > MOST_ADDRESSES:
                self._left.popitem(last=False)
            return left >= 1


class Guard:
    """Who may purge. ``clock`` is in Unix seconds."""

    def __init__(self, secret: Secret, clock: Callable[[], float] = time.time) -> None:
        self._secret = secret
        self._clock = clock
        self._started = int(clock())
        self._seen: OrderedDict[str, int] = OrderedDict()  # nonce -> when it was signed
        self._lock = threading.Lock()

    def check(self, header: str | None, path: str, body: bytes) -> Signature:
        """Raises Refused. Only who knows the secret learns more than 401."""
        signature = read_signature(header)
        if signature is None or not is_right(self._secret, path, body, signature):
            raise Refused(401, "not signed with the secret of this agent")
        off = signature.time - self._clock()
        if abs(off) > BELIEVED_S:
            raise Refused(403, f"the clocks differ by {off:.0f} s; at most {BELIEVED_S} are taken")
        if signature.time < self._started:
            # Nonces of before are not remembered: this may have been done already.
            raise Refused(403, "signed before this agent was started; send it anew")
        self._remember(signature)
        return signature

    def answer(self, signature: Signature, status: int, body: bytes) -> str:
        return sign_answer(self._secret, signature.nonce, status, body)

    def _remember(self, signature: Signature) -> None:
        oldest = self._clock() - BELIEVED_S
        with self._lock:
            while self._seen and next(iter(self._seen.values())) < oldest - BELIEVED_S:
                self._seen.popitem(last=False)
            if signature.nonce in self._seen:
                raise Refused(409, "this request was sent before")
            if len(self._seen) >= MOST_NONCES:
                raise Refused(503, "too many requests at once to tell which were sent before")
            self._seen[signature.nonce] = signature.time


class Agent(ThreadingHTTPServer):
    """Serves until :meth:`shutdown`. ``port`` 0 takes a free one."""

    daemon_threads = True
    request_queue_size = CONNECTIONS

    def __init__(
        self,
        address: tuple[str, int],
        hosts: Sequence[Host],
        secret: Secret,
        report: Callable[[dict[str, Any]], None] | None = None,
        *,
        buckets: Buckets | None = None,
    ) -> None:
        self.hosts = hosts
        self.guard = Guard(secret)
        self.buckets = buckets or Buckets()
        self.report = report
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.exception("a request of %s failed", client_address[0])

    def purge(self, wanted: Wanted) -> Outcome:
        """On all caches of this host, one after the other."""
        outcomes = [host.purge(wanted, PURGE_S) for host in self.hosts]
        errors = [f"{each.host}: {each.error}" for each in outcomes if each.error]
        files = sum(each.files for each in outcomes)
        state: State = "failed" if errors else "purged" if files else "nothing"
        return Outcome("", state, files, "; ".join(errors))


class Handler(BaseHTTPRequestHandler):
    """One request of one connection: HTTP/1.0, so that there is never a second."""

    server: Agent
    timeout = 5  # seconds, of one read
    server_version, sys_version = "nearcache", ""

    def setup(self) -> None:
        super().setup()
        # ``timeout`` is for one read: a byte now and then would hold the connection for ever.
        self._cut = threading.Timer(REQUEST_S, _cut, [self.connection])
        self._cut.daemon = True
        self._cut.start()

    def handle(self) -> None:
        if self.server.buckets.take(self.client_address[0]):
            super().handle()
        else:
            self._refuse_unread()

    def _refuse_unread(self) -> None:
        self.connection.sendall(TOO_MANY)
        # Closed with something unread or still to come, the kernel would reset it, and the answer
        # be lost. So until the other side has closed, which the cut bounds.
        self.connection.settimeout(DRAIN_S)
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while self.connection.recv(LARGEST_BODY):
                pass

    def finish(self) -> None:
        self._cut.cancel()
        super().finish()

    def do_POST(self) -> None:
        signature = None
        try:
            body = self._body()
            self._cut.cancel()
            signature = self.server.guard.check(self.headers["Authorization"], self.path, body)
            status, facts = self._purged(Wanted.from_json(body))
        except Refused as refused:
            status, facts = refused.status, {"error": str(refused)}
        except NginxError as error:
            status, facts = 400, {"error": str(error)}
        self._answer(status, facts, signature)

    def _body(self) -> bytes:
        if self.path != PATH:
            raise Refused(404, f"there is only {PATH}")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or "Transfer-Encoding" in self.headers:
            raise Refused(411, "say the length of the body")
        if len(length) > 9 or int(length) > LARGEST_BODY:
            raise Refused(413, f"a body has at most {LARGEST_BODY} bytes")
        body = self.rfile.read(int(length))
        if len(body) != int(length):
            raise Refused(400, "the body is shorter than it says")
        return body

    def _purged(self, wanted: Wanted) -> tuple[int, dict[str, Any]]:
        outcome = self.server.purge(wanted)
        words = (*wanted.urls, *wanted.keys)
        asked = {"from": self.client_address[0], "asked": len(words), "first": words[:LOGGED]}
        facts = {"state": outcome.state, "files": outcome.files, "error": outcome.error}
        if self.server.report:
            self.server.report(asked | {"how": wanted.how} | facts)
        return 200, facts

    def _answer(self, status: int, facts: dict[str, Any], signature: Signature | None) -> None:
        body = json.dumps(facts).encode()
        if status != 200:
            logger.warning("refused %s: %s", self.client_address[0], facts["error"])
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if signature:
            self.send_header(ANSWER_HEADER, self.server.guard.answer(signature, status, body))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - its name there
        logger.debug("%s: %s", self.client_address[0], printable(format % arguments))


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has ended by itself
        connection.shutdown(socket.SHUT_RDWR)
