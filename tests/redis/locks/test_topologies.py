"""Named locks on a cluster and behind sentinels: queues, wake-ups, and failovers in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from redis.crc import key_slot

from nearcache.engines.redis.engine import RedisEngine, topology_class
from nearcache.engines.redis.lock_scripts import lock_key
from nearcache.engines.redis.resp import pack
from nearcache.engines.redis.target import Target
from nearcache.errors import EngineUnavailable
from nearcache.locks import Lock
from tests.redis.cluster_servers import ClusterServers, running_cluster
from tests.redis.sentinel_servers import SERVICE, Sentinels, running_sentinels

Eventually = Callable[[Callable[[], object]], None]


@pytest.fixture(scope="module")
def cluster(redis_directory: Path) -> Iterator[ClusterServers]:
    with running_cluster(redis_directory) as servers:
        yield servers


@pytest.fixture
def on_cluster(cluster: ClusterServers) -> Iterator[RedisEngine]:
    cluster.flush()
    target = Target(kind="cluster", addresses=cluster.addresses, read_timeout_s=20.0)
    engine = RedisEngine(topology_class(target)(target))
    yield engine
    engine.topology.close()


@pytest.fixture
def sentinels(redis_directory: Path) -> Iterator[Sentinels]:
    with running_sentinels(redis_directory) as servers:
        yield servers


@pytest.fixture
def behind_sentinels(sentinels: Sentinels) -> Iterator[RedisEngine]:
    target = Target(
        kind="sentinel",
        addresses=sentinels.addresses,
        sentinel_service=SERVICE,
        read_timeout_s=20.0,
    )
    engine = RedisEngine(topology_class(target)(target))
    yield engine
    engine.topology.close()


def queued(engine: Any, name: bytes) -> int:
    """How many wait: asked of the topology, as nobody else knows where the lock lives."""
    key = lock_key(name)
    fields = engine.topology.ask(pack(b"HKEYS", key), key)
    return sum(field.startswith(b"w") for field in fields)


def served_in_order(engine: Any, name: bytes, eventually: Eventually) -> list[int]:
    """Who got the lock, in order."""
    got: list[int] = []

    def work(number: int) -> None:
        with Lock(engine, name, timeout_s=30, wait_s=90):
            got.append(number)

    with ThreadPoolExecutor(4) as threads:
        with Lock(engine, name, timeout_s=30):
            for number in range(4):
                threads.submit(work, number)
                eventually(lambda number=number: queued(engine, name) == number + 1)  # type: ignore[misc]
        threads.shutdown()
    return got


def test_a_cluster_s_locks_are_anywhere_and_their_waiters_are_woken(
    on_cluster: RedisEngine,
    cluster: ClusterServers,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Who was not woken would wait for so long; wake-ups reach every node.
    monkeypatch.setattr("nearcache.engines.redis.locks.ASK_AGAIN_S", 120.0)
    monkeypatch.setattr("nearcache.bids.WAIT_MS", 120_000)
    names = [b"name %d" % number for number in range(4)]
    owners = {cluster.owner(key_slot(lock_key(name))).server.port for name in names}
    assert len(owners) > 1
    for name in names:
        assert served_in_order(on_cluster, name, eventually) == [0, 1, 2, 3]


def test_a_lock_whose_slot_moves_is_still_held(
    on_cluster: RedisEngine, cluster: ClusterServers
) -> None:
    slot = key_slot(lock_key(b"moving"))
    source = cluster.owner(slot)
    target = next(node for node in cluster.primaries() if node is not source)
    with Lock(on_cluster, b"moving", timeout_s=30) as lock:
        for _ in cluster.move_slot(slot, target):
            lock.renew()
        assert on_cluster.lock_acquire(b"moving", 1000) is None
    assert on_cluster.lock_acquire(b"moving", 1000)


def test_a_failover_behind_sentinels_in_the_middle_of_a_wait(
    behind_sentinels: RedisEngine, sentinels: Sentinels, eventually: Eventually
) -> None:
    engine = behind_sentinels
    assert served_in_order(engine, b"before", eventually) == [0, 1, 2, 3]
    lock = Lock(engine, b"name", timeout_s=30)
    assert lock.acquire()
    token = lock.token or 0
    waiter = Lock(engine, b"name", timeout_s=30, wait_s=90)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(waiter.acquire)
        eventually(lambda: queued(engine, b"name") == 1)
        sentinels.fail_over()

        def release() -> bool:
            lock.renew()  # on the new primary, which had heard of it
            lock.release()
            return True

        eventually(lambda: patient(release))
        assert waiting.result(60)
    assert (waiter.token or 0) > token
    waiter.release()


def patient(act: Callable[[], bool]) -> bool:
    """False while the servers change their roles."""
    try:
        return act()
    except EngineUnavailable:
        return False
