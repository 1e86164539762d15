"""Fixtures that every part of the test suite may use."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

import django
from hypothesis import HealthCheck, settings

from nearcache.django_cache.placement import test_run
from nearcache.engines.shm import OWNERS_SUFFIX, default_directory
from tests.needs import missing
from tests.redis.cluster_servers import ClusterServers, running_cluster
from tests.redis.servers import Server, installed, running

django.setup()
# What the caller's terminal is like is not the tests' business, nor of what they start.
for name in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(name, None)
# Nor is how the caller was started: a shell ignores SIGINT and SIGQUIT for a job in the background,
# nohup SIGHUP, and what the tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
for ignored in (signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, signal.SIG_DFL)
# A busy machine is slow and no fault: Hypothesis makes its table of characters inside the
# first test of a fresh clone, which takes longer than it allows a test.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")


@pytest.fixture(autouse=True)
def these_caches_are_not_of_a_test_run() -> Iterator[None]:
    """A test that makes this process a project's test run would move the caches of later ones."""
    yield
    assert not test_run.running()


@pytest.fixture
def private_path(tmp_path: Path) -> Iterator[Path]:
    """A directory only we may enter, as the store demands."""
    directory = tmp_path / "private"
    directory.mkdir(mode=0o700)
    return directory


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], None]:
    """Waits until a condition holds, and fails if it does not within a minute."""

    def wait(condition: Callable[[], object], seconds: float = 60) -> None:
        give_up_at = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < give_up_at, "it did not happen in time"
            time.sleep(0.002)

    return wait


@pytest.fixture(scope="session")
def redis_directory() -> Iterator[Path]:
    """Short: the path of a unix socket may have 107 bytes."""
    if not installed():
        missing("redis-server is not installed; `apt install redis-server`")
    directory = Path(tempfile.mkdtemp(prefix="nc-"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def one_redis(redis_directory: Path) -> Iterator[Server]:
    """One server for all tests outside tests/redis."""
    with running(redis_directory) as server:
        yield server


@pytest.fixture
def redis_server(one_redis: Server) -> Server:
    """The same, empty."""
    with one_redis.client() as client:
        client.flushall()
    return one_redis


@pytest.fixture(scope="session")
def one_cluster(redis_directory: Path) -> Iterator[ClusterServers]:
    """One cluster for all tests outside tests/redis; ``flush`` it first."""
    with running_cluster(redis_directory) as servers:
        servers.wait_for_the_slow()
        yield servers


@pytest.fixture
def projects(tmp_path: Path) -> Iterator[Path]:
    """A directory for projects; what their caches took is given back."""
    home = tmp_path / "srv"
    home.mkdir()
    yield home
    for note in default_directory().glob(f"*{OWNERS_SUFFIX}"):
        if str(home) in note.read_text():
            base = note.name.removesuffix(OWNERS_SUFFIX)
            for path in note.parent.glob(f"{base}.*"):
                path.unlink()
