"""redis-py's clients over the fair pools, for all that this package has no method for.

    client, aclient                  the client for ``Target.kind``
    standalone_client, a...          one server, by its address
    sentinel_client, a...            the primary that the sentinels name, at every connect
    cluster_client, a...             redis-py's own topology, a fair pool per node

A client is made once per process (asyncio: per loop). It is safe to share, and never has to be
closed. Its timeouts are the target's, its errors redis-py's. It retries nothing, because redis-py
would repeat also what must not be repeated.
"""

from __future__ import annotations

import contextlib
from typing import Any

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.retry
import redis.asyncio.sentinel
import redis.cluster
import redis.sentinel
from redis.backoff import NoBackoff
from redis.retry import Retry

from nearcache.base.per_process import once_here
from nearcache.engines.redis.connection.connect import (
    PACKING,
    QUIET,
    connection_class,
    connection_kwargs,
)
from nearcache.engines.redis.connection.event_loops import of_this_loop
from nearcache.engines.redis.connection.fair_semaphore import AsyncFairSemaphore
from nearcache.engines.redis.connection.pool import AsyncFairPool, FairPool, too_late
from nearcache.engines.redis.target.target import Address, Target


def client(target: Target) -> Any:
    """A ``redis.Redis`` (``redis.RedisCluster``) for the target's primary (primaries)."""
    makers = {"cluster": cluster_client, "sentinel": sentinel_client}
    return makers.get(target.kind, standalone_client)(target)


def aclient(target: Target) -> Any:
    """A ``redis.asyncio.Redis`` (``RedisCluster``) for the running loop."""
    makers = {"cluster": acluster_client, "sentinel": asentinel_client}
    return makers.get(target.kind, astandalone_client)(target)


def standalone_client(target: Target, address: Address | None = None) -> Any:
    """A client of one server; without an address, of the first."""
    where = address or target.addresses[0]

    def make() -> Any:
        kwargs = connection_arguments(target, where)
        return redis.Redis(connection_pool=_bounded(FairPool, target)(**kwargs))

    return once_here(("redis client", target, where), make)


def astandalone_client(target: Target, address: Address | None = None) -> Any:
    """:func:`standalone_client` for the running loop."""
    where = address or target.addresses[0]

    def make() -> _OfLoop:
        kwargs = async_connection_arguments(target, where)
        pool = _bounded(AsyncFairPool, target)(**kwargs)
        return _OfLoop(redis.asyncio.Redis(connection_pool=pool), pool)

    return of_this_loop(("redis client", target, where), make).client


def sentinel_client(target: Target) -> Any:
    """A client of the primary that the sentinels name. It asks them again at every connect."""

    def make() -> Any:
        kwargs = connection_arguments(target, Address())
        _, pool = _sentinels(target, redis, _SentinelPool, kwargs)
        return redis.Redis(connection_pool=pool)

    return once_here(("redis client", target), make)


def asentinel_client(target: Target) -> Any:
    """:func:`sentinel_client` for the running loop."""

    def make() -> _OfLoop:
        kwargs = async_connection_arguments(target, Address())
        sentinels, pool = _sentinels(target, redis.asyncio, _AsyncSentinelPool, kwargs)
        pools = [each.connection_pool for each in sentinels.sentinels]
        return _OfLoop(redis.asyncio.Redis(connection_pool=pool), pool, *pools)

    return of_this_loop(("redis client", target), make).client


def _sentinels(
    target: Target, library: Any, pool: type[Any], kwargs: dict[str, Any]
) -> tuple[Any, Any]:
    """redis-py's sentinels of the target, and a pool of connections to their primary."""
    sentinels = library.sentinel.Sentinel(
        [(each.host, each.port) for each in target.addresses],
        sentinel_kwargs=_sentinel_arguments(target, kwargs),
    )
    of_primary = _common(kwargs) | {"db": target.database, "ssl": target.tls}
    return sentinels, _bounded(pool, target)(target.sentinel_service, sentinels, **of_primary)


def cluster_client(target: Target) -> Any:
    """redis-py's cluster client. It connects now, to read the slots (raises redis-py's errors)."""

    def make() -> Any:
        first = target.addresses[0]
        return redis.RedisCluster(
            # With a URL, and only then, redis-py makes node pools of the class it is given.
            url=f"redis://{first.host}:{first.port}",
            startup_nodes=_nodes(redis.cluster.ClusterNode, target),
            connection_class=connection_class(target, first),
            connection_pool_class=_bounded(FairPool, target),
            max_connections=target.pool_connections,
            address_remap=target.address_remap,
            **_reading(target),
            **_common(connection_arguments(target, Address())),
        )

    return once_here(("redis client", target), make)


