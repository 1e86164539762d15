"""redis-server for tests: private, on a unix socket and a free loopback port, gone afterwards."""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from nearcache.lab.servers import free_port

NEWER = Path(__file__).parents[2] / ".cache" / "newer-redis" / "valkey-server"
"""A newer Debian's Valkey, which scripts/newer-redis unpacks."""

FAST = ("--hz", "100", "--repl-diskless-sync", "no", "--repl-ping-replica-period", "1")
"""For servers that replicate: nobody waits for the next second.

A replica that was synchronized without a file gets its first command a second later.
"""

PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl


@dataclass
class Server:
    """One redis-server; ``start`` it again after ``kill`` and it has the same addresses."""

    directory: Path
    arguments: tuple[str, ...] = ()
    binary: tuple[str, ...] = ("redis-server",)
    port: int = field(default_factory=free_port)
    config: Path | None = None
    process: subprocess.Popen[bytes] | None = None

    @property
    def dead(self) -> bool:
        return self.process is None or self.process.poll() is not None

    @property
    def path(self) -> str:
        return str(self.directory / f"{self.port}.sock")

    def start(self) -> None:
        command = [*self.binary, *([str(self.config)] if self.config else [])]
        command += ["--port", str(self.port), "--unixsocket", self.path, "--bind", "127.0.0.1"]
        command += ["--dir", str(self.directory)]
        if "--sentinel" not in self.arguments:
            # A primary writes a file for its replica, and whoever starts reads it: each its own.
            own = f"{self.port}.rdb"
            command += ["--save", "", "--appendonly", "no", "--dbfilename", own]
        command += self.arguments
        log = (self.directory / f"{self.port}.log").open("ab")
        self.process = subprocess.Popen(
            command, stdout=log, stderr=log, preexec_fn=lambda: _prctl(PR_SET_PDEATHSIG, 9)
        )
        log.close()

    def wait_ready(self, **client: Any) -> None:
        """Returns when it answers PING, or says that it may not (NOAUTH)."""
        give_up_at = time.monotonic() + 60
        while True:
            try:
                with self.client(**client) as probe:
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
        """Retries nothing, so that what is wrong shows at once."""
        at_once = Retry(NoBackoff(), 0)
        return redis.Redis(unix_socket_path=self.path, retry=at_once, **options)

    def ask(self, *words: Any, **options: Any) -> Any:
        """The reply as the server sent it, decoded: redis-py's versions differ in reading it."""
        text = {"decode_responses": True, "encoding_errors": "surrogateescape"}
        with self.client(protocol=2, **text, **options) as client:
            connection = client.connection_pool.get_connection()
            try:
                connection.send_command(*words)
                return connection.read_response()
            finally:
                client.connection_pool.release(connection)

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


def wait_for(
    condition: Callable[[], Any], what: str = "what was waited for", seconds: float = 60
) -> None:
    """Returns when the condition holds; errors of redis-py are as good as False."""
    give_up_at = time.monotonic() + seconds
    while True:
        with contextlib.suppress(redis.RedisError):
            if condition():
                return
        assert time.monotonic() < give_up_at, f"{what}: not in {seconds} s"
        time.sleep(0.002)


@contextlib.contextmanager
def replicated(directory: Path, replicas: int = 1, **fields: Any) -> Iterator[list[Server]]:
    """A primary, and replicas that are in step."""
    with contextlib.ExitStack() as stack:
        primary = stack.enter_context(running(directory, *FAST, **fields))
        of = ("--replicaof", f"127.0.0.1 {primary.port}")
        others = [
            stack.enter_context(running(directory, *FAST, *of, **fields)) for _ in range(replicas)
        ]
        for other in others:
            wait_for(lambda other=other: in_step(other), "replication")  # type: ignore[misc]
        yield [primary, *others]


def quickest(act: Callable[[], float], within_s: float) -> None:
    """Repeats what says how long it took, until it took less than that.

    A host that stands still makes it long now and then; a fault does always.
    """
    took = [act()]
    while took[-1] >= within_s:
        assert len(took) < 20, f"never within {within_s} s: {took}"
        took.append(act())


def in_step(replica: Server) -> bool:
    return bool(replica.ask("ROLE")[3] == "connected")


@dataclass
class Certificates:
    """An authority, and what it signed for 127.0.0.1; all files expire within days."""

    directory: Path

    def __post_init__(self) -> None:
        for name, more in (
            (
                "ca",
                ["-subj", "/CN=nearcache tests", "-addext", "basicConstraints=critical,CA:TRUE"],
            ),
            ("server", [*self._signed, "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]),
            ("client", [*self._signed, "-addext", "extendedKeyUsage=clientAuth"]),
            ("stranger", ["-subj", "/CN=nobody"]),
        ):
            self._make(name, more)

    def path(self, name: str) -> str:
        return str(self.directory / name)

    @property
    def _signed(self) -> list[str]:
        authority = ["-CA", self.path("ca.crt"), "-CAkey", self.path("ca.key")]
        return ["-subj", "/CN=localhost", *authority]

    def _make(self, name: str, more: list[str]) -> None:
        key, certificate = self.path(f"{name}.key"), self.path(f"{name}.crt")
        ours = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        ours += ["-nodes", "-days", "3", "-keyout", key, "-out", certificate, *more]
        # Python 3.13 asks for it.
        ours += ["-addext", "keyUsage=critical,digitalSignature,keyCertSign"]
        subprocess.run(ours, check=True, capture_output=True)

    def options(self, port: int) -> tuple[str, ...]:
        """Arguments of a server that speaks TLS on that port, and nothing on its other."""
        files = ("--tls-ca-cert-file", self.path("ca.crt"), "--tls-cert-file")
        files += (self.path("server.crt"), "--tls-key-file", self.path("server.key"))
        return ("--port", "0", "--tls-port", str(port), "--tls-auth-clients", "no", *files)


def installed() -> bool:
    return shutil.which("redis-server") is not None
