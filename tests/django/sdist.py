"""Fetches Django's sdist once per version: the wheel has no tests, and a copy would age."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import django

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "django"


def django_tests() -> Path:
    """The ``tests`` directory of the installed version; raises RuntimeError if out of reach."""
    version = django.get_version()
    tests = CACHE / f"django-{version}" / "tests"
    if not tests.is_dir():
        with tarfile.open(_archive(version)) as archive:
            # The filter came with 3.11.4; Debian 12 has 3.11.2.
            safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            archive.extractall(CACHE, **safely)
    return tests


def _archive(version: str) -> Path:
    archive = CACHE / f"django-{version}.tar.gz"
    if not archive.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        _download(version)
    return archive


def _download(version: str) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--no-binary", "django", "--dest", str(CACHE), f"django=={version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"Django's sdist cannot be fetched: {done.stderr.strip()[-300:]}")
