"""Redis that writes down what it is told: an append-only file on a disk, three policies.

    redis-always     fsync before every answer: what was acknowledged survives a power cut
    redis-everysec   fsync once a second: the last second or two may be lost
    redis-os         written, never fsynced: the kernel decides when (about 30 s)

Otherwise as ``redis``: a private unix socket and port, no snapshots. The file is rewritten
when it has doubled, as Redis does by itself.
"""

from __future__ import annotations

from typing import Literal

from nearcache.lab.base.directories import disk_parent, mount_of
from nearcache.lab.servers import Running, Servers, free_port
from nearcache.lab.servers.redis import find_redis

Policy = Literal["always", "everysec", "no"]
Name = Literal["redis-always", "redis-everysec", "redis-os"]


def start_redis_always(servers: Servers) -> Running:
    return _start(servers, "redis-always", "always")


def start_redis_everysec(servers: Servers) -> Running:
    return _start(servers, "redis-everysec", "everysec")


def start_redis_os(servers: Servers) -> Running:
    return _start(servers, "redis-os", "no")


def _start(servers: Servers, name: Name, policy: Policy) -> Running:
    """Places: ``redis_always_socket``, ``redis_always_port``, ``redis_always_mount``, and so on."""
    binary = find_redis(servers)
    directory = servers.directory_in(disk_parent())
    path, port = str(directory / "redis.sock"), free_port()
    command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--unixsocket", path]
    command += ["--unixsocketperm", "700", "--dir", str(directory), "--daemonize", "no"]
    command += ["--save", "", "--appendonly", "yes", "--appendfsync", policy]
    command += ["--maxmemory-policy", "noeviction"]
    prefix = name.replace("-", "_")
    places = {
        f"{prefix}_socket": path,
        f"{prefix}_port": str(port),
        f"{prefix}_mount": str(mount_of(directory)),
    }
    return servers.launch(
        name, command, path, b"INFO server\r\n", b"redis_version:", places, cwd=directory
    )
