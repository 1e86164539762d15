"""Both backends, as settings that a program is given; and how programs are run."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.redis.servers import Server

ROOT = Path(__file__).parents[2]
Settings = dict[str, Any]


@pytest.fixture
def redis_settings(redis_server: Server) -> Settings:
    return {
        "BACKEND": "nearcache.backends.RedisCache",
        "LOCATION": f"unix://{redis_server.path}",
        "OPTIONS": {"SOCKET_TIMEOUT": 30},  # a slow host is no fault
    }


@pytest.fixture
def shm_settings(private_path: Path) -> Settings:
    return {
        "BACKEND": "nearcache.backends.SharedMemoryCache",
        "LOCATION": str(private_path / "cache"),
        "OPTIONS": {"size": "16MB"},
    }


@pytest.fixture(params=["redis", "shm"])
def cache_settings(request: pytest.FixtureRequest) -> Settings:
    found: Settings = request.getfixturevalue(f"{request.param}_settings")
    return found


@pytest.fixture
def run() -> Callable[..., str]:
    """Runs a program that begins with ``first`` and what is in work.py; what it printed."""

    def run_it(
        cache: Settings, program: str, *arguments: str, first: str = "", then: str = ""
    ) -> str:
        parts = [f"{first}\nfrom tests.forks.work import *\n", program, then]
        text = "".join(textwrap.dedent(part) for part in parts)
        done = subprocess.run(
            # Python warns of forks beside threads: rightly.
            [sys.executable, "-W", "ignore", "-c", text, json.dumps(cache), *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    return run_it
