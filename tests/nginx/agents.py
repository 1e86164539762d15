"""Agents that serve in a thread of the test, and clients that know their secret."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nearcache.base.options import Secret
from nearcache.nginx.agent.agent import Agent
from nearcache.nginx.agent.hosts import LocalCache, RemoteAgent

from .conftest import PATIENCE_S, Nginx, wait_for

SECRET = Secret(b"0123456789abcdef0123456789abcdef")


@contextmanager
def serving(
    nginx: Nginx,
    *,
    varies: bool = True,
    levels: tuple[int, ...] | None = None,
    address: tuple[str, int] = ("127.0.0.1", 0),
    **options: Any,
) -> Iterator[Agent]:
    """An agent of this nginx's cache, on a free port of loopback."""
    hosts = [LocalCache(nginx.cache, levels, varies=varies)]
    with Agent(address, hosts, SECRET, **options) as agent:
        thread = threading.Thread(target=agent.serve, daemon=True)
        thread.start()
        try:
            assert wait_for(lambda: hosts[0].table is not None or not varies)
            yield agent
        finally:
            agent.stop()
            thread.join(PATIENCE_S)


def remote(agent: Agent, secret: Secret = SECRET) -> RemoteAgent:
    return RemoteAgent(f"http://127.0.0.1:{agent.address[1]}", secret)
