"""A preloading gunicorn: the cache is used before its workers are forked, and by all of them."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

APP = """
import os
from django.conf import settings
settings.configure(
    ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="for tests only",
    CACHES={{"default": {{
        "BACKEND": "nearcache.backends.SharedMemoryCache",
        "LOCATION": {location!r}, "OPTIONS": {{"size": "4MB"}},
    }}}},
)
from django.core.cache import cache
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import path

cache.set("requests", 0)  # in the master, before it forks

def view(request):
    # A worker of gevent's was patched after all this was imported.
    assert cache.get_or_set(f"of {{os.getpid()}}", os.getpid) == os.getpid()
    with cache.lock("view", timeout=60, wait=60):
        return HttpResponse(f"{{os.getpid()}} {{cache.incr('requests')}}")

urlpatterns = [path("", view)]
application = get_wsgi_application()
"""


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(str(self._path))


def ask(path: Path) -> tuple[int, int]:
    """The worker that answered, and how many requests the cache has counted."""
    connection = UnixConnection(path)
    try:
        connection.request("GET", "/")
        pid, count = connection.getresponse().read().split()
    finally:
        connection.close()
    return int(pid), int(count)


def answers(path: Path) -> bool:
    try:
        return bool(ask(path))
    except (ConnectionError, FileNotFoundError):
        return False


@pytest.fixture(params=["sync", "gthread", "gevent"])
def site(
    request: pytest.FixtureRequest, private_path: Path, eventually: Callable[..., None]
) -> Iterator[Path]:
    (private_path / "site_app.py").write_text(APP.format(location=str(private_path / "cache")))
    address = private_path / "s"
    command = [sys.executable, "-m", "gunicorn", "--preload", "--workers", "3"]
    command += [
        "--worker-class",
        request.param,
        "--bind",
        f"unix:{address}",
        "--log-level",
        "error",
    ]
    command += ["--graceful-timeout", "2"]
    command += ["--no-control-socket"] if has_control_socket() else []
    process = subprocess.Popen([*command, "site_app"], cwd=private_path, start_new_session=True)
    try:
        eventually(lambda: answers(address))
        yield address
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)
    finally:
        # Nobody stays behind, however a worker takes its end.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def has_control_socket() -> bool:
    done = subprocess.run(
        [sys.executable, "-m", "gunicorn", "--help"], capture_output=True, text=True, check=False
    )
    return "--no-control-socket" in done.stdout


def test_all_workers_count_in_one_cache(site: Path, eventually: Callable[..., None]) -> None:
    seen = [ask(site)]

    def several_workers_answered() -> bool:
        seen.extend(ask(site) for _ in range(20))
        return len({pid for pid, _ in seen}) > 1

    eventually(several_workers_answered)
    counts = [count for _, count in seen]
    assert counts == list(range(counts[0], counts[0] + len(seen)))
