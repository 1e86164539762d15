"""A gunicorn of several workers in front of a project, on a unix socket."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.backends.test_gunicorn import UnixConnection, has_control_socket
from tests.projects.made import Project


def page(address: Path, path: str = "/") -> str:
    connection = UnixConnection(address)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


@contextlib.contextmanager
def serving(project: Project, address: Path, eventually: Callable[..., None]) -> Iterator[Path]:
    """The address of a site of two workers."""
    command = [sys.executable, "-m", "gunicorn", "--workers", "2", "--log-level", "error"]
    command += ["--bind", f"unix:{address}", "--graceful-timeout", "2"]
    command += ["--no-control-socket"] if has_control_socket() else []
    process = subprocess.Popen(
        [*command, f"{project.package}.wsgi"],
        cwd=project.root,
        env=project.environment(),
        start_new_session=True,
    )
    try:
        eventually(lambda: _answers(address))
        yield address
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(address: Path) -> bool:
    try:
        return bool(page(address, "/get/none"))
    except (ConnectionError, FileNotFoundError):
        return False
