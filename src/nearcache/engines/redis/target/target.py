"""Where a Redis is and how to reach it: frozen values, made before anything connects.

:func:`parse_target` (in :mod:`.location`) makes them of what users write.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import unquote

SENTINEL_PORT, SERVER_PORT = 26379, 6379
HOST = re.compile(r"(?:\[([0-9A-Za-z:.%]+)\]|([^:\[\]@/\s]*))(?::([0-9]{0,5}))?")

Kind = Literal["standalone", "sentinel", "cluster"]


@dataclass(frozen=True, kw_only=True)
class Address:
    """One server: host and port, or the path of a unix socket."""

    host: str = ""
    port: int = SERVER_PORT
    path: str = ""

    @classmethod
    def parse(cls, text: str, default_port: int) -> Address:
        """Of "host:port", as URLs have it; ValueError without the text, which may be a secret."""
        match = HOST.fullmatch(text.strip())
        if match is None or not 0 <= int(match[3] or 0) <= 65535:
            raise ValueError(
                "has no readable host:port; write special characters of a password as %XX, and an"
                ' IPv6 address in brackets: "redis://[::1]:6379"'
            )
        host = unquote(match[1] or match[2] or "localhost")
        return cls(host=host, port=int(match[3] or default_port))

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, kw_only=True)
class Target:
    """What :func:`~nearcache.engines.redis.engine.open_redis` opens; hashable.

    Seconds are float. ``addresses`` are servers (primary first), sentinels or cluster nodes.
    """

    kind: Kind = "standalone"
    addresses: tuple[Address, ...] = (Address(host="127.0.0.1"),)
    replicas: tuple[Address, ...] = ()
    """Used for reads only if ``read_replicas``."""
    read_replicas: bool = False
    sentinel_service: str = ""
    database: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)
    sentinel_kwargs: tuple[tuple[str, Any], ...] = field(default=(), repr=False, hash=False)
    """Everything else for redis-py's connections to sentinels (``ssl``), sorted by name."""
    tls: bool = False
    protocol: Literal[2, 3] = 2
    parser: Literal["hiredis", "python"] | None = None
    """None: hiredis where it is installed."""
    connect_timeout_s: float = 1.0
    read_timeout_s: float = 1.0
    pool_timeout_s: float = 5.0
    pool_connections: int = 50
    breaker_failures: int = 3
    """So many failures in a row open the circuit of a server; 0 never does."""
    breaker_s: float = 1.0
    """How long an open circuit answers at once; then one caller tries."""
    keepalive: bool = True
    address_remap: Callable[[tuple[str, int]], tuple[str, int]] | None = field(
        default=None, repr=False
    )
    """From the (host, port) that a cluster or a sentinel names to what can be reached from here."""
    connection_kwargs: tuple[tuple[str, Any], ...] = field(default=(), repr=False, hash=False)
    """Everything else for redis-py's connection class, TLS files among it, sorted by name.

    Not hashed: values may be lists, dicts or objects, which compare well enough.
    """
