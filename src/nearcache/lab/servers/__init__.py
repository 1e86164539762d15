"""Private servers: started for one run, gone after it. One file for each kind.

Every server lives in the run's own directory, listens on a unix socket or on a free
port of 127.0.0.1, and is stopped by its process id. Caches write nothing to disk; what
promises durability gets a directory on one. Each is asked for its version before
anybody measures it: that is the proof that it answers.

A binary that is not installed raises :class:`ServerMissing` (the table then names the
package); one that is there and does not start is a :class:`LabError` and ends the run.
The kernel ends the servers with the lab (``PR_SET_PDEATHSIG``), even if it is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from nearcache.errors import LabError
from nearcache.lab.base.directories import private_directory
from nearcache.lab.base.model import ServerName

START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 5.0
POLL_S = 0.01
PR_SET_PDEATHSIG = 1
PORTS = range(10_000, 32_768)
_given: set[int] = set()
_prctl = ctypes.CDLL(None, use_errno=True).prctl


STARTERS: dict[ServerName, str] = {
    "redis": "nearcache.lab.servers.redis.start_redis",
    "redis-always": "nearcache.lab.servers.redis_aof.start_redis_always",
    "redis-everysec": "nearcache.lab.servers.redis_aof.start_redis_everysec",
    "redis-os": "nearcache.lab.servers.redis_aof.start_redis_os",
    "memcached-unix": "nearcache.lab.servers.memcached.start_memcached_unix",
    "memcached-tcp": "nearcache.lab.servers.memcached.start_memcached_tcp",
    "postgres": "nearcache.lab.servers.postgres.start_postgres",
    "s3": "nearcache.lab.servers.s3.start_s3",
}


FINDERS: dict[ServerName, str] = {
    "redis": "nearcache.lab.servers.redis.find_redis",
    "redis-always": "nearcache.lab.servers.redis.find_redis",
    "redis-everysec": "nearcache.lab.servers.redis.find_redis",
    "redis-os": "nearcache.lab.servers.redis.find_redis",
    "memcached-unix": "nearcache.lab.servers.memcached.find_memcached",
    "memcached-tcp": "nearcache.lab.servers.memcached.find_memcached",
    "postgres": "nearcache.lab.servers.postgres.find_postgres",
    "s3": "nearcache.lab.servers.s3.find_s3",
}


class ServerMissing(LabError):
    """The server's binary is not installed; ``install`` says how to get it."""

    def __init__(self, binaries: Sequence[str], install: str) -> None:
        super().__init__(f"{' or '.join(binaries)} is not installed; {install}")
        self.install = install


@dataclass(frozen=True)
class Running:
    name: str
    version: str
    places: Mapping[str, str]  # what it adds to the placeholders of candidates
    process: subprocess.Popen[bytes]
    ends_by: signal.Signals = signal.SIGTERM


class Servers:
    """The servers of one run. Use as a context manager: leaving it stops them all."""

    def __init__(self, directory: Path, cpu: int | None, binaries: Mapping[str, str] | None = None):
        self.directory = directory
        self.cpu = cpu
        self.binaries = dict(binaries or {})  # server -> path, where the user gave one
        self.running: dict[ServerName, Running] = {}
        self._directories: list[Path] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, name: ServerName) -> Running:
        """The server of this name, started on first use."""
        if name not in self.running:
            starter: Callable[[Servers], Running] = _function(STARTERS[name])
            self.running[name] = starter(self)
        return self.running[name]

    def places(self) -> dict[str, str]:
        """All placeholders that the running servers define."""
        merged: dict[str, str] = {}
        for server in self.running.values():
            merged.update(server.places)
        return merged

    def stop(self) -> None:
        for server in self.running.values():
            end_process(server.process, server.ends_by)
        self.running.clear()
        while self._directories:
            shutil.rmtree(self._directories.pop(), ignore_errors=True)

    def directory_in(self, parent: Path) -> Path:
        """One more private directory, in another place than the run's own; ``stop`` removes it."""
        self._directories.append(private_directory(parent))
        return self._directories[-1]

    def find(self, server: str, names: Sequence[str], install: str) -> str:
        """The path of a server's program. Raises ServerMissing, or LabError for a bad path."""
        given = self.binaries.get(server)
        if given:
            found = shutil.which(given)
            if not found:
                raise LabError(f"{given} is not a program; give the path of a {server} binary")
            return found
        for name in names:
            if found := shutil.which(name):
                return found
        raise ServerMissing(names, install)

    def launch(
        self,
        name: ServerName,
        command: list[str],
        address: str | int,
        question: bytes,
        marker: bytes,
        places: Mapping[str, str],
        *,
        cwd: Path | None = None,
        user: int | None = None,
        env: Mapping[str, str] | None = None,
        ends_by: signal.Signals = signal.SIGTERM,
    ) -> Running:
        """Start it, and wait until it answers ``question`` with ``marker`` and its version.

        ``user`` is whom it runs as, for servers that refuse to be root's; ``ends_by`` the
        signal that asks it to leave at once.
        """
        log = self.directory / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd or self.directory,
                env={**os.environ, **(env or {})},
                start_new_session=True,  # Ctrl-C is for the lab, which stops its servers itself
                # After the change of user, which would clear what it asks the kernel for.
                preexec_fn=child_setup(self.cpu, ends_by),  # noqa: PLW1509 - one thread
                **as_user(user),
            )
        try:
            version = _wait_for_version(process, address, question, marker)
        except BaseException as error:
            end_process(process, ends_by)
            if isinstance(error, TimeoutError):
                raise LabError(_why_not_started(command[0], log)) from error
            raise
        return Running(name, version, places, process, ends_by)


