"""Places in memory, and processes that end with their test however it ends."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nearcache.backends import SharedMemoryCache

Start = Callable[..., "subprocess.Popen[str]"]

SIZE = "8MB"
PRELUDE = f"""
import os, random, signal, sys, threading, time
from nearcache.backends import SharedMemoryCache
from tests.torture import values
from tests.patience import again
def open_cache():
    return SharedMemoryCache(sys.argv[1], {{"OPTIONS": {{"size": "{SIZE}"}}}})
"""


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """A private directory in memory."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="nearcache-torture-", dir=memory if memory.is_dir() else None
    ) as directory:
        yield Path(directory)


@pytest.fixture
def location(memory_path: Path) -> str:
    return str(memory_path / "cache")


@pytest.fixture
def cache(location: str) -> SharedMemoryCache:
    return SharedMemoryCache(location, {"OPTIONS": {"size": SIZE}})


@pytest.fixture
def start(location: str) -> Iterator[Start]:
    """Starts a Python process that has ``open_cache()``; it is killed at the end of the test."""
    started: list[subprocess.Popen[str]] = []

    def start_one(code: str, *more: str) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", PRELUDE + textwrap.dedent(code), location, *more],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield start_one
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def run(start: Start) -> Callable[..., str]:
    """What such a process printed; it must end well."""

    def run_one(code: str, *more: str, seconds: float = 300) -> str:
        process = start(code, *more)
        out, err = process.communicate(timeout=seconds)
        assert process.returncode == 0, f"ended with {process.returncode}: {err}"
        return out.strip()

    return run_one


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def owner_deaths(cache: Any) -> int:
    return cache.engine.stats()["owner_deaths"]
