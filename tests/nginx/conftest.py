"""A real nginx with a real upstream, private to a test: both on loopback, both stopped."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nearcache.lab.servers import free_port
from nearcache.nginx.config.prove.sandbox import Sandbox
from tests.needs import missing

PATIENCE_S = 60.0
"""How long anything is waited for here: long, for a busy machine is slow and no fault."""
BESIDE = Path(__file__).parents[2] / ".cache"
PROGRAMS = {
    "system": "nginx",
    "newer": str(BESIDE / "newer-nginx" / "nginx"),
    "older": str(BESIDE / "older-nginx" / "nginx"),
}
"""By what tests call them; scripts/other-nginx unpacks those that are not the system's."""

every_nginx = pytest.mark.parametrize("program", PROGRAMS, indirect=True)
"""For tests of what nginx writes into a cache directory, and makes of what it finds there."""


@dataclass(frozen=True)
class Answer:
    """What the upstream says, or what nginx said."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def cache(self) -> str:
        """HIT, MISS and so on: every location of these tests shows it."""
        return self.headers.get("X-Cache", "")


Script = Callable[[str, Mapping[str, str]], Answer]


class Server(ThreadingHTTPServer):
    """With room for a crowd: who finds the queue full asks again after a second."""

    daemon_threads = True
    request_queue_size = 1024


class Upstream:
    """Answers what ``script`` says, and remembers what was asked."""

    def __init__(self) -> None:
        self.script: Script = lambda path, headers: Answer(b"hello")
        self.asked: list[str] = []
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                upstream.asked.append(self.path)
                answer = upstream.script(self.path, dict(self.headers))
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if answer.status != 304:
                    self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                if self.command == "GET" and answer.status != 304:
                    self.wfile.write(answer.body)

            do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

            def log_message(self, *arguments: object) -> None:
                """Quiet."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        # Asked every 20 ms whether to stop, and not every half second.
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE_S)


def wait_for(happens: Callable[[], bool], timeout_s: float = PATIENCE_S) -> bool:
    """Ask again and again until it is so; False if it never was."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if happens():
            return True
        time.sleep(0.005)
    return False


def accepts(address: str | int) -> bool:
    """Does a server listen on this path, or at this port?"""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as probe:
        at = address if isinstance(address, str) else ("127.0.0.1", address)
        return probe.connect_ex(at) == 0


def has_open(pid: int, path: Path) -> bool:
    """Has this process the file open that now lies there?"""
    try:
        wanted = path.stat()
        opened = [os.stat(f"/proc/{pid}/fd/{each}") for each in os.listdir(f"/proc/{pid}/fd")]
    except FileNotFoundError:  # between a rename and the new file, or one was closed meanwhile
        return False
    return any(os.path.samestat(wanted, each) for each in opened)


def title_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return b""


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port that nobody else is given, and only a server that says SO_REUSEADDR can listen on.

    Nobody listens on it until then: who connects is refused.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port = free_port()
        holder.bind(("127.0.0.1", port))
        yield port


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port at which nobody answers."""
    with reserved_port() as port:
        yield port


class Nginx:
    """A sandbox's nginx that listens on a port of loopback, too, and logs as nginx does."""

    def __init__(self, program: str, http: str, server: str) -> None:
        self.box = Sandbox(program)
        self.directory = self.box.directory
        self.cache = self.directory / "cache"
        self.log = self.directory / "access.log"
        self.configuration = self.directory / "nginx.conf"
        with reserved_port() as self.port:
            text = SITE.format(socket=self.box.socket, port=self.port, http=http, server=server)
            self.text = text.replace("{cache}", str(self.cache))
            self._start()

    def _start(self) -> None:
        self.box.start(self.text)
        assert self.box.process
        self.process = self.box.process

    def restart(self) -> None:
        """Also after a stop."""
        self.stop()
        self._start()

    def get(
        self, path: str, headers: Mapping[str, str] | None = None, method: str = "GET"
    ) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, headers=dict(headers or {}))
            response = connection.getresponse()
            return Answer(response.read(), response.status, dict(response.getheaders()))
        finally:
            connection.close()

    def fill(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        """Ask until it is a hit: nginx answers a miss before its file is in place."""
        answers: list[Answer] = []

        def is_hit() -> bool:
            answers.append(self.get(path, headers))
            return answers[-1].cache == "HIT"

        assert wait_for(is_hit), f"{path} is not cached: {answers[-1]}"
        return answers[-1]

    def reopen(self, log: Path) -> None:
        """Has the logs opened anew, and waits for the worker: it is later than the master."""
        self.process.send_signal(signal.SIGUSR1)
        assert wait_for(lambda: has_open(self.child(b"worker"), log)), self.errors

    def child(self, title: bytes) -> int:
        """Its ``worker``, which answers and logs, or its ``cache manager``, which comes later."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        found: list[int] = []

        def is_there() -> bool:
            pids = map(int, children.read_text().split())
            found[:] = [pid for pid in pids if title + b" process" in title_of(pid)]
            return len(found) == 1

        assert wait_for(is_there), f"no {title!r}"
        return found[0]

    @property
    def errors(self) -> str:
        return self.box.errors

    def stop(self) -> None:
        self.box.stop()


# nginx opens sockets in this order, and the sandbox waits for the last.
SITE = """
{http}
server {{
    listen 127.0.0.1:{port};
    listen unix:{socket};
    {server}
}}
"""

StartNginx = Callable[..., Nginx]


@pytest.fixture(autouse=True)
def _patient_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """What bounds a proof on a user's machine is no limit for these tests."""
    for name in (
        "config.prove.sandbox.START_TIMEOUT_S",
        "config.prove.sandbox.ANSWER_TIMEOUT_S",
        "config.prove.proof.PATIENCE_S",
    ):
        monkeypatch.setattr(f"nearcache.nginx.{name}", PATIENCE_S)


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    server = Upstream()
    yield server
    server.stop()


@pytest.fixture
def program(request: pytest.FixtureRequest) -> str:
    """The nginx to start: the system's, or those of ``every_nginx``."""
    which: str = getattr(request, "param", "system")
    if shutil.which(PROGRAMS[which]) is None:
        what = "nginx is not installed" if which == "system" else f"there is no {which} nginx"
        how = "make servers" if which == "system" else "make other-nginx"
        missing(f"{what} (`{how}`)")
    return PROGRAMS[which]


@pytest.fixture
def start_nginx(program: str) -> Iterator[StartNginx]:
    """A function that starts nginx with these ``http`` and ``server`` lines; ``{cache}`` works."""
    started: list[Nginx] = []

    def start(http: str = "", server: str = "") -> Nginx:
        started.append(Nginx(program, http, server))
        return started[-1]

    yield start
    for nginx in started:
        nginx.box.__exit__()


@pytest.fixture
def proxy(start_nginx: StartNginx, upstream: Upstream) -> Callable[[str], Nginx]:
    """nginx with one cached location; the argument is more lines for it."""

    def start(lines: str = "") -> Nginx:
        return start_nginx(
            http="proxy_cache_path {cache} levels=1:2 keys_zone=z:1m inactive=1h;",
            server=f"""
                location / {{
                    proxy_pass http://127.0.0.1:{upstream.port};
                    proxy_cache z;
                    proxy_cache_valid 200 1h;
                    add_header X-Cache $upstream_cache_status always;
                    {lines}
                }}""",
        )

    return start