def is_installed(name: ServerName, binaries: Mapping[str, str]) -> bool:
    """Is there a program for it? Raises LabError for a path of ``binaries`` that is none."""
    try:
        _function(FINDERS[name])(Servers(Path(), None, binaries))
    except ServerMissing:
        return False
    return True


def _function(path: str) -> Callable[[Servers], Any]:
    module, _, name = path.rpartition(".")
    found: Callable[[Servers], Any] = getattr(import_module(module), name)
    return found


def as_user(user: int | None) -> dict[str, Any]:
    """Arguments of Popen for a process of somebody else's; only root may."""
    return {} if user is None else {"user": user, "group": user_group(user), "extra_groups": []}


def user_group(user: int) -> int:
    return pwd.getpwuid(user).pw_gid


def child_setup(cpu: int | None, ends_by: signal.Signals = signal.SIGTERM) -> Callable[[], None]:
    """What a child does before exec: die with the lab, and stay on one CPU if told to."""

    def setup() -> None:
        _prctl(PR_SET_PDEATHSIG, ends_by)
        if cpu is not None:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, {cpu})

    return setup


def end_process(process: subprocess.Popen[bytes], ends_by: signal.Signals = signal.SIGTERM) -> None:
    """Ask it to end, then insist. Only ever this process, by its id."""
    if process.poll() is not None:
        return
    process.send_signal(ends_by)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def last_words(process: subprocess.Popen[Any], complaints: IO[bytes]) -> str:
    """The last line of what it wrote to ``complaints``, or with what status it ended."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)  # for its status; it hung up, so it is on its way out
    complaints.seek(0)
    lines = complaints.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit status {process.returncode}"


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on, and another one each time.

    It lies below those that Linux gives to connections (from 32768 on), which could otherwise
    take it before the server does. It was not given before, since circuit breakers remember
    an address for as long as the process lives.
    """
    for port in random.SystemRandom().sample(PORTS, 1000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            if port not in _given:
                probe.bind(("127.0.0.1", port))
                _given.add(port)
                return port
    raise LabError("none of 1000 ports of 127.0.0.1 is free")


def ask(address: str | int, question: bytes, timeout_s: float = 2.0) -> bytes:
    """One question to a server on a unix path or a local port; the first of its answer."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        connection.connect(address if isinstance(address, str) else ("127.0.0.1", address))
        connection.sendall(question)
        return connection.recv(65536)


def _wait_for_version(
    process: subprocess.Popen[bytes], address: str | int, question: bytes, marker: bytes
) -> str:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            answer = ask(address, question)
            if marker in answer:
                return re.split(rb"[\r\n\0]", answer.split(marker, 1)[1])[0].decode()
        time.sleep(POLL_S)
    raise TimeoutError


def _why_not_started(binary: str, log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    said = f"it said: {lines[-1].strip()}" if lines else "it said nothing"
    return f"{binary} did not start ({said}); run it by hand, or leave its candidates out"