def acluster_client(target: Target) -> Any:
    """:func:`cluster_client` for the running loop. It connects at its first command."""

    def make() -> _OfLoop:
        kwargs = _common(async_connection_arguments(target, Address()))
        made = _AsyncCluster(
            startup_nodes=_nodes(redis.asyncio.cluster.ClusterNode, target),
            max_connections=target.pool_connections,
            address_remap=target.address_remap,
            ssl=target.tls,
            **_reading(target),
            **kwargs,
        )
        made.seat(target)
        return _OfLoop(made, made)

    return of_this_loop(("redis client", target), make).client


# ---- what redis-py's connections are made with


def connection_arguments(target: Target, address: Address) -> dict[str, Any]:
    """Everything for a pool of redis-py: connection class, place, user, timeouts."""
    return {
        "retry": Retry(NoBackoff(), 0),
        "connection_class": connection_class(target, address),
        **PACKING,
        **connection_kwargs(target, address),
    }


def async_connection_arguments(target: Target, address: Address) -> dict[str, Any]:
    """:func:`connection_arguments` for redis.asyncio, which has classes of its own."""
    kwargs = connection_kwargs(target, address)
    # Parsers and retries made for plain calls cannot be awaited.
    kwargs.pop("parser_class", None)
    return kwargs | {
        "retry": redis.asyncio.retry.Retry(NoBackoff(), 0),
        "connection_class": connection_class(target, address, redis.asyncio),
    }


def async_connection(target: Target, address: Address) -> Any:
    """A connection of redis.asyncio, not connected yet."""
    kwargs = async_connection_arguments(target, address)
    return kwargs.pop("connection_class")(**kwargs)


def _common(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments without those that a sentinel or the cluster decides."""
    return {k: v for k, v in kwargs.items() if k not in ("host", "port", "connection_class", "db")}


def _sentinel_arguments(target: Target, kwargs: dict[str, Any]) -> dict[str, Any]:
    shared = ("socket_timeout", "socket_connect_timeout", "socket_keepalive", "retry")
    return {
        **QUIET,
        **{name: kwargs[name] for name in shared},
        "username": target.sentinel_username,
        "password": target.sentinel_password,
        "protocol": target.protocol,
        **dict(target.sentinel_kwargs),
    }


def _nodes(node: Any, target: Target) -> list[Any]:
    return [node(each.host, each.port) for each in target.addresses]


def _reading(target: Target) -> dict[str, Any]:
    if not target.read_replicas:
        return {}
    try:
        from redis.cluster import LoadBalancingStrategy
    except ImportError:  # redis-py 5.2
        return {"read_from_replicas": True}
    return {"load_balancing_strategy": LoadBalancingStrategy.ROUND_ROBIN}


def _bounded(pool: type[Any], target: Target) -> Any:
    """A subclass of the pool with the target's bounds: redis-py hands arguments to connections."""
    fields = {"wait_s": target.pool_timeout_s, "limit": target.pool_connections}
    return type(pool.__name__, (pool,), fields)


class _SentinelPool(FairPool, redis.sentinel.SentinelConnectionPool):
    pass


class _AsyncSentinelPool(AsyncFairPool, redis.asyncio.sentinel.SentinelConnectionPool):
    pass


class _AsyncCluster(redis.asyncio.RedisCluster):
    """redis-py's cluster client, whose pools wait for nobody: here commands queue for seats."""

    def seat(self, target: Target) -> None:
        self._gate, self._seating = AsyncFairSemaphore(target.pool_connections), target

    async def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        target = self._seating
        if not await self._gate.enter(target.pool_timeout_s):
            raise too_late(target.pool_connections, target.pool_timeout_s, self._gate.waiting)
        try:
            return await super().execute_command(*args, **kwargs)
        finally:
            self._gate.leave()


class _OfLoop:
    """A client of one loop, and what to close when the loop ends."""

    def __init__(self, made: Any, *open_things: Any) -> None:
        self.client = made
        self._open_things = open_things

    async def at_loop_end(self) -> None:
        for thing in self._open_things:
            with contextlib.suppress(redis.RedisError, OSError):
                await thing.aclose()
