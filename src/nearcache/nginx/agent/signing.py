"""Requests to an agent, and its answers, signed with a secret that both sides have.

    Authorization: NEARCACHE-1 time=1795295320.125,nonce=9f0c...,body=e3b0...,mac=5d1e...
    X-Nearcache-Mac: 77ab...                                     of the answer

The MAC is HMAC-SHA256 over what counts: path, time, nonce and the SHA-256 of the body; of an
answer over the request's nonce, the status and the body. So nobody without the secret can purge,
change a purge on its way, send one again (the nonce is remembered as long as its time is
believed), or invent an answer. It hides nothing: who listens sees which URLs are purged.

The digest of the body is in the header, so that who sends the body is known before it is read.

Sources: RFC 2104 (HMAC); the secret must be random and of 32 bytes or more.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

from nearcache.base.options import Secret
from nearcache.errors import NginxError

SCHEME = "NEARCACHE-1"
ANSWER_HEADER = "X-Nearcache-Mac"
LEAST_BYTES = 32
LARGEST_FILE = 4096
AUTHORIZATION = re.compile(
    SCHEME
    + r" time=(?P<time>[0-9]{1,12}\.[0-9]{3}),nonce=(?P<nonce>[0-9a-f]{32})"
    + r",body=(?P<body>[0-9a-f]{64}),mac=(?P<mac>[0-9a-f]{64})"
)


@dataclass(frozen=True)
class Signature:
    """What an ``Authorization`` header says."""

    time: str  # Unix seconds to the millisecond, by the clock of who asks
    nonce: str
    body: str  # its SHA-256
    mac: str

    @property
    def header(self) -> str:
        return f"{SCHEME} time={self.time},nonce={self.nonce},body={self.body},mac={self.mac}"


def sign(secret: bytes, path: str, body: bytes, now: float) -> Signature:
    signed = f"{now:.3f}", secrets.token_hex(16), digest_of(body)
    return Signature(*signed, _mac(secret, "purge", path, *signed))


def read_signature(header: str | None) -> Signature | None:
    """None for anything that is not exactly a signature."""
    found = AUTHORIZATION.fullmatch(header or "")
    return Signature(**found.groupdict()) if found else None


def is_right(secret: bytes, path: str, signature: Signature) -> bool:
    """In a time that does not depend on where two MACs differ. The body is yet to be compared."""
    signed = signature.time, signature.nonce, signature.body
    return hmac.compare_digest(_mac(secret, "purge", path, *signed), signature.mac)


def digest_of(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def sign_answer(secret: bytes, nonce: str, status: int, body: bytes) -> str:
    return _mac(secret, "answer", nonce, str(status), digest_of(body))


def is_right_answer(secret: bytes, nonce: str, status: int, body: bytes, mac: str) -> bool:
    expected = sign_answer(secret, nonce, status, body)
    return hmac.compare_digest(expected.encode(), mac.encode())  # as bytes: it may be anything


def _mac(secret: bytes, *parts: str) -> str:
    # The first part says what is signed: an answer can never pass for a request.
    text = "\n".join((SCHEME, *parts)).encode("utf-8", "surrogateescape")
    return hmac.new(secret, text, hashlib.sha256).hexdigest()


def read_secret(path: Path) -> Secret:
    """The secret in a file that nobody else may read.

    Raises:
        NginxError: the file is missing, a link, open to others, or too short; never its content.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise NginxError(
            f"the secret {path} cannot be read ({error.strerror}); make one with"
            f" `(umask 077; openssl rand -hex 32 > {path})`"
        ) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise NginxError(f"the secret {path} is not a regular file")
        if status.st_uid not in (os.geteuid(), 0):
            raise NginxError(f"the secret {path} belongs to somebody else; it must be yours")
        if status.st_mode & 0o077:
            raise NginxError(f"the secret {path} is open to others; `chmod 600 {path}`")
        return checked_secret(os.read(descriptor, LARGEST_FILE).strip(), str(path))
    finally:
        os.close(descriptor)


def checked_secret(secret: bytes, where: str) -> Secret:
    """The secret itself, if it is long enough."""
    if len(secret) < LEAST_BYTES:
        raise NginxError(
            f"the secret {where} has {len(secret)} bytes; it needs {LEAST_BYTES} or more,"
            " as `openssl rand -hex 32` makes them"
        )
    return Secret(secret)
