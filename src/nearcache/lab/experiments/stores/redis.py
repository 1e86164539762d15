"""JSON in Redis: by redis-py, by Django's cache, and by django-redis as the article had it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nearcache.lab.experiments.stores.contract import Durability, Store, WrongDurability

EXPIRES_S = 600  # the "natural expiration" that the article wanted Redis for
PROMISES = {
    "always": "on the disk when the write returns",
    "everysec": "the last second or two before a crash may be lost",
    "no": "written, not fsynced: some 30 s before a power cut may be lost",
    "": "gone with the process",
}


class RedisStore(Store):
    """redis-py's client and the JSON's bytes, nothing else. ``appendfsync`` is what to find."""

    def __init__(self, socket: str, prefix: str, appendfsync: str) -> None:
        self.socket = socket
        self.prefix = prefix
        self.appendfsync = appendfsync
        self.written: list[str] = []
        self.client = _client(socket)

    def write(self, identity: int, value: Any) -> None:
        self.client.set(f"{self.prefix}:{identity}", json.dumps(value), ex=EXPIRES_S)
        self.written.append(f"{self.prefix}:{identity}")

    def read(self, identity: int) -> Any:
        return json.loads(self.client.get(f"{self.prefix}:{identity}"))

    def read_elsewhere(self, identity: int) -> Any:
        with _client(self.socket) as other:
            return json.loads(other.get(f"{self.prefix}:{identity}"))

    def disconnect(self) -> None:
        self.client.close()
        self.client.connection_pool.disconnect()

    def empty(self) -> None:
        if self.written:
            self.client.unlink(*self.written)
            self.written.clear()

    def durability(self, write: Callable[[], None]) -> Durability:
        return durability_of(self.socket, self.appendfsync, write)

    def proof(self) -> Mapping[str, str]:
        import redis

        return {"client": f"redis-py {redis.__version__}", "connection": f"unix {self.socket}"}


class RedisCacheStore(Store):
    """A cache alias over Redis. ``packs`` if the backend's own serializer gets the value."""

    def __init__(self, socket: str, appendfsync: str, *, packs: bool) -> None:
        from django.core.cache import caches

        self.socket = socket
        self.appendfsync = appendfsync
        self.packs = packs
        self.written: list[str] = []
        self.cache: Any = caches.create_connection("default")

    def write(self, identity: int, value: Any) -> None:
        self.cache.set(str(identity), value if self.packs else json.dumps(value).encode())
        self.written.append(str(identity))

    def read(self, identity: int) -> Any:
        found = self.cache.get(str(identity))
        return found if self.packs else json.loads(found)

    def read_elsewhere(self, identity: int) -> Any:
        # Its pool is shared by the process, so the bytes come by a client of our own.
        with _client(self.socket) as other:
            packed = other.get(self.cache.make_key(str(identity)))
        if hasattr(self.cache, "client"):
            found = self.cache.client.decode(packed)
        else:
            found = self.cache._cache._serializer.loads(packed)
        return found if self.packs else json.loads(found)

    def disconnect(self) -> None:
        client_of(self.cache).connection_pool.disconnect()

    def empty(self) -> None:
        self.cache.delete_many(self.written)
        self.written.clear()

    def durability(self, write: Callable[[], None]) -> Durability:
        return durability_of(self.socket, self.appendfsync, write)

    def proof(self) -> Mapping[str, str]:
        proof = {"backend": f"{type(self.cache).__module__}.{type(self.cache).__qualname__}"}
        if self.packs:
            client = self.cache.client
            proof["packed by"] = f"{_name(client._serializer)}, {_name(client._compressor)}"
        return proof


def durability_of(socket: str, expected: str, write: Callable[[], None]) -> Durability:
    """What the server says on a connection of our own, and whether its file grew."""
    with _client(socket) as other:
        said = {name: _config(other, name) for name in ("appendonly", "appendfsync", "save")}
        found = said["appendfsync"] if said["appendonly"] == "yes" else ""
        settings = ", ".join(f"{name}={value or repr(value)}" for name, value in said.items())
        if found != expected:
            raise WrongDurability(f"the server says {settings}, not {expected or 'no'!r}")
        if said["save"]:
            raise WrongDurability(f"the server writes snapshots (save={said['save']})")
        directory = Path(_config(other, "dir"), _config_or(other, "appenddirname", "."))
        before = _appended_bytes(directory)
        write()
        grown = _appended_bytes(directory) - before
    if expected == "always" and grown <= 0:
        raise WrongDurability("a write that was acknowledged did not reach the append-only file")
    evidence = f"the append-only file grew by {grown:,} bytes at a write" if found else "no file"
    return Durability(PROMISES[found], settings, evidence)


def client_of(cache: Any) -> Any:
    """The redis-py client of a django-redis cache or of Django's own."""
    if hasattr(getattr(cache, "client", None), "get_client"):
        return cache.client.get_client(write=True)
    return cache._cache.get_client(write=True)


def _client(socket: str) -> Any:
    import redis

    return redis.Redis(unix_socket_path=socket)


def _config(client: Any, name: str) -> str:
    return str(client.config_get(name)[name])


def _config_or(client: Any, name: str, default: str) -> str:
    """From 7.0 on the file is several, in a directory of their own."""
    return str(client.config_get(name).get(name, default))


def _appended_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.aof"))


def _name(thing: Any) -> str:
    return type(thing).__name__
