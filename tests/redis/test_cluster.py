"""A cluster while its slots move, its primaries die and its nodes disagree."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from nearcache import errors
from nearcache.engines.redis.contract import ONCE
from nearcache.engines.redis.protocol.resp import pack
from nearcache.engines.redis.target.target import Address, Target
from nearcache.engines.redis.topology import cluster as module
from nearcache.engines.redis.topology.cluster import SLOTS, Cluster, slot_of
from tests.redis.askers import Plain
from tests.redis.cluster_servers import NODE_TIMEOUT_MS, ClusterServers, Node
from tests.redis.servers import Server, wait_for

Ask = Callable[[Any], Plain]
KEYS = [f"key:{number}" for number in range(300)]
NOBODYS = "CLUSTERDOWN|no server of the cluster has slot"


def open_cluster(cluster: ClusterServers, **fields: Any) -> Cluster:
    patient = {"read_timeout_s": 20.0, "connect_timeout_s": 20.0}  # a slow host is no fault
    return Cluster(Target(kind="cluster", addresses=cluster.addresses[:2], **patient | fields))


def once_it_waits(ask: Plain, act: Callable[[], Any]) -> threading.Thread:
    """Does it while somebody waits for it."""

    def work() -> None:
        wait_for(lambda: ask.topology.stats()["waits"] > 0, "somebody waits")
        act()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def another(cluster: ClusterServers, node: Node) -> Node:
    return next(each for each in cluster.primaries() if each is not node)


def fill(ask: Plain) -> None:
    assert ask.each(*[("SET", key, key) for key in KEYS]) == [b"OK"] * len(KEYS)


def read(ask: Plain) -> bool:
    return bool(ask.each(*[("GET", key) for key in KEYS]) == [key.encode() for key in KEYS])


@pytest.mark.parametrize(
    "key", ["", "a", "123456789", "{a}b", "b{a}", "{}a", "a{}{b}", "{{a}}", "a{b", "a}b{c}", "ü{ß}"]
)
def test_slots_are_the_server_s(cluster: ClusterServers, key: str) -> None:
    assert slot_of(key.encode()) == cluster.nodes[0].ask("CLUSTER", "KEYSLOT", key)


def test_one_write_per_server(cluster: ClusterServers, asker: Ask) -> None:
    ask = asker(open_cluster(cluster))
    fill(ask)
    before = {node.server.port: writes(node) for node in cluster.primaries()}
    assert read(ask)
    assert ask("GET", KEYS[0]) == KEYS[0].encode()
    assert sorted(line.name for line in ask.primaries()) == sorted(
        f"127.0.0.1:{node.server.port}" for node in cluster.primaries()
    )
    reads = sum(writes(node) - before[node.server.port] for node in cluster.primaries())
    assert reads == len(KEYS) + 1
    assert ask.topology.stats()["moves"] == 0


def writes(node: Node) -> int:
    """How many GETs a server has had."""
    stats = node.ask("INFO", "commandstats")
    line = next((line for line in stats.splitlines() if line.startswith("cmdstat_get:")), "calls=0")
    return int(line.partition("calls=")[2].partition(",")[0])


def test_a_slot_that_moved_is_found(cluster: ClusterServers, asker: Ask) -> None:
    ask = asker(open_cluster(cluster))
    fill(ask)
    slot = slot_of(b"key:1")
    target = another(cluster, cluster.owner(slot))
    for _ in cluster.move_slot(slot, target):
        pass
    assert read(ask)
    assert ask("INCR", "{key:1}n") == 1
    stats = ask.topology.stats()
    assert stats["moves"] >= 1
    before = stats["moves"]
    assert ask("INCR", "{key:1}n") == 2
    assert ask.topology.stats()["moves"] == before


def test_keys_on_their_way_are_asked_for_where_they_are(
    cluster: ClusterServers, asker: Ask
) -> None:
    ask = asker(open_cluster(cluster))
    fill(ask)
    ask("SET", "{key:2}second", "value")
    slot = slot_of(b"key:2")
    steps = cluster.move_slot(slot, another(cluster, cluster.owner(slot)))
    for counted, _ in enumerate(steps, start=1):
        assert read(ask)
        assert ask("GET", "{key:2}second") == b"value"
        assert ask("INCR", "{key:2}count") == counted
    assert ask.topology.stats()["asks"] > 0


def test_keys_on_both_sides_of_a_move_are_waited_for(
    cluster: ClusterServers, asker: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_long(monkeypatch)
    ask = asker(open_cluster(cluster))
    slot = slot_of(b"tag")
    ask("MSET", "{tag}1", "one", "{tag}2", "two")
    steps = cluster.move_slot(slot, another(cluster, cluster.owner(slot)))
    assert [next(steps), next(steps)] == ["opened", "moved"]
    rest = once_it_waits(ask, lambda: list(steps))
    assert ask("MGET", "{tag}1", "{tag}2") == [b"one", b"two"]
    rest.join()


def test_nothing_is_lost_while_slots_move(cluster: ClusterServers) -> None:
    topology = open_cluster(cluster)
    counters = [f"count:{number}" for number in range(8)]
    slots = {slot_of(key.encode()) for key in counters}
    done, counts, failures = threading.Event(), [0] * 4, []

    def count(number: int) -> None:
        try:
            while not done.is_set():
                for key in counters:
                    topology.ask(pack("INCR", key), key.encode(), ONCE)
                    counts[number] += 1
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=count, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for slot in slots:
        for _ in cluster.move_slot(slot, another(cluster, cluster.owner(slot))):
            wait_for_progress(counts, failures)
    done.set()
    for thread in threads:
        thread.join()
    assert not failures
    ask = Plain(topology)
    assert sum(int(reply) for reply in ask.each(*[("GET", key) for key in counters])) == sum(counts)
    ask.close()


def wait_for_progress(counts: list[int], failures: list[Exception]) -> None:
    before = sum(counts)
    wait_for(lambda: failures or sum(counts) > before + 8, "traffic")


def wait_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as a slow host may need."""
    monkeypatch.setattr(module, "WAIT_S", 60.0)
    monkeypatch.setattr(module, "ROUNDS", 16 + int(60 / module.PAUSE_S))


