"""Servers that not every machine has: skipped loudly for a user, demanded in CI."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nearcache.lab.directories import private_directory
from nearcache.lab.servers import ServerMissing, Servers
from nearcache.lab.servers.postgres import find_postgres
from nearcache.lab.servers.s3 import find_s3

FINDERS = {"postgres": find_postgres, "s3": find_s3}


def need_server(name: str) -> None:
    """Skip where this server cannot be started; in CI it must be there."""
    try:
        FINDERS[name](Servers(Path(), None))
    except ServerMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(f"{missing}, and CI must have it")
        pytest.skip(f"{missing}: this part of the lab is NOT tested")


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
