"""Where the small object is kept: one class for each client, all with the same four words.

Each acknowledges what it did or raises. Clients that answer "stored" without having asked
(pymemcache without replies) are told to ask; clients that hide an outage behind a falsy
answer (python-memcached) have it looked at.
"""

from __future__ import annotations

import hashlib
import pickle
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from nearcache.lab.servers import ask

EXPIRES_S = 600
TIMEOUT_S = 20


class NotDone(Exception):
    """The client says that it did not do what it was asked to; the message says what it said."""


class Box(ABC):
    """Holds Python objects under text keys, over one connection that stays open."""

    @abstractmethod
    def set(self, key: str, value: Any) -> None: ...

    @abstractmethod
    def get(self, key: str) -> Any:
        """The object, or None."""

    @abstractmethod
    def delete(self, key: str) -> None: ...

    @abstractmethod
    def elsewhere(self, key: str) -> Any:
        """What another client on another connection finds: the object, or None."""

    @abstractmethod
    def requests(self) -> int:
        """How many requests were made so far; only differences mean something."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def proof(self) -> Mapping[str, str]:
        """What this box really is."""


def pack(value: Any) -> bytes:
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def unpack(data: bytes | None) -> Any:
    return None if data is None else pickle.loads(data)


class S3Box(Box):
    """boto3. Objects are called like their keys and begin with their deadline, eight bytes."""

    def __init__(self, places: Mapping[str, str], port: int) -> None:
        self.bucket = places["s3_bucket"]
        self.product = places["s3_product"]
        self._places, self._port = places, port
        self._sent = 0
        self._other: Any = None
        self.client = s3_client(places, port)
        self.client.meta.events.register("before-send.s3", self._count)

    def set(self, key: str, value: Any) -> None:
        self.client.put_object(Bucket=self.bucket, Key=self.name(key), Body=self.frame(value))

    def get(self, key: str) -> Any:
        return self._fetch(self.client, key)

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket=self.bucket, Key=self.name(key))

    def elsewhere(self, key: str) -> Any:
        # Kept, because boto3 reads its models of S3 for every client.
        self._other = self._other or s3_client(self._places, self._port)
        return self._fetch(self._other, key)

    def requests(self) -> int:
        return self._sent

    def close(self) -> None:
        self.client.close()

    def proof(self) -> Mapping[str, str]:
        return {
            "client": f"boto3 {metadata.version('boto3')}",
            "server": self.product,
            "address": self.client.meta.endpoint_url,
        }

    def name(self, key: str) -> str:
        return key

    def frame(self, value: Any) -> bytes:
        return struct.pack("!d", time.time() + EXPIRES_S) + pack(value)

    def unframe(self, data: bytes) -> Any:
        (deadline,) = struct.unpack_from("!d", data)
        return unpack(data[8:]) if time.time() < deadline else None

    def _fetch(self, client: Any, key: str) -> Any:
        try:
            answer = client.get_object(Bucket=self.bucket, Key=self.name(key))
        except client.exceptions.NoSuchKey:
            return None
        return self.unframe(answer["Body"].read())

    def _count(self, **_: Any) -> None:
        self._sent += 1


class SeedsBox(S3Box):
    """As django-s3-cache stored: the name is a SHA-1, the object two pickles, expiry first."""

    def name(self, key: str) -> str:
        return hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest()

    def frame(self, value: Any) -> bytes:
        return pack(time.time() + EXPIRES_S) + pack(value)

    def unframe(self, data: bytes) -> Any:
        expiry = pickle.loads(data)
        return unpack(data[len(pack(expiry)) :]) if time.time() < expiry else None


class CullingBox(SeedsBox):
    """The same with MAX_ENTRIES, django-s3-cache's default: every set counts the bucket."""

    def set(self, key: str, value: Any) -> None:
        self.client.list_objects_v2(Bucket=self.bucket, MaxKeys=1000)
        super().set(key, value)


def s3_client(places: Mapping[str, str], port: int) -> Any:
    """A client with boto3's own defaults, but for the address and the patience."""
    import boto3
    from botocore.config import Config

    return boto3.session.Session().client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        aws_access_key_id=places["s3_access_key"],
        aws_secret_access_key=places["s3_secret_key"],
        region_name=places["s3_region"],
        config=Config(
            s3={"addressing_style": "path"}, connect_timeout=TIMEOUT_S, read_timeout=TIMEOUT_S
        ),
    )


