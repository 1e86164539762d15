"""memcached: on a unix socket or a port, never both, so there are two of them."""

from __future__ import annotations

import os

from nearcache.lab.servers import Running, Servers, free_port

QUESTION, MARKER = b"version\r\n", b"VERSION "


def start_memcached_unix(servers: Servers) -> Running:
    path = str(servers.directory / "memcached.sock")
    command = [*_memcached(servers), "-s", path, "-a", "0700"]
    places = {"memcached_socket": path}
    return servers.launch("memcached-unix", command, path, QUESTION, MARKER, places)


def start_memcached_tcp(servers: Servers) -> Running:
    # With -s memcached opens no port at all, so TCP takes a server of its own.
    port = free_port()
    command = [*_memcached(servers), "-l", "127.0.0.1", "-p", str(port), "-U", "0"]
    places = {"memcached_port": str(port)}
    return servers.launch("memcached-tcp", command, port, QUESTION, MARKER, places)


def _memcached(servers: Servers) -> list[str]:
    as_root = ["-u", "root"] if os.geteuid() == 0 else []
    return [find_memcached(servers), "-m", "256", *as_root]


def find_memcached(servers: Servers) -> str:
    """Its path. Raises ServerMissing, or LabError for a path that is no program."""
    return servers.find("memcached", ("memcached",), "apt install memcached")
