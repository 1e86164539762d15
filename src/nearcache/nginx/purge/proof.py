"""After a purge: ask nginx for what was purged, and see that it asked its upstream.

A header like ``X-Cache: EXPIRED`` says it at once. Where there is none, or another client was
faster and it says HIT, the entry itself proves it: its file is valid again, which it can
only be if nginx has stored or revalidated it since.

Each variant is asked for with the request headers that lead to it, as far as they can be
found out (cachedir/varying.py). The question is a real request: nginx fetches and stores the page
anew.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Literal
from urllib.parse import urlsplit

from nearcache.errors import NginxError
from nearcache.nginx.cachedir.directory import CacheDir, Found
from nearcache.nginx.cachedir.varying import headers_of
from nearcache.nginx.keys.groups import split_key

MOST = 50  # questions
TIMEOUT_S = 10.0
WAITS_S = (0.0, 0.02, 0.1, 0.4, 1.0)  # nginx answers before its file is in place
ASKED = frozenset(["MISS", "EXPIRED", "REVALIDATED", "BYPASS"])  # the upstream was
NO_ANSWER = (502, 504)  # nginx's own words for an upstream
STATES = ASKED | {"HIT", "STALE", "UPDATING"}
MOST_BODY = 64 << 20

Verdict = Literal["new", "old", "unknown"]


@dataclass(frozen=True)
class Proof:
    """What nginx answered for one purged file."""

    key: str
    sent: Mapping[str, str]
    status: int | None
    cache: str  # EXPIRED, MISS ...; empty if no header says it
    verdict: Verdict
    said: str


@dataclass(frozen=True)
class Witness:
    """One entry as it was before the purge."""

    found: Found
    body: bytes  # its digest


class Prover:
    """Give :meth:`remember` to the purge, then call :meth:`ask`."""

    def __init__(self, directory: CacheDir, base: str, host: str | None = None) -> None:
        """
        Args:
            base: where nginx listens, as ``http://127.0.0.1``.
            host: what to send as ``Host``; that of ``base`` if None.
        """
        parts = urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.path.strip("/"):
            raise NginxError(f"{base!r} is not where nginx listens; write http://127.0.0.1:8080")
        self.directory = directory
        self.scheme, self.address = parts.scheme, parts.netloc
        self.host = host or parts.netloc
        self.witnesses: list[Witness] = []
        self.more = 0  # files that were purged and will not be asked for

    def remember(self, found: Found) -> None:
        if len(self.witnesses) == MOST:
            self.more += 1
            return
        self.witnesses.append(Witness(found, self._stored_digest(found)))

    def ask(self, since: float, sleep: Callable[[float], None] = time.sleep) -> list[Proof]:
        """``since``: when the purge began, in Unix seconds."""
        return [self._proof(witness, since, sleep) for witness in self.witnesses]

    def _proof(self, witness: Witness, since: float, sleep: Callable[[float], None]) -> Proof:
        entry = witness.found.entry
        uri, sent = split_key(entry.key.decode("latin-1"))[1], headers_of(entry)
        if not uri or sent is None:
            lacks = "the request headers that lead to it are" if uri else "its URL is"
            return Proof(entry.text, {}, None, "", "unknown", f"{lacks} not known")
        try:
            status, cache, body = self._get(uri, sent)
        except (OSError, HTTPException) as error:
            said = f"no answer: {error or type(error).__name__}"
            return Proof(entry.text, sent, None, "", "unknown", said)
        same = body == witness.body
        if status in NO_ANSWER:
            said = f"nginx asked its upstream, which did not answer ({status})"
            return Proof(entry.text, sent, status, cache, "unknown", said)
        verdict, said = self._verdict(witness, cache, same, since, sleep)
        body_said = "the same body" if same else "another body"
        return Proof(entry.text, sent, status, cache, verdict, f"{said}; {body_said}")

    def _verdict(
        self,
        witness: Witness,
        cache: str,
        same: bool,
        since: float,
        sleep: Callable[[float], None],
    ) -> tuple[Verdict, str]:
        if cache in ASKED:
            return "new", "nginx asked its upstream"
        for wait_s in WAITS_S:
            sleep(wait_s)
            if self._is_valid_again(witness, since):
                return "new", "stored or revalidated since the purge"
        if cache:
            return "old", "served from a cache, and the entry is not new"
        if not same:
            return "new", "not stored since the purge"
        return "unknown", "no header says where it came from, and it is not stored anew"

    def _is_valid_again(self, witness: Witness, since: float) -> bool:
        try:
            now = self.directory.read(witness.found.folder, witness.found.entry.name)
        except (OSError, NginxError):
            return False
        return now.key == witness.found.entry.key and now.valid_sec > since

    def _get(self, uri: str, sent: Mapping[str, str]) -> tuple[int, str, bytes]:
        kind = _HTTPSBytes if self.scheme == "https" else _HTTPBytes
        connection = kind(self.address, timeout=TIMEOUT_S)
        try:
            connection.putrequest("GET", _sendable(uri), skip_host=True, skip_accept_encoding=True)
            for name, value in {"Host": self.host, "User-Agent": "nearcache", **sent}.items():
                connection.putheader(name.title(), value)
            connection.endheaders()
            response = connection.getresponse()
            return response.status, _state(response), _digest(response)
        finally:
            connection.close()

    def _stored_digest(self, found: Found) -> bytes:
        try:
            descriptor = self.directory.open(found.folder, found.entry.name)
        except (OSError, NginxError):
            return b""
        with os.fdopen(descriptor, "rb") as stored:
            stored.seek(found.entry.body_start)
            return blake2b(stored.read(MOST_BODY)).digest()


class _AsItIs:
    """Sends a path whose characters are the bytes of a key: http.client itself takes ASCII only."""

    def _encode_request(self, request: str) -> bytes:
        return request.encode("latin-1")


class _HTTPBytes(_AsItIs, HTTPConnection):
    pass


class _HTTPSBytes(_AsItIs, HTTPSConnection):
    pass


def _sendable(uri: str) -> str:
    """What a request line cannot hold, escaped: it is there if the key was made of ``$uri``."""
    return re.sub(r"[\x00-\x20\x7f]", lambda found: f"%{ord(found[0]):02X}", uri)


def _state(response: HTTPResponse) -> str:
    """What nginx says in any header: a value that is one of its states."""
    values = (value.strip().upper() for _, value in response.getheaders())
    return next((value for value in values if value in STATES), "")


def _digest(response: HTTPResponse) -> bytes:
    return blake2b(response.read(MOST_BODY)).digest()
