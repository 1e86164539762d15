"""What runs the site: one entry per server, as its command line and what can be expected of it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nearcache.lab.servers import free_port

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
STARTS_S = 120
QUIET = "--log-level=warning"
WSGI, ASGI = "tests.site.project.wsgi:application", "tests.site.project.asgi:application"


@dataclass(frozen=True)
class Server:
    """One way to run the site. ``{port}`` and ``{timeout}`` are put in at the start."""

    command: tuple[str, ...]
    needs: str
    """The package that it is of."""
    revives: bool = True
    """Whether a master starts a worker anew that was killed."""
    main_thread: bool = False
    """Whether requests run in the main thread, where signals raise."""
    greenlets: bool = False
    tasks: bool = False
    timeouts: bool = False
    """Whether it kills a worker that hangs, after ``timeout`` seconds."""

    @property
    def async_views(self) -> bool:
        """Django has none under greenlets: their thread has one event loop, which is busy."""
        return not self.greenlets


def _python(module: str, *options: str) -> tuple[str, ...]:
    return (sys.executable, "-m", module, *options)


def _gunicorn(*options: str) -> tuple[str, ...]:
    common = ("--bind=127.0.0.1:{port}", "--workers=2", "--timeout={timeout}", QUIET)
    return _python("gunicorn", *common, "--graceful-timeout=5", *options, WSGI)


def _uwsgi(*options: str) -> tuple[str, ...]:
    program = str(Path(sys.executable).with_name("uwsgi"))
    common = ("--http-socket=127.0.0.1:{port}", "--master", "--processes=2", "--die-on-term")
    more = ("--need-app", "--disable-logging", "--listen=64", "--module=" + WSGI)
    return (program, *common, "--harakiri={timeout}", *more, *options)


def _granian(*options: str) -> tuple[str, ...]:
    common = ("--host=127.0.0.1", "--port={port}", "--workers=2", QUIET)
    more = ("--respawn-failed-workers", "--respawn-interval=0.1", "--workers-kill-timeout=5s")
    return _python("granian", *common, *more, *options)


def _prefork(method: str) -> tuple[str, ...]:
    return _python("tests.site.prefork", method, "{port}")


SERVERS: dict[str, Server] = {
    "gunicorn-sync": Server(_gunicorn(), "gunicorn", main_thread=True, timeouts=True),
    "gunicorn-gthread": Server(_gunicorn("--threads=4"), "gunicorn", timeouts=True),
    "gunicorn-gevent": Server(
        _gunicorn("--worker-class=gevent"), "gevent", greenlets=True, timeouts=True
    ),
    "gunicorn-preload": Server(_gunicorn("--preload", "--threads=4"), "gunicorn", timeouts=True),
    "gunicorn-gevent-preload": Server(
        # Django's connections to databases want to be patched before they are imported.
        _gunicorn("--config=python:tests.site.patched_first", "--worker-class=gevent"),
        "gevent",
        greenlets=True,
        timeouts=True,
    ),
    "gunicorn-max-requests": Server(
        _gunicorn("--max-requests=60", "--max-requests-jitter=30"),
        "gunicorn",
        main_thread=True,
        timeouts=True,
    ),
    "uwsgi": Server(_uwsgi(), "pyuwsgi", main_thread=True, timeouts=True),
    "uwsgi-lazy": Server(_uwsgi("--lazy-apps"), "pyuwsgi", main_thread=True, timeouts=True),
    "uwsgi-threads": Server(_uwsgi("--enable-threads", "--threads=4"), "pyuwsgi", timeouts=True),
    "uwsgi-osafterfork": Server(
        _uwsgi("--enable-threads", "--threads=4", "--py-call-osafterfork"), "pyuwsgi", timeouts=True
    ),
    "uvicorn": Server(
        _python("uvicorn", "--host=127.0.0.1", "--port={port}", "--workers=2", QUIET, ASGI),
        "uvicorn",
        tasks=True,
    ),
    "granian-asgi": Server(_granian("--interface=asgi", ASGI), "granian", tasks=True),
    "granian-wsgi": Server(_granian("--interface=wsgi", "--blocking-threads=4", WSGI), "granian"),
    "daphne": Server(
        _python("daphne", "-b", "127.0.0.1", "-p", "{port}", "-v", "0", ASGI),
        "daphne",
        revives=False,
        tasks=True,
    ),
    "runserver": Server(
        _python("django", "runserver", "--noreload", "127.0.0.1:{port}"),
        "django",
        revives=False,
    ),
    "prefork-fork": Server(_prefork("fork"), "django"),
    "prefork-spawn": Server(_prefork("spawn"), "django"),
    "prefork-forkserver": Server(_prefork("forkserver"), "django"),
}


class Unanswered(Exception):
    """No answer came: refused, reset, or cut off in its midst."""


class Hanging(Exception):
    """No answer came for so long that none will."""


@dataclass
class Answer:
    status: int
    told: dict[str, Any] | None
    """None: no JSON, so it is none of the site's own answers."""
    cookie: str | None
    """What the session's cookie was set to; empty: it was deleted."""
    asked: str | None