class MemcachedBox(Box):
    """What the three clients of Memcached have in common."""

    package: str

    def __init__(self, port: int) -> None:
        self.port = port
        self.client: Any = self.connect()

    @abstractmethod
    def connect(self) -> Any: ...

    def set(self, key: str, value: Any) -> None:
        answer = self.client.set(key, pack(value), EXPIRES_S)
        if not answer:
            raise NotDone(f"set answered {answer!r}: not stored, and no error was raised")

    def get(self, key: str) -> Any:
        return unpack(self.client.get(key))

    def delete(self, key: str) -> None:
        answer = self.client.delete(key)
        if not answer:
            raise NotDone(f"delete answered {answer!r}")

    def elsewhere(self, key: str) -> Any:
        answer = ask(self.port, f"get {key}\r\n".encode())
        if answer.startswith(b"END"):
            return None
        head, _, rest = answer.partition(b"\r\n")
        return unpack(rest[: int(head.split()[3])])

    def requests(self) -> int:
        lines = ask(self.port, b"stats\r\n").split(b"\r\n")
        stats = dict(line.split()[1:3] for line in lines if line.startswith(b"STAT "))
        names = (b"cmd_get", b"cmd_set", b"delete_hits", b"delete_misses")
        return sum(int(stats[name]) for name in names)

    def close(self) -> None:
        self.client.disconnect_all()

    def proof(self) -> Mapping[str, str]:
        client = f"{self.package} {metadata.version(self.package)}"
        return {"client": client, "address": f"127.0.0.1:{self.port}"}


class PylibmcBox(MemcachedBox):
    package = "pylibmc"

    def connect(self) -> Any:
        import pylibmc

        return pylibmc.Client([f"127.0.0.1:{self.port}"], behaviors={"tcp_nodelay": True})


class PymemcacheBox(MemcachedBox):
    package = "pymemcache"

    def connect(self) -> Any:
        from pymemcache import Client

        # By default it does not wait for an answer to a set, and so never hears of a failure.
        return Client(("127.0.0.1", self.port), default_noreply=False, no_delay=True)

    def close(self) -> None:
        self.client.close()


class PythonMemcachedBox(MemcachedBox):
    """Silent by design: a server that is away is a 0 or a None."""

    package = "python-memcached"

    def connect(self) -> Any:
        import memcache

        return memcache.Client([f"127.0.0.1:{self.port}"])


class RedisBox(Box):
    def __init__(self, port: int) -> None:
        import redis

        self.port = port
        self.client: Any = redis.Redis(port=port)

    def set(self, key: str, value: Any) -> None:
        if self.client.set(key, pack(value), ex=EXPIRES_S) is not True:
            raise NotDone("set was not acknowledged")

    def get(self, key: str) -> Any:
        return unpack(self.client.get(key))

    def delete(self, key: str) -> None:
        if self.client.delete(key) != 1:
            raise NotDone("delete found nothing")

    def elsewhere(self, key: str) -> Any:
        import redis

        other: Any = redis.Redis(port=self.port)
        with other:
            return unpack(other.get(key))

    def requests(self) -> int:
        answer = ask(self.port, b"INFO commandstats\r\n").decode()
        counted = [line for line in answer.splitlines() if line.startswith(WANTED)]
        return sum(int(line.partition("calls=")[2].partition(",")[0]) for line in counted)

    def close(self) -> None:
        self.client.close()

    def proof(self) -> Mapping[str, str]:
        client = f"redis {metadata.version('redis')}, hiredis {metadata.version('hiredis')}"
        return {"client": client, "address": f"127.0.0.1:{self.port}"}


WANTED = tuple(f"cmdstat_{name}:" for name in ("get", "set", "del"))
S3_BOXES: dict[str, type[S3Box]] = {"s3": S3Box, "s3-seed": SeedsBox, "s3-culling": CullingBox}
MEMCACHED_BOXES: dict[str, type[MemcachedBox]] = {
    "pylibmc": PylibmcBox,
    "pymemcache": PymemcacheBox,
    "python-memcached": PythonMemcachedBox,
}
