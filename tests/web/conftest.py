"""The pages under real servers, and as a project includes them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client, override_settings

from nearcache.lab.servers import child_setup, free_port
from nearcache.web import SETUP_VARIABLE

ROOT = Path(__file__).parents[2]
LOCMEM = "django.core.cache.backends.locmem.LocMemCache"


def locmem(name: str) -> dict[str, Any]:
    # In one process a LocMemCache outlives its settings: each gets a name of its own.
    return {"BACKEND": LOCMEM, "LOCATION": f"{name}-{uuid4()}"}


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Callable[..., Client]]:
    """Makes a client of the pages, included at /cachelab/ of a project with these settings."""
    overrides: list[Any] = []

    def make(caches: dict[str, Any] | None = None, **settings: Any) -> Client:
        web = {
            "ACCESS": "anyone",
            "WARM_UP": 0,
            "PRIVATE": True,
            "DIRECTORY": str(tmp_path / "samples"),
        }
        web |= settings.pop("NEARCACHE_WEB", {})
        override = override_settings(
            CACHES=caches or {"default": locmem("a"), "other": locmem("b")},
            ALLOWED_HOSTS=["testserver"],
            NEARCACHE_WEB=web,
            ROOT_URLCONF="tests.web.project_urls",
            **settings,
        )
        override.enable()
        overrides.append(override)
        return Client()

    yield make
    for override in reversed(overrides):
        override.disable()


class Site:
    """A server with the pages, and what to ask it."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.here = f"http://127.0.0.1:{port}/"

    def get(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
        request = urllib.request.Request(self.here + path, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def summary(self) -> dict[str, Any]:
        status, body = self.get("summary?format=json")
        assert status == 200, body
        found: dict[str, Any] = json.loads(body)
        return found


@contextmanager
def running(directory: Path, command: list[str], **setup: Any) -> Iterator[Site]:
    """The pages under this command; ``{port}`` in it is filled in."""
    port = free_port()
    path = directory / "setup.json"
    path.write_text(
        json.dumps(
            {
                "settings": None,
                "caches": {"default": locmem("a"), "other": locmem("b")},
                "hosts": ["127.0.0.1"],
                "secret": "the same for all workers of this test",
                "web": {
                    "PRIVATE": True,
                    "ACCESS": "anyone",
                    "WARM_UP": 0,
                    "PAYLOAD": "S",
                    "DIRECTORY": str(directory / "samples"),
                },
                **setup,
            }
        )
    )
    log = (directory / "server.log").open("wb")
    process = subprocess.Popen(
        [part.replace("{port}", str(port)) for part in command],
        cwd=directory,
        env={**os.environ, SETUP_VARIABLE: str(path), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=log,
        stderr=subprocess.STDOUT,
        preexec_fn=child_setup(None),
    )
    site = Site(process, port)
    try:
        give_up_at = time.monotonic() + 120
        while True:
            with suppress(OSError):
                site.get("summary")
                break
            assert process.poll() is None, (directory / "server.log").read_text()
            assert time.monotonic() < give_up_at, "it did not start in time"
            time.sleep(0.02)
        yield site
    finally:
        process.terminate()
        process.wait(60)
        log.close()


GUNICORN = [
    sys.executable, "-m", "gunicorn", "nearcache.web.standalone", "--bind", "127.0.0.1:{port}",
    "--no-control-socket", "--graceful-timeout", "1", "--workers", "2",
]  # fmt: skip
UWSGI = [
    str(Path(sys.executable).with_name("uwsgi")), "--http-socket", "127.0.0.1:{port}",
    "--module", "nearcache.web.standalone", "--master", "--die-on-term", "--need-app",
    "--processes", "2", "--threads", "2",
]  # fmt: skip
UVICORN = [
    sys.executable, "-m", "uvicorn", "nearcache.web.standalone:asgi_application",
    "--port", "{port}", "--workers", "1", "--lifespan", "off",
]  # fmt: skip
