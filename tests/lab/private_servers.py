"""Servers that not every machine has: skipped loudly for a user, demanded in CI."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from nearcache.lab.base.directories import private_directory
from nearcache.lab.base.model import ServerName
from nearcache.lab.servers import Servers, free_port, is_installed
from tests.needs import missing


def need_server(name: ServerName) -> None:
    """Skip where this server cannot be started; in CI it must be there."""
    if not is_installed(name, {}):
        missing(f"{name} is not installed")


@contextmanager
def port_of_nobody() -> Iterator[int]:
    """Where connections are refused: it is kept from others, and nobody listens."""
    with socket.socket() as keeper:
        keeper.bind(("127.0.0.1", free_port()))
        yield keeper.getsockname()[1]


@contextmanager
def some_servers(**binaries: str) -> Iterator[Servers]:
    directory = private_directory()
    try:
        with Servers(directory, None, binaries) as servers:
            yield servers
    finally:
        for left in directory.iterdir():
            left.unlink()
        directory.rmdir()
