"""Directories that live as long as the process that made them, and its forked children.

Each directory is locked (``flock``) by a descriptor of its maker. Forked children have that
descriptor, too. The kernel gives the lock up when the last of these processes has ended, killed or
not. The process that makes the next directory of that kind removes those that nobody locks. Process
ids are not asked: they mean nothing in another container that has the same directory mounted.
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

    Before that, directories of the same prefix and user that nobody has any more are removed.

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
    """False if another process took this directory for dead, and removed it, just now."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return False
    with contextlib.suppress(OSError):  # a file system without locks: nobody finds it dead there
        fcntl.flock(lock, fcntl.LOCK_SH)
    if not os.path.isdir(path):
        os.close(lock)
        return False
    _kept[path] = lock
    return True


def _remove_if_dead(path: Path) -> None:
    with contextlib.suppress(OSError):  # another user's, or gone meanwhile, or alive
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(lock).st_uid == os.geteuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)
