"""Several interpreters in one process: ``uwsgi --mount``, applications of mod_wsgi."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nearcache.lab.servers import free_port
from tests.needs import need

APP = """
import uuid
problem = None
try:
    from django.conf import settings
    settings.configure(SECRET_KEY="for tests only", CACHES={{"default": {{
        "BACKEND": "nearcache.backends.SharedMemoryCache",
        "LOCATION": {location!r}, "OPTIONS": {{"size": "4MB"}},
    }}}})
    import django; django.setup()
    from django.core.cache import cache
    cache.get("any")
except Exception as error:
    problem = str(error)

def application(environ, start):
    start("200 OK", [])
    if problem:
        return [problem.encode()]
    value = uuid.uuid4()
    cache.set("value", value, 60)
    found = cache.get("value")
    return [b"right" if type(found) is uuid.UUID and found == value else repr(found).encode()]
"""


def answer(port: int, path: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("single", [False, True], ids=["an interpreter each", "one interpreter"])
def test_the_second_interpreter_is_refused_and_told_why(
    single: bool, private_path: Path, eventually: Callable[..., None]
) -> None:
    uwsgi = Path(sys.executable).parent / "uwsgi"
    need(str(uwsgi))
    for name in ("one", "two"):
        location = str(private_path / "cache")
        text = APP.format(location=location)
        if single and name == "two":
            text = text.replace("settings.configure", "settings.configured or settings.configure")
        (private_path / f"{name}.py").write_text(text)
    port = free_port()
    command = [str(uwsgi), "--http-socket", f"127.0.0.1:{port}", "--manage-script-name"]
    command += ["--master", "--die-on-term", "--mount", "/one=one.py", "--mount", "/two=two.py"]
    process = subprocess.Popen(
        [*command, *(["--single-interpreter"] if single else [])],
        cwd=private_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        eventually(lambda: listens(port))
        assert answer(port, "/one") == "right"
        if single:
            assert answer(port, "/two") == "right"
        else:
            assert "single-interpreter = true" in answer(port, "/two")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
