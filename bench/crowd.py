"""One crowd in one process: ``python -m bench.crowd greenlets ours SOCKET SECONDS`` prints JSON.

Many callers share one process and one server. A crowd runs in a process of its own because
gevent changes the whole interpreter. Only calls that began and ended inside the measured
time count; the callers were all there before it began.

    greenlets  5,000, as in the project's second seed: a pool of 100, waiting for 1 s at most
    pings      the same with PING, as there: no Django, no value
    tasks      1,000 asyncio tasks; the peer has a pool of 50
    threads    32; the peer has a pool of 50
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

GREENLETS, TASKS, THREADS = 5000, 1000, 32
POOL = {"greenlets": 100, "pings": 100, "tasks": 50, "threads": 50}
WAIT_S = 1.0
KEY = ":1:S"


@dataclass
class Tally:
    """What a crowd did in the measured time."""

    answered: int = 0
    failed: int = 0
    measuring: bool = False
    over: bool = False
    seconds: float = 0.0

    def count(self, began_measured: bool, ok: bool) -> None:
        if began_measured and self.measuring:
            self.answered += ok
            self.failed += not ok


def main() -> None:
    crowd, who, path, seconds = sys.argv[1:5]
    if crowd in ("greenlets", "pings"):
        from gevent import monkey

        monkey.patch_all()
    works = {"greenlets": greenlets, "pings": pings, "tasks": tasks, "threads": threads}
    tally = works[crowd](who, path, float(seconds))
    print(json.dumps(asdict(tally)))


def cache(path: str) -> Any:
    """Ours, through Django."""
    import django
    from django.conf import settings

    if not settings.configured:
        settings.configure(
            CACHES={
                "default": {
                    "BACKEND": "nearcache.backends.RedisCache",
                    "LOCATION": f"unix://{path}",
                    "OPTIONS": {"read_timeout": WAIT_S},
                }
            }
        )
        django.setup()
    from django.core.cache import caches

    return caches["default"]


def asking(who: str, path: str, pool: int) -> Callable[[], Any]:
    """One request: ours is a whole ``cache.get`` of S, the peer's a GET of the same bytes."""
    if who == "ours":
        ours = cache(path)
        assert ours.get("S") is not None
        return lambda: ours.get("S")
    client = peer(path, pool)
    assert client.get(KEY)
    return lambda: client.get(KEY)


def peer(path: str, pool: int) -> Any:
    import redis

    connections = redis.BlockingConnectionPool.from_url(
        f"unix://{path}", max_connections=pool, timeout=WAIT_S
    )
    return redis.Redis(connection_pool=connections)


def pinging(who: str, path: str, pool: int) -> Callable[[], Any]:
    """One PING: ours through the engine, the peer's through its client."""
    if who == "ours":
        ask = cache(path).engine.topology.ask
        packed = b"*1\r\n$4\r\nPING\r\n"
        assert ask(packed) == b"PONG"
        return lambda: ask(packed)
    client = peer(path, pool)
    assert client.ping()
    ping: Callable[[], Any] = client.ping
    return ping


def greenlets(who: str, path: str, seconds: float) -> Tally:
    return _in_greenlets(asking(who, path, POOL["greenlets"]), seconds)


def pings(who: str, path: str, seconds: float) -> Tally:
    return _in_greenlets(pinging(who, path, POOL["pings"]), seconds)


def _in_greenlets(ask: Callable[[], Any], seconds: float) -> Tally:
    import gevent

    tally = Tally()
    crowd = [gevent.spawn(_loop, tally, ask) for _ in range(GREENLETS)]
    gevent.sleep(0.5)
    _measure(tally, seconds, gevent.sleep)
    gevent.joinall(crowd)
    return tally


def threads(who: str, path: str, seconds: float) -> Tally:
    tally, ask = Tally(), asking(who, path, POOL["threads"])
    crowd = [threading.Thread(target=_loop, args=(tally, ask)) for _ in range(THREADS)]
    for thread in crowd:
        thread.start()
    time.sleep(0.2)
    _measure(tally, seconds, time.sleep)
    for thread in crowd:
        thread.join()
    return tally


def _loop(tally: Tally, ask: Callable[[], Any]) -> None:
    count = tally.count
    while not tally.over:
        measured = tally.measuring
        try:
            ok = ask() is not None
        except Exception:  # noqa: BLE001 - the peer's pool raises its own; all count as failed
            ok = False
        count(measured, ok)


def _measure(tally: Tally, seconds: float, sleep: Callable[[float], Any]) -> None:
    began = time.perf_counter()
    tally.measuring = True
    sleep(seconds)
    tally.measuring = False
    tally.seconds = time.perf_counter() - began
    tally.over = True


def tasks(who: str, path: str, seconds: float) -> Tally:
    return asyncio.run(_tasks(who, path, seconds))


async def _tasks(who: str, path: str, seconds: float) -> Tally:
    tally = Tally()
    if who == "ours":
        ours = cache(path)

        def ask() -> Any:
            return ours.aget("S")
    else:
        import redis.asyncio

        connections = redis.asyncio.BlockingConnectionPool.from_url(
            f"unix://{path}", max_connections=POOL["tasks"], timeout=WAIT_S
        )
        client = redis.asyncio.Redis(connection_pool=connections)

        def ask() -> Any:
            return client.get(KEY)

    assert await ask() is not None

    async def loop() -> None:
        while not tally.over:
            measured = tally.measuring
            try:
                ok = await ask() is not None
            except Exception:  # noqa: BLE001 - see _loop
                ok = False
            tally.count(measured, ok)

    crowd = [asyncio.create_task(loop()) for _ in range(TASKS)]
    await asyncio.sleep(0.5)
    began = time.perf_counter()
    tally.measuring = True
    await asyncio.sleep(seconds)
    tally.measuring = False
    tally.seconds = time.perf_counter() - began
    tally.over = True
    await asyncio.gather(*crowd)
    if who != "ours":
        await connections.disconnect()
    return tally


if __name__ == "__main__":
    main()
