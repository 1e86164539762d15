"""A ``/dev/shm`` of 64 MB, as Docker has it: caches that were given no size share it."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from .beside import PRELUDE, need_namespaces, run

DOCKER = "mount -t tmpfs -o size=64m none /dev/shm"
MIB = 1 << 20
CACHES = """
import logging
from django.conf import settings
logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stdout)
SHM = "nearcache.backends.SharedMemoryCache"
def use(**options):
    names = ("default", "sessions", "pages", "more")
    entries = {name: {"BACKEND": SHM, "LOCATION": name, "OPTIONS": options} for name in names}
    settings.configure(CACHES=entries, BASE_DIR="/srv/mysite")
    import django
    django.setup()
    from django.core.cache import caches
    return caches
"""


@pytest.fixture(autouse=True)
def namespaces() -> None:
    need_namespaces()


def test_each_of_four_caches_takes_half_of_what_is_free(tmp_path: Path) -> None:
    code = """
    caches = use()
    for alias in caches:
        caches[alias].set("a", alias)
    print(*(caches[alias].get("a") for alias in caches))
    print(*(caches[alias].engine.size_bytes for alias in caches))
    """
    values, sizes = run(CACHES + dedent(code), tmp_path, mount=DOCKER).splitlines()
    assert values == "default sessions pages more"
    found = [int(size) for size in sizes.split()]
    assert all(MIB < size <= half * MIB for size, half in zip(found, (32, 16, 8, 4), strict=True))
    assert found[0] > 31 * MIB


def test_processes_that_begin_at_once_come_to_one_size_and_say_nothing(tmp_path: Path) -> None:
    """Whoever comes later finds less room than who made the file."""
    worker = """
    caches = use()
    for alias in caches:
        caches[alias].set(sys.argv[2], 1)
    sizes = {alias: caches[alias].engine.size_bytes for alias in caches}
    print(sizes, flush=True)
    sys.stdin.read()  # it is in use until all are there
    """
    text = CACHES + dedent(worker)
    starter = f"""
    import subprocess
    command = [sys.executable, "-c", {PRELUDE + text!r}, sys.argv[1]]
    workers = [
        subprocess.Popen([*command, str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for n in range(4)
    ]
    first = [worker.stdout.readline() for worker in workers]
    for worker, line in zip(workers, first):
        print((line + worker.communicate()[0]).decode().strip())
        assert worker.returncode == 0
    """
    said = run(starter, tmp_path, mount=DOCKER).splitlines()
    assert len(said) == 4, said
    assert len(set(said)) == 1, said


def test_a_size_that_does_not_fit_is_said_by_check_with_what_to_write(tmp_path: Path) -> None:
    code = """
    caches = use(size="24MB")
    from nearcache.integrations.system_checks import check_caches
    for each in check_caches():
        print(each.id, each.msg)
    """
    said = run(CACHES + dedent(code), tmp_path, mount=DOCKER).splitlines()
    assert len(said) == 2, said
    for line, alias in zip(said, ("pages", "more"), strict=True):
        assert line.startswith(f"nearcache.E001 the cache '{alias}' cannot be used: ")
        assert "no room for 24 MiB (15 MiB are free there)" in line
        assert 'write OPTIONS "size": "15MB" or less' in line
        assert "--shm-size" in line
