"""What the contenders of a crowd ask with: one client each, shared by all of them.

A client reads one small value (``get``, or the coroutine ``aget``), stores the values that
will be read (``fill``), and says from its live objects what it is (``proof``). All of them
connect under a name, so that the server can be asked how many connections there are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from nearcache.lab.proofs.proof import TreatmentNotApplied

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Order = Mapping[str, Any]
TIMEOUT_S = 600  # of keys, as everywhere in the lab


class Client(Protocol):
    """What a crowd needs; ``aget`` only where tasks ask."""

    def get(self, key: str) -> Any: ...
    def aget(self, key: str) -> Any: ...
    def fill(self, values: Mapping[str, str]) -> None: ...
    def proof(self) -> dict[str, str]: ...


class RedisPy:
    """redis-py alone: a GET of bytes through the pool that the order names."""

    def __init__(self, order: Order, _run: Run) -> None:
        import redis

        pools = {
            "redis-py": redis.BlockingConnectionPool,
            "redis-py-nonblocking": redis.ConnectionPool,
        }
        pool_class = pools[order["client"]]
        options: dict[str, Any] = {"client_name": order["name"]}
        if order["client"] == "redis-py":
            options["timeout"] = order["wait_s"]
        if order["queue"] == "gevent":
            from gevent.queue import LifoQueue

            options["queue_class"] = LifoQueue
        self.queue = order["queue"]
        self.pool: Any = pool_class.from_url(
            f"unix://{order['path']}", max_connections=order["connections"], **options
        )
        self.redis = redis.Redis(connection_pool=self.pool)

    def get(self, key: str) -> str | None:
        value: Any = self.redis.get(key)
        return value.decode() if value is not None else None

    def aget(self, key: str) -> Any:
        raise NotImplementedError

    def fill(self, values: Mapping[str, str]) -> None:
        self.redis.mset(dict(values))

    def proof(self) -> dict[str, str]:
        connection = self.pool.get_connection()
        self.pool.release(connection)
        return prove_pool(self.pool, connection, self.queue)


class DjangoRedis:
    """django-redis, with a blocking pool of redis-py's, or as it comes: without a limit."""

    def __init__(self, order: Order, _run: Run) -> None:
        options: dict[str, Any] = {}
        if order["connections"]:
            limits = {"max_connections": order["connections"], "timeout": order["wait_s"]}
            options["CONNECTION_POOL_CLASS"] = "redis.BlockingConnectionPool"
            options["CONNECTION_POOL_KWARGS"] = limits
        self.queue = order["queue"]
        self.cache = django_cache(
            "django_redis.cache.RedisCache",
            f"unix://{order['path']}?db=0&client_name={order['name']}",
            options,
        )
        self.get: Callable[[str], Any] = self.cache.get

    def aget(self, key: str) -> Any:
        raise NotImplementedError

    def fill(self, values: Mapping[str, str]) -> None:
        self.cache.set_many(values, TIMEOUT_S)

    def proof(self) -> dict[str, str]:
        pool = self.cache.client.get_client(write=True).connection_pool
        connection = pool.get_connection()
        pool.release(connection)
        backend = f"{type(self.cache).__module__}.{type(self.cache).__qualname__}"
        return {"backend": backend, **prove_pool(pool, connection, self.queue)}


class Nearcache:
    """nearcache's RedisCache: one connection, on which everybody's commands share writes."""

    def __init__(self, order: Order, run: Run) -> None:
        options = {
            "read_timeout": order["wait_s"],
            "connection_kwargs": {"client_name": order["name"]},
        }
        self.cache = django_cache(
            "nearcache.backends.RedisCache", f"unix://{order['path']}?db=0", options
        )
        self._run = run
        self._tasks = order["style"] == "tasks"
        self.get: Callable[[str], Any] = self.cache.get
        self.aget: Callable[[str], Any] = self.cache.aget

    def fill(self, values: Mapping[str, str]) -> None:
        if self._tasks:
            self._run(self.cache.aset_many(dict(values), TIMEOUT_S))
        else:
            self.cache.set_many(values, TIMEOUT_S)

    def proof(self) -> dict[str, str]:
        line = self.cache.engine.topology.primaries()[0]
        return {
            "backend": f"{type(self.cache).__module__}.{type(self.cache).__qualname__}",
            "pool": "none: one connection for all",
            "connection": f"{type(line).__module__}.{type(line).__qualname__}",
            "parser": line.reader_class,
            "hiredis": imported("hiredis"),
        }


class RedisPyTasks:
    """redis.asyncio with its blocking pool, which waits on a condition, not on a queue."""

    def __init__(self, order: Order, run: Run) -> None:
        import redis.asyncio

        self._run = run
        self.pool: Any = redis.asyncio.BlockingConnectionPool.from_url(
            f"unix://{order['path']}",
            max_connections=order["connections"],
            timeout=order["wait_s"],
            client_name=order["name"],
            decode_responses=True,
        )
        self.redis = redis.asyncio.Redis(connection_pool=self.pool)
        self.aget: Callable[[str], Any] = self.redis.get

    def get(self, key: str) -> Any:
        raise NotImplementedError

    def fill(self, values: Mapping[str, str]) -> None:
        async def fill() -> None:
            await self.redis.mset(dict(values))

        self._run(fill())

    def proof(self) -> dict[str, str]:
        async def connected() -> Any:
            connection = await self.pool.get_connection()
            await self.pool.release(connection)
            return connection

        connection = self._run(connected())
        return {
            "pool": name_of(self.pool),
            "waits on": name_of(self.pool._condition),
            "connections at most": str(self.pool.max_connections),
            "parser": name_of(connection._parser),
            "hiredis": imported("hiredis"),
        }


CLIENTS: dict[str, Callable[[Order, Run], Client]] = {
    "redis-py": RedisPy,
    "redis-py-nonblocking": RedisPy,
    "django-redis": DjangoRedis,
    "nearcache": Nearcache,
    "redis-py-tasks": RedisPyTasks,
}


def open_client(order: Order, run: Run) -> Client:
    """The client of this order. ``run`` runs a coroutine in the crowd's event loop."""
    return CLIENTS[order["client"]](order, run)


def django_cache(backend: str, location: str, options: Mapping[str, Any]) -> Any:
    import django
    from django.conf import settings

    entry = {"BACKEND": backend, "LOCATION": location, "OPTIONS": dict(options)}
    settings.configure(CACHES={"default": entry}, USE_TZ=True)
    django.setup()
    from django.core.cache import caches

    return caches["default"]


def prove_pool(pool: Any, connection: Any, ordered: str) -> dict[str, str]:
    """What a pool of redis-py is made of. Raises TreatmentNotApplied for another queue."""
    proof = {
        "pool": name_of(pool),
        "connections at most": str(pool.max_connections),
        "parser": name_of(connection._parser),
        "hiredis": imported("hiredis"),
    }
    queue = getattr(pool, "pool", None)  # only the blocking pool waits on one
    if queue is None:
        return proof
    proof["queue"] = name_of(queue)
    is_gevents = type(queue).__module__.startswith("gevent")
    # What patch_all() of this gevent does to the queue is a finding, not an order.
    if ordered in ("stdlib", "gevent") and is_gevents != (ordered == "gevent"):
        raise TreatmentNotApplied(f"the pool waits on a {proof['queue']}, not on {ordered}'s")
    if hasattr(queue, "mutex"):
        proof["lock of the queue"] = name_of(queue.mutex)
    return proof


def name_of(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def imported(module: str) -> str:
    return "imported" if module in sys.modules else "absent"
