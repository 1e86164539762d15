"""redis-server, or valkey-server where that is what there is."""

from __future__ import annotations

from nearcache.lab.servers import Running, Servers, free_port


def start_redis(servers: Servers) -> Running:
    """On a unix socket and a port; keeps nothing, and evicts nothing."""
    names = ("redis-server", "valkey-server")
    binary = servers.find("redis", names, "apt install redis-server")
    path, port = str(servers.directory / "redis.sock"), free_port()
    command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--unixsocket", path]
    command += ["--unixsocketperm", "700", "--dir", str(servers.directory), "--daemonize", "no"]
    # Persistence would fork and write while we measure.
    command += ["--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"]
    places = {"redis_socket": path, "redis_port": str(port)}
    return servers.launch("redis", command, path, b"INFO server\r\n", b"redis_version:", places)
