"""Named locks on a cluster and behind sentinels: queues, wake-ups, and failovers in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from redis.crc import key_slot

from nearcache.coordination.locks import Lock
from nearcache.engines.redis.engine import RedisEngine, topology_class
from nearcache.engines.redis.locks.lock_scripts import ACQUIRE, WAIT, lock_key
from nearcache.engines.redis.protocol.resp import pack
from nearcache.engines.redis.target.target import Target
from nearcache.errors import EngineUnavailable
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


class OneClockAhead(RedisEngine):
    """One server of the cluster has its clock an hour ahead, as far as its scripts tell."""

    AHEAD_MS = 3_600_000

    def __init__(self, topology: Any) -> None:
        super().__init__(topology)
        self.left_ms: list[float] = []
        self._first = ""  # the name of that server, once it is known

    def _lock_script(self, script: Any, name: bytes, *arguments: Any) -> Any:
        if script not in (ACQUIRE, WAIT):
            return (yield from super()._lock_script(script, name, *arguments))
        *others, until = arguments
        self._first = self._first or self.lock_server(name)
        ahead_ms = self.AHEAD_MS if self.lock_server(name) == self._first else 0
        reply = yield from super()._lock_script(script, name, *others, until - ahead_ms)
        self.left_ms.append(until - ahead_ms - reply[-1])
        return [*reply[:-1], reply[-1] + ahead_ms]


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
    monkeypatch.setattr("nearcache.engines.redis.locks.locks.ASK_AGAIN_S", 120.0)
    monkeypatch.setattr("nearcache.coordination.lock_attempts.WAIT_MS", 120_000)
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


def test_servers_whose_clocks_differ_are_each_asked_by_their_own(cluster: ClusterServers) -> None:
    """Or a server that was frozen would give locks to the dead for as long as they differ."""
    cluster.flush()
    target = Target(kind="cluster", addresses=cluster.addresses, read_timeout_s=20.0)
    engine = OneClockAhead(topology_class(target)(target))
    try:
        names = [b"%d" % number for number in range(12)]
        for _ in range(2):  # the first time nobody knows how late it is there
            engine.left_ms.clear()
            for name in names:
                with Lock(engine, name, timeout_s=30):
                    pass
        assert len({engine.lock_server(name) for name in names}) > 1
        patience_ms = 1000 * (target.connect_timeout_s + target.read_timeout_s)
        assert len(engine.left_ms) == len(names)  # nobody was told that he is late
        assert all(0 < left_ms <= patience_ms for left_ms in engine.left_ms)
    finally:
        engine.topology.close()
