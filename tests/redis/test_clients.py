"""redis-py's clients over our pools: cluster, sentinels, TLS; bounded and quiet there too."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from nearcache import errors
from nearcache.engines.redis.connection import clients
from nearcache.engines.redis.connection.async_connection import AsyncConnection
from nearcache.engines.redis.connection.pool import FairPool
from nearcache.engines.redis.protocol.resp import pack
from nearcache.engines.redis.target.target import Address, Target
from nearcache.lab.servers import free_port
from tests.redis.cluster_servers import ClusterServers, running_cluster
from tests.redis.sentinel_servers import SERVICE, Sentinels, running_sentinels
from tests.redis.servers import Certificates, running


@pytest.fixture(scope="module")
def cluster(redis_directory: Path) -> Iterator[ClusterServers]:
    with running_cluster(redis_directory) as made:
        yield made


@pytest.fixture(scope="module")
def sentinels(redis_directory: Path) -> Iterator[Sentinels]:
    with running_sentinels(redis_directory, password="secret") as made:
        yield made


def cluster_target(cluster: ClusterServers, **fields: Any) -> Target:
    defaults = {"pool_connections": 2, "pool_timeout_s": 60.0, "read_timeout_s": 20.0}
    return Target(kind="cluster", addresses=cluster.addresses, **(defaults | fields))


def sentinel_target(sentinels: Sentinels, **fields: Any) -> Target:
    defaults = {"sentinel_service": SERVICE, "sentinel_password": "secret", "database": 1}
    defaults["read_timeout_s"] = 20.0
    return Target(kind="sentinel", addresses=sentinels.addresses, **(defaults | fields))


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("read_replicas", [False, True])
def test_a_cluster_s_client_finds_every_key(
    cluster: ClusterServers, protocol: Any, read_replicas: bool
) -> None:
    target = cluster_target(cluster, protocol=protocol, read_replicas=read_replicas)
    client = clients.client(target)
    assert client is clients.client(target)
    for number in range(30):
        client.set(f"key{number}", number)
    assert client.wait(1, 5000, target_nodes=redis.RedisCluster.PRIMARIES)
    assert [client.get(f"key{n}") for n in range(30)] == [b"%d" % n for n in range(30)]
    for node in client.get_primaries():
        assert isinstance(node.redis_connection.connection_pool, FairPool)


def test_threads_share_a_cluster_s_few_connections(cluster: ClusterServers) -> None:
    client = clients.client(cluster_target(cluster, connection_kwargs=(("client_name", "few"),)))
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda: answers.extend(client.incr("n") for _ in range(20)))
        for _ in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == list(range(1, 201))
    for node in cluster.primaries():
        assert node.ask("CLIENT", "LIST").count("name=few") <= 2
    client.delete("n")


def test_tasks_queue_for_a_cluster_s_connections(cluster: ClusterServers) -> None:
    target = cluster_target(cluster, connection_kwargs=(("client_name", "queue"),))

    async def main() -> None:
        client = clients.aclient(target)
        assert client is clients.aclient(target)
        answers = await asyncio.gather(*(client.incr("m") for _ in range(50)))
        assert sorted(answers) == list(range(1, 51))
        for node in cluster.primaries():
            assert node.ask("CLIENT", "LIST").count("name=queue") <= 3  # one reads the slots
        await client.delete("m")

    asyncio.run(main())


def test_a_cluster_whose_connections_are_all_taken_says_so(cluster: ClusterServers) -> None:
    async def main() -> None:
        client = clients.aclient(cluster_target(cluster, pool_timeout_s=0.05))
        await client.get("key")
        waiting = [asyncio.create_task(client.blpop(["list"], timeout=90)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(redis.ConnectionError) as caught:
            await client.get("key")
        assert isinstance(caught.value, errors.PoolTimeout)
        redis_py = clients.client(cluster_target(cluster))
        redis_py.rpush("list", "a", "b")
        popped = await asyncio.gather(*waiting)
        assert sorted(map(tuple, popped)) == [(b"list", b"a"), (b"list", b"b")]
        await client.get("key")

    asyncio.run(main())


def test_the_clients_of_sentinels_follow_the_primary(sentinels: Sentinels) -> None:
    target = sentinel_target(sentinels)
    client = clients.client(target)

    async def aset(value: str) -> None:
        assert await clients.aclient(target).set("akey", value)

    client.set("key", "before")
    asyncio.run(aset("before"))
    before = sentinels.primary()
    sentinels.fail_over()
    # Sentinels do that when they tell the old primary, which may be seconds later.
    before.ask("CLIENT", "KILL", "TYPE", "normal")
    client.set("key", "after")
    asyncio.run(aset("after"))
    with sentinels.primary().client(db=1) as there:
        assert (there.get("key"), there.get("akey")) == (b"after", b"after")


def test_tls_with_a_user_and_a_database(redis_directory: Path) -> None:
    certificates, port = Certificates(redis_directory), free_port()
    options = (*certificates.options(port), "--user", "me", "on", ">secret", "~*", "+@all")
    with running(redis_directory, *options):
        address = Address(host="localhost", port=port)
        target = Target(
            addresses=(address,),
            tls=True,
            username="me",
            password="secret",
            database=3,
            connect_timeout_s=20,
            read_timeout_s=20,
            connection_kwargs=(("ssl_ca_certs", certificates.path("ca.crt")),),
        )
        assert clients.client(target).set("key", "tls")
        value = b"x" * (3 << 20)

        async def main() -> None:
            assert await clients.aclient(target).get("key") == b"tls"
            line = AsyncConnection(target, address)
            echoes = await asyncio.gather(*(line.ask(pack("ECHO", n)) for n in range(300)))
            assert echoes == [b"%d" % number for number in range(300)]
            assert await line.ask(pack("SET", "huge", value)) == b"OK"
            assert await line.ask(pack("GET", "huge")) == value
            assert await line.ask(pack("GET", "key")) == b"tls"

        for _ in range(3):
            asyncio.run(main())


AT_EXIT = """
import asyncio, sys
from nearcache.engines.redis.connection import clients
from nearcache.engines.redis.target.target import Address, Target
addresses = tuple(Address(host="127.0.0.1", port=int(port)) for port in sys.argv[2:])
target = Target(kind=sys.argv[1], addresses=addresses, sentinel_service="mine",
                sentinel_password="secret" if sys.argv[1] == "sentinel" else None,
                read_timeout_s=20)
clients.client(target).get("key")
async def main():
    asyncio.get_running_loop().slow_callback_duration = 600  # -X dev tells of a slow host
    await clients.aclient(target).get("key")
asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["cluster", "sentinel"])
def test_the_interpreter_ends_without_a_word(
    cluster: ClusterServers, sentinels: Sentinels, kind: str
) -> None:
    addresses = (cluster if kind == "cluster" else sentinels).addresses
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", AT_EXIT, kind]
    command += [str(address.port) for address in addresses]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
