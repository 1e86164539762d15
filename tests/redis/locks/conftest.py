"""An engine whose locks are under test, and a client that looks at them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from nearcache.errors import EngineUnavailable
from tests.redis.locks.one_name import (
    Eventually,
    open_engine,
)
from tests.redis.servers import Server


@pytest.fixture
def engine(server: Server, eventually: Eventually) -> Iterator[Any]:
    engine = open_engine(server.path)

    def answers() -> bool:
        with contextlib.suppress(EngineUnavailable):
            return engine.contains(b"any") is not None
        return False

    eventually(answers)  # the last test may have killed the server, and its circuit is open yet
    yield engine
    engine.topology.close()


@pytest.fixture
def admin(server: Server) -> Iterator[Any]:
    with server.client(decode_responses=True) as client:
        yield client
