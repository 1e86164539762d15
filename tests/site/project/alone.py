"""Proof that nobody else is inside: a lock of the kernel beside the cache's, which dies with
its holder, and a file in which whoever met another one says so.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator

from django.conf import settings

KINDS = {
    "lock": "locks",
    "flight": "flights",
    "aflight": "flights",
    "memo": "flights",
    "amemo": "flights",
}


@contextlib.contextmanager
def alone(kind: str, name: str, token: int | None = None) -> Iterator[None]:
    """The part of a program where nobody else may be; a token must be larger than the last."""
    at = os.path.join(settings.SITE["inside"], f"inside-{kind}-{name}")
    inside = os.open(at, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(inside, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell(f"overlap of {KINDS[kind]}", f"{kind} {name}: two are inside")
        else:
            if token is not None:
                _look_at(inside, name, token)
        yield
    finally:
        os.close(inside)


def _look_at(inside: int, name: str, token: int) -> None:
    last = int(os.pread(inside, 100, 0) or 0)
    if token <= last:
        tell("token", f"lock {name}: token {token} after {last}")
    os.pwrite(inside, b"%d" % token, 0)


def tell(kind: str, text: str) -> None:
    """One line for the judge: a write that short is not torn among processes that append."""
    line = json.dumps({"at": time.monotonic(), "kind": kind, "text": f"{text} ({os.getpid()})"})
    at = os.path.join(settings.SITE["directory"], "told")
    told = os.open(at, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    try:
        os.write(told, line.encode() + b"\n")
    finally:
        os.close(told)
