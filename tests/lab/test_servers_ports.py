"""The ports that private servers get."""

from __future__ import annotations

import socket
from contextlib import suppress

from nearcache.lab import servers


def test_a_port_is_free_given_once_and_none_of_those_connections_get() -> None:
    ports = [servers.free_port() for _ in range(50)]
    assert len(set(ports)) == 50
    assert all(10_000 <= port < 32_768 for port in ports)
    # All but one that somebody else of this machine may have taken since.
    assert sum(is_free(port) for port in ports) >= 49


def is_free(port: int) -> bool:
    with suppress(OSError):
        socket.create_server(("127.0.0.1", port)).close()
        return True
    return False
