"""Django's cache and session tests pass on every backend, sync and through ``a*``.

Each run is a process of Django's own test runner; that of Redis forks one per cell. All run
side by side: they spend most of their time waiting for one-second timeouts.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.django.sdist import ROOT, django_tests
from tests.needs import missing
from tests.redis.cluster_servers import running_cluster
from tests.redis.servers import running

BACKENDS = [
    "nearcache.backends.SharedMemoryCache",
    "tests.backends.classes.PlainSharedMemoryCache",
    "tests.backends.classes.MemoryCache",
    "tests.django.through_async.FusedThroughAsync",
    "tests.django.through_async.PlainThroughAsync",
    "tests.django.through_async.MemoryThroughAsync",
    "tests.django.through_recording.RecordedMemory",
    "tests.django.through_recording.RecordedMemoryThroughAsync",
]


@pytest.fixture(scope="module")
def runs(
    tmp_path_factory: pytest.TempPathFactory, redis_directory: Path
) -> Iterator[dict[str, subprocess.Popen[str]]]:
    try:
        suite = django_tests()
    except RuntimeError as error:
        missing(f"Django's own suite. {error}")
    directory = tmp_path_factory.mktemp("suite", numbered=True)
    directory.chmod(0o700)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running(redis_directory, "--databases", "100"))
        cluster = stack.enter_context(running_cluster(redis_directory))
        nodes = ",".join(map(str, cluster.addresses))
        places = {"path": server.path, "cluster": f"redis+cluster://{nodes}"}
        started = {name: _start(name, suite, directory) for name in BACKENDS}
        started["redis"] = _start(
            "nearcache.backends.RedisCache",
            suite,
            directory,
            command=["-m", "tests.django.side_by_side", "tests.django.redis_suite"],
            NEARCACHE_TEST_PLACES=json.dumps(places),
            NEARCACHE_TEST_LOCATION=f"unix://{server.path}",
        )
        yield started
        for process in started.values():
            process.kill()
            process.communicate()


def _start(
    backend: str,
    suite: Path,
    directory: Path,
    command: Sequence[str] = ("-m", "django", "test", "--noinput", "tests.django.suite"),
    **more: str,
) -> subprocess.Popen[str]:
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "tests.django.suite_settings",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(suite), os.environ.get("PYTHONPATH", "")]),
        "NEARCACHE_TEST_BACKEND": backend,
        "NEARCACHE_TEST_LOCATION": str(directory / backend.rpartition(".")[2]),
        **more,
    }
    return subprocess.Popen(
        [sys.executable, *command],
        env=environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("backend", [*BACKENDS, "redis"])
def test_django_s_own_suite_passes(backend: str, runs: dict[str, subprocess.Popen[str]]) -> None:
    output, _ = runs[backend].communicate(timeout=300)
    assert runs[backend].returncode == 0, output[-8000:]
    assert "skipped" not in output, output[-2000:]
    # 54 in BaseCacheTests of Django 5.2, less the three about culling; in each cell.
    counts = [int(count) for count in re.findall(r"Ran (\d+) tests", output)]
    assert sum(counts) > (22 * 51 if backend == "redis" else 51), output[-2000:]
