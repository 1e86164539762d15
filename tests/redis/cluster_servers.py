"""A cluster for tests: three primaries with a replica each, on free loopback ports.

Made by the nodes' own commands, and ready in about a second: ``redis-cli --cluster`` waits
for gossip where it can be asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from nearcache.engines.redis.target.target import Address
from nearcache.lab.servers import free_port
from tests.redis.servers import FAST, Server, wait_for

SLOTS = 16384
NODE_TIMEOUT_MS = 1000


@dataclass
class Node:
    """A server of the cluster, and its name there."""

    server: Server
    bus_port: int
    id: str = ""

    def ask(self, *words: Any) -> Any:
        return self.server.ask(*words)

    @property
    def is_primary(self) -> bool:
        return bool(self.ask("ROLE")[0] == "master")

    @property
    def address(self) -> Address:
        return Address(host="127.0.0.1", port=self.server.port)


@dataclass
class ClusterServers:
    """Primaries first, then the replica of each, in their order."""

    nodes: list[Node]

    @property
    def addresses(self) -> tuple[Address, ...]:
        return tuple(node.address for node in self.nodes)

    def primaries(self) -> list[Node]:
        return [node for node in self.alive() if node.is_primary]

    def replicas(self) -> list[Node]:
        return [node for node in self.alive() if not node.is_primary]

    def alive(self) -> list[Node]:
        return [node for node in self.nodes if not node.server.dead]

    def node(self, port: int) -> Node:
        return next(node for node in self.nodes if node.server.port == port)

    def owner(self, slot: int) -> Node:
        """The primary that serves a slot, as the first living node sees it."""
        for first, last, primary, *_ in self.alive()[0].ask("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return self.node(primary[1])
        raise AssertionError(f"nobody serves slot {slot}")

    def replica_of(self, primary: Node) -> Node:
        return next(n for n in self.replicas() if n.ask("ROLE")[2] == primary.server.port)

    def flush(self) -> None:
        for node in self.primaries():
            node.ask("FLUSHALL")
            node.ask("SCRIPT", "FLUSH")

    def healthy(self) -> bool:
        """All agree on who serves what, and every replica is in step."""
        alive = self.alive()
        return (
            all("cluster_state:ok" in node.ask("CLUSTER", "INFO") for node in alive)
            and len({slot_map(node) for node in alive}) == 1
            and all(node.ask("ROLE")[3] == "connected" for node in self.replicas())
        )

    def wait_healthy(self) -> None:
        wait_for(self.healthy, "the cluster agrees")

    def wait_for_the_slow(self) -> None:
        """Nobody takes the place of a node that is silent for a while: the host may be slow.

        Not from the start: nodes gossip as often as this time asks for.
        """
        for node in self.alive():
            node.ask("CONFIG", "SET", "cluster-node-timeout", 600_000)

    def revive(self) -> None:
        """Starts what was killed, and waits until it follows."""
        for node in self.nodes:
            if node.server.dead:
                node.server.start()
                node.server.wait_ready()
            node.server.resume()
        wait_for(lambda: len(self.replicas()) == len(self.nodes) // 2, "the killed follow")
        self.wait_healthy()

    def move_slot(self, slot: int, target: Node) -> Iterator[str]:
        """Moves a slot with its keys; yields after each step, so that tests may look on."""
        source = self.owner(slot)
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        yield "opened"
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1):
            raw = [key.encode(errors="surrogateescape") for key in keys]
            source.ask("MIGRATE", "127.0.0.1", target.server.port, "", 0, 5000, "KEYS", *raw)
            yield "moved"
        # The importer first: else for a moment nobody served the slot.
        for node in [target, *(each for each in self.primaries() if each is not target)]:
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.id)
        yield "closed"


def slot_map(node: Node) -> str:
    """Who serves what, as one node sees it."""
    lines = (line.split() for line in node.ask("CLUSTER", "NODES").splitlines())
    known = [(each[0], "master" in each[2], "fail" in each[2], each[8:]) for each in lines]
    return str(sorted(known))


@contextlib.contextmanager
def running_cluster(
    directory: Path, *arguments: str, primaries: int = 3, **fields: Any
) -> Iterator[ClusterServers]:
    nodes = []
    with contextlib.ExitStack() as stack:
        for _ in range(2 * primaries):
            nodes.append(_started(directory, arguments, fields))
            stack.callback(nodes[-1].server.kill)
        cluster = ClusterServers(nodes)
        _join(cluster, primaries)
        yield cluster


def _started(directory: Path, arguments: tuple[str, ...], fields: dict[str, Any]) -> Node:
    port, bus_port = free_port(), free_port()
    server = Server(
        directory,
        (
            *("--cluster-enabled", "yes", "--cluster-port", str(bus_port)),
            *("--cluster-config-file", f"nodes-{port}.conf", "--dbfilename", f"{port}.rdb"),
            *("--cluster-node-timeout", str(NODE_TIMEOUT_MS)),
            # A replica promotes itself however long it was out of step.
            *("--cluster-replica-validity-factor", "0", "--cluster-allow-replica-migration", "no"),
            *FAST,
            *arguments,
        ),
        port=port,
        **fields,
    )
    server.start()
    return Node(server, bus_port)


def _join(cluster: ClusterServers, primaries: int) -> None:
    nodes = cluster.nodes
    for node in nodes:
        node.server.wait_ready()
        node.id = node.ask("CLUSTER", "MYID")
    share = SLOTS // primaries
    for number, node in enumerate(nodes[:primaries]):
        last = SLOTS - 1 if number == primaries - 1 else (number + 1) * share - 1
        node.ask("CLUSTER", "ADDSLOTSRANGE", number * share, last)
        node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
    for node in nodes:
        for other in nodes:
            if other is not node:
                node.ask("CLUSTER", "MEET", "127.0.0.1", other.server.port, other.bus_port)
    wait_for(lambda: all(_knows_all(node, nodes) for node in nodes), "the nodes know each other")
    for primary, replica in zip(nodes[:primaries], nodes[primaries:], strict=True):
        # Fails as long as the replica does not know that the other is a primary.
        wait_for(lambda p=primary, r=replica: _replicates(r, p), "replication")  # type: ignore[misc]
    cluster.wait_healthy()


def _knows_all(node: Node, nodes: list[Node]) -> bool:
    text = node.ask("CLUSTER", "NODES")
    return all(each.id in text for each in nodes) and "handshake" not in text


def _replicates(replica: Node, primary: Node) -> bool:
    try:
        replica.ask("CLUSTER", "REPLICATE", primary.id)
    except redis.ResponseError:
        return False
    return True
