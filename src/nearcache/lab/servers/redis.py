"""redis-server, or valkey-server where that is what there is."""

from __future__ import annotations

from nearcache.lab.servers import Running, Servers, free_port


def start_redis(servers: Servers) -> Running:
    """On a unix socket and a port; keeps nothing, and evicts nothing."""
    binary = find_redis(servers)
    path, port = str(servers.directory / "redis.sock"), free_port()
    command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--unixsocket", path]
    command += ["--unixsocketperm", "700", "--dir", str(servers.directory), "--daemonize", "no"]
    # Persistence would fork and write while we measure.
    command += ["--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"]
    places = {"redis_socket": path, "redis_port": str(port)}
    return servers.launch("redis", command, path, b"INFO server\r\n", b"redis_version:", places)


def find_redis(servers: Servers) -> str:
    """Its path. Raises ServerMissing, or LabError for a path that is no program."""
    return servers.find("redis", ("redis-server", "valkey-server"), "apt install redis-server")
