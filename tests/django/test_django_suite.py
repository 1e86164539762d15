"""Django's cache and session tests pass on every backend and codec, sync and through ``a*``.

Codecs are those that hold all the tests store: functions, classes, models and responses.
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
from typing import Any

import pytest

from tests.django.sdist import ROOT, django_tests
from tests.needs import missing
from tests.redis.cluster_servers import running_cluster
from tests.redis.servers import running

SHARED_MEMORY = "nearcache.backends.SharedMemoryCache"
MEMORY = "tests.backends.classes.MemoryCache"
AUTO_LZ4 = {"compressor": "lz4", "compress_min": 0}
SIGNED_ZSTD = {
    "serializer": "pickle",
    "compressor": "zstd",
    "compress_min": 0,
    "sign_key": "a secret of the tests",
}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "shared memory": (SHARED_MEMORY, {}),
    "shared memory, signed zstd": (SHARED_MEMORY, SIGNED_ZSTD),
    "shared memory, lz4": (SHARED_MEMORY, AUTO_LZ4),
    "shared memory, not fused": ("tests.backends.classes.PlainSharedMemoryCache", {}),
    "memory": (MEMORY, {}),
    "memory, signed zstd": (MEMORY, SIGNED_ZSTD),
    "memory, lz4": (MEMORY, AUTO_LZ4),
    "shared memory, awaited": ("tests.django.through_async.FusedThroughAsync", {}),
    "shared memory, not fused, awaited": ("tests.django.through_async.PlainThroughAsync", {}),
    "memory, awaited": ("tests.django.through_async.MemoryThroughAsync", {}),
    "recorded": ("tests.django.through_recording.RecordedMemory", {}),
    "recorded, awaited": ("tests.django.through_recording.RecordedMemoryThroughAsync", {}),
}


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
        cluster.wait_for_the_slow()
        nodes = ",".join(map(str, cluster.addresses))
        places = {"path": server.path, "cluster": f"redis+cluster://{nodes}"}
        started = {
            name: _start(suite, backend, str(directory / str(number)), options)
            for number, (name, (backend, options)) in enumerate(RUNS.items())
        }
        started["redis"] = _start(
            suite,
            "nearcache.backends.RedisCache",
            f"unix://{server.path}",
            command=["-m", "tests.django.side_by_side", "tests.django.redis_suite"],
            NEARCACHE_TEST_PLACES=json.dumps(places),
        )
        yield started
        for process in started.values():
            process.kill()
            process.communicate()


def _start(
    suite: Path,
    backend: str,
    location: str,
    options: dict[str, Any] | None = None,
    command: Sequence[str] = ("-m", "django", "test", "--noinput", "tests.django.suite"),
    **more: str,
) -> subprocess.Popen[str]:
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "tests.django.suite_settings",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(suite), os.environ.get("PYTHONPATH", "")]),
        "NEARCACHE_TEST_BACKEND": backend,
        "NEARCACHE_TEST_LOCATION": location,
        "NEARCACHE_TEST_OPTIONS": json.dumps(options or {}),
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


@pytest.mark.parametrize("run", [*RUNS, "redis"])
def test_django_s_own_suite_passes(run: str, runs: dict[str, subprocess.Popen[str]]) -> None:
    output, _ = runs[run].communicate(timeout=600)
    assert runs[run].returncode == 0, output[-8000:]
    assert "skipped" not in output, output[-2000:]
    # 54 in BaseCacheTests of Django 5.2, less the three about culling; in each cell.
    counts = [int(count) for count in re.findall(r"Ran (\d+) tests", output)]
    assert sum(counts) > (22 * 51 if run == "redis" else 51), output[-2000:]
