"""redis-server for tests: private, on a unix socket and a free loopback port, gone afterwards."""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Server:
    """One redis-server; ``start`` it again after ``kill`` and it has the same addresses."""

    directory: Path
    arguments: tuple[str, ...] = ()
    binary: tuple[str, ...] = ("redis-server",)
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def path(self) -> str:
        return str(self.directory / f"{self.port}.sock")

    def start(self) -> None:
        command = [*self.binary, "--port", str(self.port), "--unixsocket", self.path]
        command += ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"]
        command += [str(self.directory), *self.arguments]
        log = (self.directory / f"{self.port}.log").open("ab")
        self.process = subprocess.Popen(
            command, stdout=log, stderr=log, preexec_fn=lambda: _prctl(PR_SET_PDEATHSIG, 9)
        )
        log.close()

    def wait_ready(self, **client: Any) -> None:
        """Returns when it answers PING, or says that it may not (NOAUTH)."""
        give_up_at = time.monotonic() + 15
        while True:
            try:
                with redis.Redis(unix_socket_path=self.path, **client) as probe:
                    probe.ping()
                return
            except (redis.AuthenticationError, redis.ResponseError):
                return
            except redis.RedisError:
                if time.monotonic() > give_up_at:
                    log = (self.directory / f"{self.port}.log").read_text()[-2000:]
                    raise AssertionError(f"{self.binary[0]} did not start: {log}") from None
                time.sleep(0.01)

    def client(self, **options: Any) -> Any:
        return redis.Redis(unix_socket_path=self.path, **options)

    def pause(self) -> None:
        """Stops answering, connections stay open."""
        assert self.process
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        assert self.process
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        Path(self.path).unlink(missing_ok=True)


@contextlib.contextmanager
def running(directory: Path, *arguments: str, **fields: Any) -> Iterator[Server]:
    """A server that answers, killed at the end."""
    server = Server(directory, arguments, **fields)
    server.start()
    try:
        server.wait_ready()
        yield server
    finally:
        server.kill()


def installed() -> bool:
    return shutil.which("redis-server") is not None
