"""The ports that private servers get."""

from __future__ import annotations

import socket

from nearcache.lab import servers


def test_a_port_is_free_given_once_and_none_of_those_connections_get() -> None:
    ports = [servers.free_port() for _ in range(50)]
    assert len(set(ports)) == 50
    assert all(10_000 <= port < 32_768 for port in ports)
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()
