"""A bare socket to the private server of a candidate: what is really there, and how fast.

As little as can be between the lab and the server, for two uses. *Proof*: a value that a
candidate has stored must lie at the address and in the database that its settings name.
*Floor*: the same bytes asked for without any client; no client can be faster.

Speaks Redis and Memcached, and only to servers that the lab has started itself: a user's
own may want a password or TLS, and is not for us to read from.
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Self
from urllib.parse import parse_qs, urlsplit

from nearcache.lab.base.model import Candidate

TIMEOUT_S = 5.0
LIFETIME_S = 600


class WireBroken(Exception):
    """The server answered something that was not expected."""


class Wire(ABC):
    """One connection. Use as a context manager."""

    def __init__(self, address: str | tuple[str, int]) -> None:
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.settimeout(TIMEOUT_S)
        self._socket.connect(address)
        if family == socket.AF_INET:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._reader.close()
        self._socket.close()

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """The bytes under this key; None if there are none."""

    @abstractmethod
    def set(self, key: bytes, value: bytes) -> None:
        """Store bytes for ten minutes."""

    @abstractmethod
    def delete(self, key: bytes) -> None: ...

    @abstractmethod
    def process_id(self) -> int:
        """Of the server."""

    def busy_ns(self) -> float | None:
        """What the server has spent inside commands; None if it does not say."""
        return None

    def cpu_ns(self) -> int | None:
        """CPU time of the server's process; None where the kernel does not show it."""
        tasks = Path(f"/proc/{self.process_id()}/task")
        try:
            return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir())
        except OSError:
            return None

    def _line(self) -> bytes:
        line = self._reader.readline()
        if not line.endswith(b"\r\n"):
            raise WireBroken("the server closed the connection")
        return line[:-2]

    def _exactly(self, count: int) -> bytes:
        return self._reader.read(count + 2)[:-2]


class RedisWire(Wire):
    def __init__(self, address: str | tuple[str, int], database: int) -> None:
        super().__init__(address)
        self._ask(b"SELECT", b"%d" % database)

    def get(self, key: bytes) -> bytes | None:
        return self._ask(b"GET", key)

    def set(self, key: bytes, value: bytes) -> None:
        self._ask(b"SET", key, value, b"EX", b"%d" % LIFETIME_S)

    def delete(self, key: bytes) -> None:
        self._ask(b"DEL", key)

    def process_id(self) -> int:
        return int(self._info(b"server")["process_id"])

    def busy_ns(self) -> float | None:
        """Of all commands but the lab's own questions, to the microsecond."""
        total_us = 0.0
        for name, text in self._info(b"commandstats").items():
            if not name.endswith(("_info", "_select")):
                fields = dict(pair.split("=") for pair in text.split(","))
                total_us += float(fields["usec"])
        return 1000 * total_us

    def _info(self, section: bytes) -> dict[str, str]:
        text = (self._ask(b"INFO", section) or b"").decode()
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    def _ask(self, *words: bytes) -> bytes | None:
        packed = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
        self._socket.sendall(b"*%d\r\n%b" % (len(words), packed))
        line = self._line()
        if line.startswith(b"-"):
            raise WireBroken(line[1:].decode(errors="replace"))
        if line.startswith(b"$"):
            length = int(line[1:])
            return None if length < 0 else self._exactly(length)
        return line[1:]


class MemcachedWire(Wire):
    def get(self, key: bytes) -> bytes | None:
        self._socket.sendall(b"get %b\r\n" % key)
        line = self._line()
        if line == b"END":
            return None
        value = self._exactly(int(line.split()[3]))
        self._line()
        return value

    def set(self, key: bytes, value: bytes) -> None:
        self._socket.sendall(b"set %b 0 %d %d\r\n%b\r\n" % (key, LIFETIME_S, len(value), value))
        if (line := self._line()) != b"STORED":
            raise WireBroken(line.decode(errors="replace"))

    def delete(self, key: bytes) -> None:
        self._socket.sendall(b"delete %b\r\n" % key)
        self._line()

    def process_id(self) -> int:
        self._socket.sendall(b"stats\r\n")
        found = 0
        while (line := self._line()) != b"END":
            if line.startswith(b"STAT pid "):
                found = int(line.split()[2])
        return found


def wire_of(candidate: Candidate) -> Wire | None:
    """To the place that the candidate's settings name; None if that is no server of ours."""
    if candidate.settings_module or not candidate.settings:
        return None
    location = candidate.settings.get("LOCATION")
    if not isinstance(location, str):
        return None
    if candidate.server in ("memcached-unix", "memcached-tcp"):
        if "/" in location:
            return MemcachedWire(location.removeprefix("unix:"))
        host, _, port = location.rpartition(":")
        return MemcachedWire((host, int(port)))
    if candidate.server and candidate.server.startswith("redis"):
        return _redis_wire(location, candidate.settings.get("OPTIONS", {}))
    return None


def _redis_wire(location: str, options: Mapping[str, object]) -> RedisWire:
    url = urlsplit(location)
    asked = parse_qs(url.query).get("db", [])
    path = url.path.strip("/")
    in_path = path if url.scheme != "unix" and path.isdigit() else "0"
    database = int(str(options.get("db", asked[0] if asked else in_path)))
    if url.scheme == "unix":
        return RedisWire(url.path, database)
    return RedisWire((url.hostname or "127.0.0.1", url.port or 6379), database)
