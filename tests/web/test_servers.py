"""The pages under gunicorn, uWSGI and an ASGI server: all workers count into one summary."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from .conftest import GUNICORN, UVICORN, UWSGI, Site, running

READS = 120
SERVERS = {
    "gunicorn sync": [*GUNICORN, "--worker-class", "sync"],
    "gunicorn gthread": [*GUNICORN, "--worker-class", "gthread", "--threads", "2"],
    "uWSGI": UWSGI,
    "uvicorn (ASGI)": UVICORN,
}


def read_at_once(site: Site, reads: int, clients: int = 6) -> None:
    with ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(lambda _: site.get("random"), range(reads)))
    assert {status for status, _ in answers} == {200}


def head_of(site: Site, path: str) -> bytes:
    """Everything that the server sends to HEAD."""
    where = urlsplit(site.here)
    asked = f"HEAD /{path} HTTP/1.1\r\nHost: {where.netloc}\r\nConnection: close\r\n\r\n"
    with socket.create_connection((where.hostname, where.port), timeout=20) as connection:
        connection.sendall(asked.encode())
        return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize("name", SERVERS)
def test_attempted_is_recorded_under(name: str, tmp_path: Path) -> None:
    with running(tmp_path, SERVERS[name]) as site:
        head, _, body = head_of(site, "summary").partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert int(head.lower().partition(b"content-length: ")[2].split()[0]) > 0
        assert body == b""
        read_at_once(site, READS)
        found = site.summary()
        assert (found["attempted"], found["recorded"], found["lost"]) == (READS, READS, 0)
        assert sum(line["times"] + line["misses"] for line in found["aliases"]) == READS
        assert site.get("reset", "POST")[0] == 200
        assert site.summary()["attempted"] == 0
        read_at_once(site, 20)
        assert site.summary()["recorded"] == 20, "after the reset all workers begin anew"


def test_a_killed_worker_takes_no_samples_along(
    tmp_path: Path, eventually: Callable[[Callable[[], object]], None]
) -> None:
    with running(tmp_path, SERVERS["gunicorn sync"]) as site:
        read_at_once(site, 40)
        children = Path(f"/proc/{site.process.pid}/task/{site.process.pid}/children")
        before = {int(pid) for pid in children.read_text().split()}
        for worker in before:
            os.kill(worker, signal.SIGKILL)
        eventually(lambda: len({int(p) for p in children.read_text().split()} - before) == 2)
        assert site.summary()["recorded"] == 40
        read_at_once(site, 40)
        found = site.summary()
        assert (found["attempted"], found["recorded"], found["lost"]) == (80, 80, 0)
        slots = list(next((tmp_path / "samples").iterdir()).glob("slot-*"))
        assert len(slots) <= 2, "newcomers took over what the dead had left"
