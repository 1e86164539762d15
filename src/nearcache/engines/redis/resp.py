"""RESP, the protocol of Redis and Valkey: commands as bytes, replies as objects.

Source: the Redis serialization protocol specification, versions 2 and 3.
"""

from __future__ import annotations

from typing import Any, Protocol


class ErrorReply(Exception):
    """An error that the server replied; ``code`` is its first word (``WRONGTYPE``, ``OOM``)."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = message.partition(" ")[0]


class Reader(Protocol):
    """Takes bytes as they come, gives replies as they are complete: ``hiredis.Reader``'s ways."""

    def feed(self, data: bytes) -> None: ...

    def gets(self) -> Any:
        """The next reply, or False if it has not all come yet."""


def pack(*words: bytes | int | str) -> bytes:
    """One command."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        raw = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(raw), raw))
    return b"".join(parts)
