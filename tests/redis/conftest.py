"""One server for all tests of a module, empty at the start of each test."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.redis.servers import Server, installed, running


@pytest.fixture(scope="session", autouse=True)
def _needs_redis_server() -> None:
    if not installed():
        message = "redis-server is not installed; `apt install redis-server`"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(f"NOT TESTED: {message}")


@pytest.fixture(scope="session")
def server_directory() -> Iterator[Path]:
    """Short: the path of a unix socket may have 107 bytes."""
    directory = Path(tempfile.mkdtemp(prefix="nc-redis-"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def shared_server(server_directory: Path) -> Iterator[Server]:
    with running(server_directory) as server:
        yield server


@pytest.fixture
def server(shared_server: Server) -> Server:
    """Running, empty, and nobody else's."""
    with shared_server.client() as client:
        client.flushall()
    return shared_server
