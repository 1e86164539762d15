"""Processes beside the test's, in surroundings of their own: another clock, another ``/proc``.

Not here: servers (tests/redis/servers.py).
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.needs import missing, need

HANGS_S = 120
"""Longer than anything here takes on a busy machine: who takes as long hangs."""
SIZE_BYTES = 1 << 20

PRELUDE = f"""
import ctypes, os, resource, sys
from nearcache import _core
from nearcache.errors import NearcacheError
LOCK, TTL_MS = b"lock", 600_000
def opened():
    return _core.Store(sys.argv[1], size_bytes={SIZE_BYTES})
def leave_no_descriptor():
    free = os.dup(0)
    os.close(free)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
def detach_proc():
    libc = ctypes.CDLL(None, use_errno=True)
    CLONE_NEWNS, MS_REC_PRIVATE, MNT_DETACH = 0x20000, 0x44000, 2
    assert libc.unshare(CLONE_NEWNS) == 0, ctypes.get_errno()
    assert libc.mount(b"none", b"/", None, MS_REC_PRIVATE, None) == 0, ctypes.get_errno()
    assert libc.umount2(b"/proc", MNT_DETACH) == 0, ctypes.get_errno()
"""


def need_namespaces(unshare: str = "") -> None:
    """Namespaces of a process's own, in which something can be mounted, can be made here."""
    need("unshare", "mount", "nsenter")
    made = subprocess.run(
        ["unshare", "--mount", *unshare.split(), "mount", "-t", "tmpfs", "none", "/mnt"],
        capture_output=True,
        check=False,
    )
    if made.returncode != 0:
        missing(f"namespaces cannot be made here ({made.stderr.decode().strip()})")


def command(code: str, base: Path, *, mount: str = "", unshare: str = "--mount") -> list[str]:
    """Runs ``code`` after ``mount``, shell commands that only it sees the effect of."""
    python = [sys.executable, "-c", PRELUDE + textwrap.dedent(code), str(base)]
    if not mount:
        return python
    return ["unshare", *unshare.split(), "sh", "-ec", f"{mount}; exec {shlex.join(python)}"]


def run(code: str, base: Path, *, mount: str = "", unshare: str = "--mount", **env: str) -> str:
    """What it printed; it must end well, and in time."""
    done = subprocess.run(
        command(code, base, mount=mount, unshare=unshare),
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
        env={**os.environ, **env},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


SHIFTED_CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *at) {
  int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
  int status = real(clock, at);
  const char *shift = getenv("WALL_CLOCK_SHIFT_S");
  if (shift && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    at->tv_sec += atol(shift);
  return status;
}
"""


@pytest.fixture(scope="session")
def shifted_clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library to preload: the wall clock of a process, so many seconds off."""
    need("cc")
    directory = tmp_path_factory.mktemp("clock")
    source, library = directory / "clock.c", directory / "clock.so"
    source.write_text(SHIFTED_CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library
