"""Django's cache and session tests pass on every backend, sync and through ``a*``.

Each run is a process of Django's own test runner. All run side by side: they spend most of
their time waiting for one-second timeouts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.django.sdist import ROOT, django_tests

BACKENDS = [
    "nearcache.backends.SharedMemoryCache",
    "tests.backends.classes.PlainSharedMemoryCache",
    "tests.backends.classes.MemoryCache",
    "tests.django.through_async.FusedThroughAsync",
    "tests.django.through_async.PlainThroughAsync",
    "tests.django.through_async.MemoryThroughAsync",
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, subprocess.Popen[str]]]:
    try:
        suite = django_tests()
    except RuntimeError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(f"NOT TESTED: Django's own suite. {error}")
    directory = tmp_path_factory.mktemp("suite", numbered=True)
    directory.chmod(0o700)
    started = {name: _start(name, suite, directory) for name in BACKENDS}
    yield started
    for process in started.values():
        process.kill()
        process.wait()


def _start(backend: str, suite: Path, directory: Path) -> subprocess.Popen[str]:
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "tests.django.suite_settings",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(suite), os.environ.get("PYTHONPATH", "")]),
        "NEARCACHE_TEST_BACKEND": backend,
        "NEARCACHE_TEST_LOCATION": str(directory / backend.rpartition(".")[2]),
    }
    command = [sys.executable, "-m", "django", "test", "--noinput", "tests.django.suite"]
    return subprocess.Popen(
        command,
        env=environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_django_s_own_suite_passes(backend: str, runs: dict[str, subprocess.Popen[str]]) -> None:
    output, _ = runs[backend].communicate(timeout=300)
    assert runs[backend].returncode == 0, output[-8000:]
    assert "skipped" not in output, output[-2000:]
