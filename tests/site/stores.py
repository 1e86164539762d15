"""Where the caches of a site are: a redis-server, or a directory in memory; each its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nearcache.engines.shm import open_existing
from tests.redis.servers import Server as RedisServer

ALIASES = ("default", "sessions", "pages")
USER, PASSWORD = "site", "of-the-site"
SHM_SIZE = "32MB"


class RedisStore:
    """A redis-server on a unix socket, and a user of it with a password."""

    name = "redis"
    frees_at_death = False
    """Whether a lock is free when its holder was killed, or when its time is over."""

    def __init__(self, directory: Path) -> None:
        user = ("--user", USER, "on", f">{PASSWORD}", "~*", "&*", "+@all")
        self.server = RedisServer(directory, user)

    def start(self) -> None:
        self.server.start()
        self.server.wait_ready()

    def caches(self, sessions: str = "raise", **more: Any) -> dict[str, Any]:
        path = self.server.path
        on_error = {"default": "raise", "sessions": sessions, "pages": "miss"}
        return {
            alias: {
                "BACKEND": "nearcache.backends.RedisCache",
                "LOCATION": f"unix://{path}",
                "KEY_PREFIX": alias,
                "OPTIONS": {
                    "username": USER,
                    "password": PASSWORD,
                    "on_error": on_error[alias],
                    # A machine that is busy is no fault; a server that is frozen for 10 s is.
                    "read_timeout": 5.0,
                    "connect_timeout": 5.0,
                    **more,
                },
            }
            for alias in ALIASES
        }

    def faults(self) -> list[str]:
        """What is wrong with what is left."""
        return []

    def end(self) -> None:
        if self.server.process:
            self.server.kill()


class SharedStore:
    """A directory in memory, of whoever runs the trial."""

    name = "shm"
    frees_at_death = True

    def __init__(self, directory: Path, memory: Path | None = None) -> None:
        self.memory = memory or Path("/dev/shm")
        self.size: str | None = SHM_SIZE

    def start(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="nearcache-site-", dir=self.memory))

    @property
    def location(self) -> str:
        return str(self.directory / "cache")

    def caches(self, sessions: str = "raise", **more: Any) -> dict[str, Any]:
        size = {"size": self.size} if self.size else {}
        return {
            alias: {
                "BACKEND": "nearcache.backends.SharedMemoryCache",
                "LOCATION": self.location,
                "KEY_PREFIX": alias,
                "OPTIONS": {**size, **more},
            }
            for alias in ALIASES
        }

    def hand_over(self, user: int) -> None:
        """The directory and its files are that user's."""
        for path in (self.directory, *self.directory.iterdir()):
            os.chown(path, user, -1)

    def faults(self) -> list[str]:
        return open_existing(self.location).check()

    def end(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


class SmallStore(SharedStore):
    """The same in a file system of its own, which is as small as Docker makes it."""

    name = "small"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, directory / "memory")
        self.size = None

    def start(self) -> None:
        self.memory.mkdir()
        mounted("-t", "tmpfs", "-o", "size=64m,mode=700", "tmpfs", str(self.memory))
        super().start()

    def end(self) -> None:
        unmounted(self.memory)


Store = RedisStore | SharedStore


def mounted(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


def unmounted(path: Path) -> None:
    subprocess.run(["umount", "-l", str(path)], check=False, capture_output=True)


def may_mount() -> bool:
    """Whether this process may mount what it likes."""
    if os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory() as directory:
        asked = ["mount", "-t", "tmpfs", "tmpfs", directory]
        if subprocess.run(asked, check=False, capture_output=True).returncode:
            return False
        unmounted(Path(directory))
    return True


@contextlib.contextmanager
def running(store: Store) -> Iterator[Store]:
    store.start()
    try:
        yield store
    finally:
        store.end()


STORES: dict[str, type[RedisStore | SharedStore]] = {
    each.name: each for each in (RedisStore, SharedStore, SmallStore)
}
