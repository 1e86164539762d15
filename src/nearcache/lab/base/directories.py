"""Where the lab puts its files, and what it is that they then lie on.

A run works in shared memory, where files cost no disk. What is about disks (a database
that promises durability, the ``disks`` experiment) gets a directory on a real one,
because an fsync of tmpfs is free and proves nothing.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nearcache.base.living_directories import living_directory

PREFIX = "nearcache-lab-"
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - mkdtemp makes a private directory in it
IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})


@dataclass(frozen=True)
class Mount:
    """What a path lies on."""

    point: str
    filesystem: str  # ext4, tmpfs, overlay, nfs4 ...
    source: str  # what is mounted: /dev/vda, tmpfs, server:/export
    options: str
    device: int  # st_dev: equal for two paths that lie on the same

    @property
    def in_memory(self) -> bool:
        return self.filesystem in IN_MEMORY

    def __str__(self) -> str:
        where = f"{self.source} at {self.point}" if self.source != self.filesystem else self.point
        return f"{self.filesystem} ({where})"


def private_directory(parent: Path | None = None) -> Path:
    """A new directory of this process, where files cost no disk if there is such a place.

    What a run that was killed outright has left behind goes first.
    """
    return living_directory(PREFIX, parent or memory_parent(), f"{os.getpid()}-")


def memory_parent() -> Path:
    return Path(SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else tempfile.gettempdir())


def disk_parent() -> Path:
    """A directory for files that must lie on a disk; TMPDIR chooses another.

    If no usual place is one, then the first of them: whoever measures says on what.
    """
    usual = [Path(tempfile.gettempdir()), Path("/var/tmp"), Path.cwd()]  # noqa: S108 - as above
    usable = [path for path in usual if os.access(path, os.W_OK | os.X_OK)]
    return next((path for path in usable if not mount_of(path).in_memory), usual[0])


def mount_of(path: Path) -> Mount:
    """The mount that ``path`` (which exists) lies on, by the kernel's own list."""
    device = path.stat().st_dev
    wanted = path.resolve()
    best = Mount("/", "unknown file system", "unknown", "", device)
    for line in _mount_lines():
        point, filesystem, source, options = _parse(line)
        # The last line wins among equals: what is mounted over another hides it.
        if wanted.is_relative_to(point) and len(point) >= len(best.point):
            best = Mount(point, filesystem, source, options, device)
    return best


def _mount_lines() -> Sequence[str]:
    with suppress(OSError):
        return Path("/proc/self/mountinfo").read_text().splitlines()
    return ()


def _parse(line: str) -> tuple[str, str, str, str]:
    """(mount point, file system, source, options); see proc_pid_mountinfo(5)."""
    left, _, right = line.partition(" - ")
    fields, (filesystem, source, *_) = left.split(), right.split()
    return _unescape(fields[4]), filesystem, _unescape(source), fields[5]


def _unescape(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text
