"""Runs the tests of ``inside/``, each file in a project of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import need, need_package

ROOT = Path(__file__).parents[2]
FILES = sorted((Path(__file__).parent / "inside").glob("of_*.py"))
HANGS_S = 600


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_others_build_on_caches_works(path: Path) -> None:
    need("redis-server")
    need_package("debug_toolbar", "rest_framework", "django_ratelimit", "pydantic")
    settings = {"DJANGO_SETTINGS_MODULE": "tests.integrations.settings"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)],
        cwd=ROOT,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed, "it has run nothing"