def test_a_slot_without_a_server_is_waited_for(
    cluster: ClusterServers, asker: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_long(monkeypatch)
    ask = asker(open_cluster(cluster))
    slot = slot_of(b"orphan")
    ask("SET", "orphan", 1)
    owner = cluster.owner(slot)
    owner.ask("CLUSTER", "DELSLOTS", slot)  # it says CLUSTERDOWN now
    adopted = once_it_waits(ask, lambda: adopt(cluster, slot, owner))
    assert ask("GET", "orphan") == b"1"
    adopted.join()


def adopt(cluster: ClusterServers, slot: int, owner: Node) -> None:
    owner.ask("CLUSTER", "ADDSLOTS", slot)
    cluster.wait_healthy()


def test_after_waiting_once_an_outage_is_told_at_once(
    cluster: ClusterServers, asker: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.2)
    ask = asker(open_cluster(cluster))
    ask("PING")
    slot = slot_of(b"orphan")
    owner = cluster.owner(slot)
    owner.ask("CLUSTER", "DELSLOTS", slot)  # it says CLUSTERDOWN now
    try:
        began = time.monotonic()
        with pytest.raises(errors.EngineUnavailable, match=NOBODYS) as told:
            ask("GET", "orphan")
        # Where the map has the hole, too, nobody is waited for.
        assert time.monotonic() - began >= 0.2 or "no server" in str(told.value)
        waited, down = ask.topology.stats()["waits"], 0
        for _ in range(5):
            with pytest.raises(errors.EngineUnavailable, match=NOBODYS) as told:
                ask("GET", "orphan")
            down += "CLUSTERDOWN" in str(told.value)
        # Another node may send it there once more. One that waits would be sent ten times.
        assert waited + down <= ask.topology.stats()["waits"] <= waited + 2 * 5
    finally:
        adopt(cluster, slot, owner)


def test_a_killed_primary_is_replaced(cluster: ClusterServers, asker: Ask) -> None:
    ask = asker(open_cluster(cluster))
    fill(ask)
    wait_for(lambda: in_step(cluster), "replicas have it all")
    slot = slot_of(b"key:1")
    primary = cluster.owner(slot)
    replica = cluster.replica_of(primary)
    assert ask("INCR", "{key:1}n") == 1
    wait_for(lambda: replica.ask("DBSIZE") == primary.ask("DBSIZE"), "replication")
    killed_s = time.monotonic()
    primary.server.kill()
    reply: Any = None
    while reply is None:
        # Transient ones only: anything else is a failure of the test.
        try:
            reply = ask("INCR", "{key:1}n")
        except errors.EngineUnavailable:
            assert time.monotonic() - killed_s < 60
            time.sleep(0.01)
    assert reply in (2, 3)  # the first may have been carried out before the server died
    assert time.monotonic() - killed_s > NODE_TIMEOUT_MS / 1000 / 2
    assert replica.is_primary
    assert read(ask)


def in_step(cluster: ClusterServers) -> bool:
    return all(
        node.ask("DBSIZE") == cluster.replica_of(node).ask("DBSIZE") for node in cluster.primaries()
    )


def test_reads_go_to_replicas_only_if_asked(cluster: ClusterServers, asker: Ask) -> None:
    ask = asker(open_cluster(cluster))
    fill(ask)
    wait_for(lambda: in_step(cluster), "replicas have it all")
    before = sum(map(writes, cluster.replicas()))
    assert read(ask)
    assert sum(map(writes, cluster.replicas())) == before
    reader = asker(open_cluster(cluster, read_replicas=True))
    assert reader.each(("GET", "key:1")) == [b"key:1"]  # the first: it has no map
    assert read(reader)
    assert reader("GET", KEYS[0]) == KEYS[0].encode()
    assert sum(map(writes, cluster.replicas())) == before + len(KEYS) + 2
    assert reader("INCR", "count") == 1
    stats = reader.topology.stats()
    assert (stats["replica_fallbacks"], stats["moves"]) == (0, 0)


def test_a_dead_replica_s_reads_go_to_its_primary(cluster: ClusterServers, asker: Ask) -> None:
    ask = asker(open_cluster(cluster, read_replicas=True))
    fill(ask)
    wait_for(lambda: in_step(cluster), "replicas have it all")
    assert read(ask)
    owner = cluster.owner(slot_of(b"key:1"))
    cluster.replica_of(owner).server.kill()
    assert ask("GET", "key:1") == b"key:1"
    assert read(ask)
    assert ask.topology.stats()["replica_fallbacks"] > 1


def test_servers_that_do_not_say_where_they_are(cluster: ClusterServers, asker: Ask) -> None:
    for node in cluster.nodes:
        node.ask("CONFIG", "SET", "cluster-preferred-endpoint-type", "unknown-endpoint")
    try:
        ask = asker(open_cluster(cluster))
        fill(ask)
        slot = slot_of(b"key:1")
        for _ in cluster.move_slot(slot, another(cluster, cluster.owner(slot))):
            assert read(ask)
    finally:
        for node in cluster.nodes:
            node.ask("CONFIG", "SET", "cluster-preferred-endpoint-type", "ip")


def test_addresses_are_mapped(cluster: ClusterServers, asker: Ask) -> None:
    ask = asker(open_cluster(cluster, address_remap=lambda place: ("localhost", place[1])))
    fill(ask)
    assert {line.name.partition(":")[0] for line in ask.primaries()} == {"localhost"}


def test_a_client_of_redis_py_for_the_rest(cluster: ClusterServers) -> None:
    topology = open_cluster(cluster)
    client = topology.client()
    client.set("whose", "redis-py's")
    assert Plain(topology)("GET", "whose") == b"redis-py's"
    topology.close()
    client.close()


def test_nobody_there(asker: Ask) -> None:
    nodes = (Address(host="127.0.0.1", port=1), Address(host="127.0.0.1", port=2))
    ask = asker(Cluster(Target(kind="cluster", addresses=nodes)))
    for _ in range(3):
        with pytest.raises(errors.ConnectionFailed, match=r"127\.0\.0\.1:1.*127\.0\.0\.1:2"):
            ask("GET", "key")
    with pytest.raises(errors.ConnectionFailed):
        ask.each(("GET", "key"))
    with pytest.raises(errors.ConnectionFailed):
        ask.primaries()


def test_no_cluster(server: Server, asker: Ask) -> None:
    node = Address(host="127.0.0.1", port=server.port)
    ask = asker(Cluster(Target(kind="cluster", addresses=(node,))))
    with pytest.raises(errors.ServerMisconfigured, match="no node of a cluster"):
        ask("GET", "key")


def test_slots_are_as_many_as_the_mask_says() -> None:
    assert {slot_of(str(number).encode()) for number in range(200_000)} <= set(range(SLOTS))
