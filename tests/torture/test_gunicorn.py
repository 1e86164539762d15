"""A site under load while gunicorn reloads and its workers are killed: no wrong answer."""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.needs import need_package
from tests.torture import values

need_package("gunicorn")

Eventually = Callable[..., None]

KEYS = 50
WORKERS = 4
KILLS = 12
RELOADS = 3


class Answer(NamedTuple):
    body: bytes
    hit: bool
    pid: int


class Site:
    """A running gunicorn and what it answers."""

    def __init__(self, directory: Path, preload: bool) -> None:
        self.socket = directory / "socket"
        self.log = directory / "log"
        options = [f"--bind=unix:{self.socket}", f"--workers={WORKERS}", "--max-requests=100"]
        options += ["--max-requests-jitter=50", "--preload"] if preload else []
        where = {"TORTURE_LOCATION": str(directory / "cache")}
        settings = {"DJANGO_SETTINGS_MODULE": "tests.torture.site.settings"}
        command = [sys.executable, "-m", "gunicorn", *options, "tests.torture.site.app:application"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, **where, **settings},
                stderr=log,
                start_new_session=True,
            )

    def ask(self, path: str) -> Answer | None:
        """None: the worker that had the request was killed, or nobody listens yet."""
        connection = http.client.HTTPConnection("localhost", timeout=60)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(60)
        try:
            connection.sock.connect(str(self.socket))
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        assert response.status == 200, body
        return Answer(body, response.headers["X-Hit"] == "1", int(response.headers["X-Pid"]))

    def workers(self) -> set[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return {int(pid) for pid in children.read_text().split()}

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(60)


class Client(threading.Thread):
    """Asks for pages and judges them, until it is told to stop."""

    def __init__(self, site: Site, number: int) -> None:
        super().__init__()
        self.site, self.random = site, random.Random(number)
        self.stop = threading.Event()
        self.answers = self.hits = 0
        self.wrong: list[str] = []
        self.pids: set[int] = set()

    def run(self) -> None:
        while not self.stop.is_set():
            try:
                self.look_at_a_page()
            except (values.Violation, AssertionError) as wrong:
                self.wrong.append(str(wrong))

    def look_at_a_page(self) -> None:
        key = f"page{self.random.randrange(KEYS)}"
        if self.random.random() < 0.1:
            self.site.ask(f"/forget/{key}")
        answer = self.site.ask(f"/page/{key}")
        if answer:
            values.read(key, answer.body)
            self.answers += 1
            self.hits += answer.hit
            self.pids.add(answer.pid)


@pytest.fixture(params=[False, True], ids=["each worker loads", "preload"])
def site(request: pytest.FixtureRequest, memory_path: Path) -> Iterator[Site]:
    site = Site(memory_path, request.param)
    try:
        yield site
    finally:
        if site.process.poll() is None:
            os.killpg(site.process.pid, signal.SIGKILL)  # its own session: only what we started
            site.process.wait()


@pytest.fixture
def clients(site: Site, eventually: Eventually) -> Iterator[list[Client]]:
    eventually(lambda: site.ask("/page/first"), 60)
    clients = [Client(site, number) for number in range(2)]
    for client in clients:
        client.start()
    yield clients
    for client in clients:
        client.stop.set()
    for client in clients:
        client.join()


def test_reloads_and_kills_under_load_give_no_wrong_answer_and_keep_the_cache_warm(
    site: Site, clients: list[Client], eventually: Eventually
) -> None:
    seen: set[int] = set()
    warm = site.ask("/page/warm")
    assert warm
    for _ in range(RELOADS):
        old = site.workers()
        site.process.send_signal(signal.SIGHUP)
        eventually(lambda: not old & site.workers(), 60)  # noqa: B023 - called at once
        for _ in range(KILLS // RELOADS):
            seen |= kill_one(site, eventually)
        answer = None
        while not answer:
            answer = site.ask("/page/warm")
        assert answer.hit
        assert answer.body == warm.body
    before = sum(client.answers for client in clients)
    eventually(lambda: sum(client.answers for client in clients) > before + 100, 60)
    assert [client.wrong for client in clients] == [[], []], site.log.read_text()
    assert sum(client.hits for client in clients) > before // 2
    everybody = seen | site.workers() | set().union(*(client.pids for client in clients))
    assert site.end() == 0, site.log.read_text()
    # Whoever was orphaned at the end is reaped by somebody else.
    eventually(lambda: not [pid for pid in everybody if is_ours(pid, site)])


def kill_one(site: Site, eventually: Eventually) -> set[int]:
    """Kills a worker and waits until another is in its place; all that were there."""
    workers: set[int] = set()
    eventually(lambda: workers.update(site.workers()) or workers, 60)
    victim = random.choice(sorted(workers))
    # It may have served its --max-requests and be gone just now.
    with contextlib.suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)
    eventually(lambda: victim not in site.workers() and len(site.workers()) >= WORKERS, 60)
    return workers


def is_ours(pid: int, site: Site) -> bool:
    """Whether a process of the site's session still runs under that id."""
    try:
        return os.getsid(pid) == site.process.pid
    except ProcessLookupError:
        return False
