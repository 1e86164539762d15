"""Directories that live as long as the process that made them; what a killed one left is removed.

Each is locked (``flock``) by a descriptor of its maker, which forked children have as well. The
kernel gives the lock up with the last of them; whoever makes the next directory of that kind
removes those that nobody locks. No process id is asked: it means nothing in another container
that has the same directory mounted.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_kept: dict[str, int] = {}  # descriptors, by directory


def living_directory(prefix: str, parent: Path, name: str = "") -> Path:
    """A new directory ``<parent>/<prefix><name><random>`` of mode 0700.

    First those of the same prefix and user go that nobody has any more.

    Raises:
        OSError: it cannot be made.
    """
    for old in parent.glob(f"{prefix}*"):
        _remove_if_dead(old)
    for path in [each for each in _kept if not os.path.isdir(each)]:
        os.close(_kept.pop(path))
    while True:
        path = tempfile.mkdtemp(prefix=prefix + name, dir=parent)
        if _lock(path):
            return Path(path)


def _lock(path: str) -> bool:
    """False if another process began just now, and took this directory for dead."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return False
    with contextlib.suppress(OSError):  # no locks on this file system: nobody finds it dead either
        fcntl.flock(lock, fcntl.LOCK_SH)
    if not os.path.isdir(path):
        os.close(lock)
        return False
    _kept[path] = lock
    return True


def _remove_if_dead(path: Path) -> None:
    with contextlib.suppress(OSError):  # another's, gone meanwhile, or alive
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(lock).st_uid == os.geteuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)
