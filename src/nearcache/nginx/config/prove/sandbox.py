"""A private nginx before a scripted application: for proofs, with nothing of this host's nginx.

nginx listens on a Unix socket in a directory of its own, which goes when it is over; the
application on a port of loopback that the system chooses. The application is any WSGI
callable, spoken to in HTTP or in the uwsgi protocol, in a thread of this process.

Not for load, and not for the world.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingMixIn, ThreadingTCPServer
from typing import Any, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from nearcache.errors import NginxError

START_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 5.0
STOP_TIMEOUT_S = 5.0
POLL_S = 0.005
PR_SET_PDEATHSIG = 1

MAIN = """{modules}
daemon off;
worker_processes 1;
{user}
pid {directory}/nginx.pid;
error_log {directory}/error.log info;
events {{ worker_connections 256; }}
http {{
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    uwsgi_temp_path {directory}/uwsgi;
    fastcgi_temp_path {directory}/fastcgi;
    scgi_temp_path {directory}/scgi;
    access_log {directory}/access.log;
    include {directory}/site.conf;
}}
"""

Application = Callable[..., Any]


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def cache(self) -> str:
        """HIT, MISS and so on, as ``X-Cache`` says; empty without."""
        return self.headers.get("X-Cache", "")


class Sandbox:
    """``with Sandbox() as box: box.start(text); box.ask("/")``."""

    def __init__(self, program: str = "nginx", modules: Sequence[str] = ()) -> None:
        """
        Args:
            modules: paths of dynamic modules to load.
        """
        self.program = program
        self.modules = modules
        self._temporary = tempfile.TemporaryDirectory(prefix="nearcache-")
        self.directory = Path(self._temporary.name)
        self.socket = self.directory / "nginx.sock"
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self._temporary.cleanup()

    def stop(self) -> None:
        """Ends nginx; its directory stays until the block is left."""
        if self.process:
            _end(self.process)

    def write(self, text: str, files: Mapping[str, str] | None = None) -> None:
        """Puts the configuration in place: what belongs to the http level, and files beside."""
        for name, content in {"site.conf": text, **(files or {})}.items():
            (self.directory / name).write_text(content)
        main = MAIN.format(
            modules="\n".join(f"load_module {path};" for path in self.modules),
            user="user root;" if os.geteuid() == 0 else "",
            directory=self.directory,
        )
        (self.directory / "nginx.conf").write_text(main)

    def check(self) -> str:
        """What ``nginx -t`` has against it; empty if it is right. Raises without nginx."""
        done = self._run("-t")
        return "" if done.returncode == 0 else done.stderr.strip()

    def start(self, text: str, files: Mapping[str, str] | None = None) -> None:
        """Raises NginxError with what nginx says if it does not start."""
        self.write(text, files)
        wrong = self.check()
        if wrong:
            raise NginxError(f"nginx does not take this configuration: {wrong}")
        self.process = subprocess.Popen(
            [self.program, "-p", str(self.directory), "-c", str(self.directory / "nginx.conf")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=_die_with_parent(),  # noqa: PLW1509 - one call, looked up before
        )
        deadline = time.monotonic() + START_TIMEOUT_S
        while self.process.poll() is None and time.monotonic() < deadline:
            if self._answers():
                return
            time.sleep(POLL_S)
        raise NginxError(f"the private nginx did not start: {self.errors[-500:]}")

    def ask(
        self,
        path: str,
        headers: Mapping[str, str] | None = None,
        method: str = "GET",
        host: str = "localhost",
    ) -> Reply:
        connection = _UnixConnection(self.socket)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in {"Host": host, **(headers or {})}.items():
                connection.putheader(name, value)
            if method == "POST":
                connection.putheader("Content-Length", "0")
            connection.endheaders()
            response = connection.getresponse()
            return Reply(response.status, dict(response.getheaders()), response.read())
        except (OSError, HTTPException) as error:
            raise NginxError(f"the private nginx gave no answer: {error!r}") from error
        finally:
            connection.close()

    @property
    def errors(self) -> str:
        path = self.directory / "error.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        main = str(self.directory / "nginx.conf")
        try:
            return subprocess.run(
                [self.program, *arguments, "-q", "-p", str(self.directory), "-c", main],
                check=False,
                capture_output=True,
                text=True,
                timeout=START_TIMEOUT_S,
            )
        except FileNotFoundError:
            raise NginxError(f"{self.program} is not on this host; install nginx") from None
        except subprocess.TimeoutExpired as error:
            raise NginxError(f"`{self.program} -t` did not end") from error

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0


class _UnixConnection(HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=ANSWER_TIMEOUT_S)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class Served:
    """An application on a port of loopback: ``with Served(application, "uwsgi") as served``."""

    def __init__(self, application: Application, kind: str = "proxy") -> None:
        self.server: WSGIServer | ThreadingTCPServer
        if kind == "proxy":
            self.server = _HttpServer(("127.0.0.1", 0), _QuietHandler)
            self.server.set_app(application)
        else:
            handler = type("Handler", (_UwsgiHandler,), {"application": staticmethod(application)})
            self.server = ThreadingTCPServer(("127.0.0.1", 0), handler)
            self.server.daemon_threads = True
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join(STOP_TIMEOUT_S)


class _HttpServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Quiet."""


class _UwsgiHandler(StreamRequestHandler):
    """One request in the uwsgi protocol: a header of four bytes, then counted pairs.

    Source: uwsgi-docs.readthedocs.io/en/latest/Protocol.html.
    """

    application: Application

    def handle(self) -> None:
        environ = dict(_pairs(self._packet()))
        started: list[tuple[str, list[tuple[str, str]]]] = []
        body = b"".join(
            self.application(environ, lambda status, headers: started.append((status, headers)))
        )
        status, headers = started[0]
        lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers), "", ""]
        self.wfile.write("\r\n".join(lines).encode("latin-1") + body)

    def _packet(self) -> bytes:
        size = int.from_bytes(self.rfile.read(4)[1:3], "little")
        return self.rfile.read(size)


def _pairs(packet: bytes) -> list[tuple[str, str]]:
    words, at = [], 0
    while at < len(packet):
        size = int.from_bytes(packet[at : at + 2], "little")
        words.append(packet[at + 2 : at + 2 + size].decode("latin-1"))
        at += 2 + size
    return list(zip(words[::2], words[1::2], strict=False))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask it to end, then insist. Only ever this process."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _die_with_parent() -> Callable[[], None]:
    """What nginx does before it is nginx: end if this process is killed."""
    prctl = ctypes.CDLL(None).prctl  # looked up before the fork
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
