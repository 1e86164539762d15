"""A server of one arm's own: stopped, frozen and started again at the same address.

The servers of a run are shared by its candidates, so none of them may harm those. Who
drills outages, or wants a server with nothing in it yet, starts one of these in the
worker process. It dies with the worker. SIGKILL ends it, because a frozen process keeps
every other signal for later, and nothing in it is worth a goodbye.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self

from nearcache.lab.base.arm import Unavailable
from nearcache.lab.base.messages import Setup
from nearcache.lab.servers import Running, ServerMissing, Servers, end_process, free_port
from nearcache.lab.servers.memcached import find_memcached
from nearcache.lab.servers.redis import find_redis

Kind = Literal["redis", "memcached"]
ENDS_BY = signal.SIGKILL


class OwnServer:
    """``port`` stays the same however often it is started. Use as a context manager, or stop it.

    Raises:
        Unavailable: its program is not installed.
    """

    def __init__(self, setup: Setup, kind: Kind, arguments: Sequence[str] = ()) -> None:
        self.kind = kind
        self.arguments = list(arguments)
        self.port = free_port()
        self.socket = f"{setup.directory}/{kind}-{self.port}.sock"  # redis only
        self._servers = Servers(Path(setup.directory), setup.cpu, setup.binaries)
        self._running: Running | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def version(self) -> str:
        return self._running.version if self._running else ""

    @property
    def pid(self) -> int:
        assert self._running
        return self._running.process.pid

    def start(self) -> None:
        """Empty, and answering."""
        assert self._running is None, "it runs already"
        try:
            self._running = self._start_redis() if self.kind == "redis" else self._start_memcached()
        except ServerMissing as missing:
            raise Unavailable(str(missing), missing.install) from missing

    def stop(self) -> None:
        """Gone at once, with all its connections. Nothing happens if it does not run."""
        if self._running:
            end_process(self._running.process, ENDS_BY)
            Path(self.socket).unlink(missing_ok=True)
            self._running = None

    def freeze(self) -> None:
        """It keeps its connections, the kernel takes new ones for it, and nobody answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """What was sent to it meanwhile is carried out now."""
        os.kill(self.pid, signal.SIGCONT)

    def _start_redis(self) -> Running:
        command = [find_redis(self._servers), "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--unixsocket", self.socket, "--unixsocketperm", "700", "--daemonize", "no"]
        command += ["--dir", str(self._servers.directory), "--save", "", "--appendonly", "no"]
        question = b"INFO server\r\n"
        return self._servers.launch(
            "redis", [*command, *self.arguments], self.port, question, b"redis_version:", {},
            ends_by=ENDS_BY,
        )  # fmt: skip

    def _start_memcached(self) -> Running:
        command = [
            find_memcached(self._servers),
            "-l",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-U",
            "0",
        ]
        command += ["-u", "root"] if os.geteuid() == 0 else []
        return self._servers.launch(
            "memcached-tcp", [*command, *self.arguments], self.port, b"version\r\n", b"VERSION ",
            {}, ends_by=ENDS_BY,
        )  # fmt: skip
