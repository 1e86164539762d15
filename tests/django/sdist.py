"""Fetches Django's sdist once per version: the wheel has no tests, and a copy would age."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import django

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "django"


def django_tests() -> Path:
    """The ``tests`` directory of the installed version; raises RuntimeError if out of reach."""
    name = f"django-{django.get_version()}"
    if not (CACHE / name / "tests").is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        # Whole at once: another run may look, and this one may be killed.
        with tempfile.TemporaryDirectory(dir=CACHE) as draft:
            _unpack(_download(Path(draft)), Path(draft))
            with contextlib.suppress(OSError):  # another run was first
                (Path(draft) / name).rename(CACHE / name)
    return CACHE / name / "tests"


def _unpack(archive: Path, where: Path) -> None:
    with tarfile.open(archive) as opened:
        # The filter came with 3.11.4; Debian 12 has 3.11.2.
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        opened.extractall(where, **safely)


def _download(where: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--retries", "5"]
    command += ["--no-binary", "django", "--dest", str(where), f"django=={django.get_version()}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"Django's sdist cannot be fetched: {done.stderr.strip()[-300:]}")
    return next(where.glob("*.tar.gz"))
