"""One server for all tests of a module, empty at the start of each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.needs import missing
from tests.redis.askers import Awaited, Plain
from tests.redis.cluster_servers import ClusterServers, running_cluster
from tests.redis.sentinel_servers import Sentinels, running_sentinels
from tests.redis.servers import NEWER, Certificates, Server, installed, replicated, running


@pytest.fixture(scope="session", autouse=True)
def _needs_redis_server() -> None:
    if not installed():
        missing("redis-server is not installed; `apt install redis-server`")


@pytest.fixture(scope="module")
def shared_server(redis_directory: Path) -> Iterator[Server]:
    with running(redis_directory) as server:
        yield server


@pytest.fixture
def server(shared_server: Server) -> Server:
    """Running, empty, and nobody else's."""
    with shared_server.client() as client:
        client.flushall()
    return shared_server


@pytest.fixture(scope="session", params=["system", "newer"])
def either(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Fields of the servers of this system, then of a newer one."""
    if request.param == "system":
        return {}
    if not NEWER.exists():
        missing("there is no newer server; `make newer-redis`")
    return {"binary": (str(NEWER),)}


@pytest.fixture(params=["called", "awaited"])
def asker(request: pytest.FixtureRequest) -> Iterator[Callable[[Any], Plain]]:
    """Makes what asks a topology, by plain calls and from coroutines; closes it."""
    made: list[Plain] = []

    def make(topology: Any) -> Plain:
        made.append((Plain if request.param == "called" else Awaited)(topology))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(scope="session")
def shared_cluster(redis_directory: Path, either: dict[str, Any]) -> Iterator[ClusterServers]:
    with running_cluster(redis_directory, **either) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: ClusterServers) -> ClusterServers:
    """Three primaries with a replica each, all in step and empty."""
    shared_cluster.revive()
    shared_cluster.flush()
    return shared_cluster


@pytest.fixture
def trio(redis_directory: Path) -> Iterator[Sentinels]:
    """Three sentinels, a primary, a replica: its own for each test."""
    with running_sentinels(redis_directory) as sentinels:
        yield sentinels


@pytest.fixture
def pair(redis_directory: Path) -> Iterator[list[Server]]:
    """A primary and a replica, without sentinels."""
    with replicated(redis_directory) as servers:
        yield servers


@pytest.fixture(scope="session")
def certificates(redis_directory: Path) -> Certificates:
    directory = redis_directory / "certificates"
    directory.mkdir()
    return Certificates(directory)
