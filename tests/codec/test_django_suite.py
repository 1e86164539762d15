"""Django's own cache and session tests, with every kind of codec that holds any value.

The others cannot pass: the tests store functions, classes, models and responses. What of them
does not fit is refused with pickle's error, as Django demands.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nearcache.backends import SharedMemoryCache
from tests.django.sdist import ROOT, django_tests
from tests.needs import missing

OPTIONS: dict[str, dict[str, Any]] = {
    "signed zstd": {
        "serializer": "pickle",
        "compressor": "zstd",
        "compress_min": 0,
        "sign_key": "a secret of the tests",
    },
    "auto lz4": {"compressor": "lz4", "compress_min": 0},
}
BACKENDS = ["nearcache.backends.SharedMemoryCache", "tests.backends.classes.MemoryCache"]


RUNS = [(backend, name) for backend in BACKENDS for name in OPTIONS]


@pytest.fixture(scope="module")
def runs(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[tuple[str, str], subprocess.Popen[str]]]:
    """All at once: they spend most of their time waiting for one-second timeouts."""
    try:
        suite = django_tests()
    except RuntimeError as error:
        missing(f"Django's own suite. {error}")
    directory = tmp_path_factory.mktemp("suite", numbered=True)
    directory.chmod(0o700)
    started = {run: _start(*run, suite, directory / str(at)) for at, run in enumerate(RUNS)}
    yield started
    for process in started.values():
        process.kill()
        process.communicate()


def _start(backend: str, name: str, suite: Path, location: Path) -> subprocess.Popen[str]:
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "tests.codec.suite_settings",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(suite), os.environ.get("PYTHONPATH", "")]),
        "NEARCACHE_TEST_BACKEND": backend,
        "NEARCACHE_TEST_LOCATION": str(location),
        "NEARCACHE_TEST_OPTIONS": json.dumps(OPTIONS[name]),
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


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run[0].rpartition('.')[2]}-{run[1]}")
def test_django_s_own_suite_passes(
    run: tuple[str, str], runs: dict[tuple[str, str], subprocess.Popen[str]]
) -> None:
    output, _ = runs[run].communicate(timeout=300)
    assert runs[run].returncode == 0, output[-8000:]


@pytest.mark.parametrize("serializer", ["exact", "json", "ujson", "msgpack"])
def test_a_value_that_does_not_fit_is_pickle_s_error(serializer: str, private_path: Path) -> None:
    options = {"OPTIONS": {"size": "4MB", "serializer": serializer}}
    cache = SharedMemoryCache(str(private_path / "c"), options)
    for write in (cache.set, cache.add):
        with pytest.raises(pickle.PickleError):
            write("k", object())
        with pytest.raises(TypeError):
            write("k", print)
    assert cache.get("k", "missed") == "missed"