ANSWERS_S = 60
"""Longer than anything waits."""


@dataclass
class Site:
    """A server that runs; it and all it started are gone after ``end``."""

    server: Server
    directory: Path
    settings: dict[str, Any]
    timeout_s: int = 600
    port: int = field(default_factory=free_port)
    prepare: Callable[[], None] | None = None
    """Called in the new process before the server begins: for limits."""
    sources: Path = SOURCES
    """Where the package is that it runs."""
    process: subprocess.Popen[bytes] | None = None
    ended: list[int] = field(default_factory=list)

    @property
    def log(self) -> Path:
        return self.directory / "log"

    def start(self) -> None:
        where = {"port": self.port, "timeout": self.timeout_s}
        environment = {
            **os.environ,
            "TRIAL_SITE": json.dumps(self.settings),
            "DJANGO_SETTINGS_MODULE": "tests.site.project.settings",
            "PYTHONPATH": f"{self.sources}{os.pathsep}{ROOT}",
            "PYTHONFAULTHANDLER": "1",
        }
        environment |= self.settings.get("environment", {})
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [each.format(**where) for each in self.server.command],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=self.prepare,
            )

    def wait_ready(self, statuses: Container[int] = (200,)) -> None:
        """Until a page is answered so."""
        give_up_at = time.monotonic() + STARTS_S
        while True:
            with contextlib.suppress(Unanswered):
                if self.ask("GET", "/page/ready", {"X-User": "nobody"}).status in statuses:
                    return
            if time.monotonic() > give_up_at or not self.runs:
                raise AssertionError(f"the site did not start: {self.log.read_text()[-3000:]}")
            time.sleep(0.05)

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def ask(self, method: str, path: str, headers: dict[str, str]) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWERS_S)
        try:
            connection.request(method, path, headers={**headers, "Connection": "close"})
            response = connection.getresponse()
            body = response.read()
        except TimeoutError as error:
            raise Hanging(f"{method} {path}: no answer in {ANSWERS_S} s") from error
        except (OSError, http.client.HTTPException) as error:
            raise Unanswered(f"{type(error).__name__}: {error}") from error
        finally:
            connection.close()
        if not body and "Content-Length" not in response.headers:
            raise Unanswered("cut off within its head")
        return Answer(
            response.status, _json(body), _cookie(response), response.headers.get("X-Asked")
        )

    def layout(self) -> int:
        """Of the files in memory, by the version of the package that it runs."""
        told = self.ask("GET", "/layout", {"X-User": "nobody"}).told
        assert told is not None
        return int(told["layout"])

    def workers(self) -> set[int]:
        """All processes below the one that was started."""
        assert self.process
        return set(_descendants(self.process.pid))

    def end(self, gently: bool = True) -> int | None:
        """What the server ended with; None if it had to be killed."""
        if self.process is None:
            return None
        family = {self.process.pid} | self.workers()
        try:
            if gently and self.runs:
                self.process.send_signal(signal.SIGCONT)
                self.process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return self.process.wait(30)
            return None
        finally:
            self._kill(family)
            self.process.wait()
            self.process = None

    def _kill(self, family: set[int]) -> None:
        assert self.process
        session = self.process.pid
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                # Of its own session: only what we started, even if a pid was used again.
                if os.getsid(pid) == session:
                    os.kill(pid, signal.SIGKILL)


def _json(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _cookie(response: http.client.HTTPResponse) -> str | None:
    for line in response.headers.get_all("Set-Cookie") or ():
        name, _, rest = line.partition("=")
        if name == "sessionid":
            return rest.partition(";")[0].strip('"')
    return None


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in _listed(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                found += [int(child), *_descendants(int(child))]
    return found


def _listed(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []
