"""Shared memory: one mapped file per cache, for all processes of this user on this host.

The store itself is native, and is an :class:`~nearcache.engine.Engine` as it stands. Here is
only what comes before: which file, in which directory, of which size.

    name "default"    <directory>/default.v<layout>.seg and <directory>/default.lock
    "/run/app/pages"  /run/app/pages.v<layout>.seg and /run/app/pages.lock

The directory is /dev/shm/nearcache-<uid> on Linux, where files are memory, and
$TMPDIR/nearcache-<uid> elsewhere. Only its owner may enter it: values may be pickles, so
whoever writes the file runs code in its readers.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
from pathlib import Path

from nearcache import _core
from nearcache.errors import RegionError
from nearcache.options import MIB
from nearcache.process import once

logger = logging.getLogger("nearcache.shm")

TMPFS = "/dev/shm"  # noqa: S108 - the directory in it is private, and checked
MIN_SIZE_BYTES = MIB
DEFAULT_SIZE_BYTES = 256 * MIB
SUFFIX = f".v{_core.LAYOUT_VERSION}.seg"

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


def default_directory() -> Path:
    """Where caches with a plain name live."""
    parent = Path(TMPFS) if sys.platform == "linux" else Path(tempfile.gettempdir())
    return parent / f"nearcache-{os.geteuid()}"


def base_path(location: str) -> str:
    """The path of a cache's files without their suffixes; raises ValueError."""
    if os.path.isabs(location):
        if location.endswith("/"):
            raise ValueError(f"is {location!r}, a directory; add the name of a file in it")
        return location
    if not _NAME.fullmatch(location):
        raise ValueError(
            f"is {location!r}; write a name of letters, digits, '.', '_' and '-',"
            " or an absolute path"
        )
    return str(default_directory() / location)


def data_path(base: str) -> Path:
    """The file that holds the items."""
    return Path(base + SUFFIX)


def open_store(base: str, size_bytes: int | None = None, **tuning: int | None) -> _core.Store:
    """The store at that path, made if it is not there; mapped once per process.

    ``tuning`` is what else the constructor of ``Store`` takes; None stands for its default.
    """
    given = {name: value for name, value in tuning.items() if value is not None}
    key = ("shm", base, size_bytes, *sorted(given.items()))
    return once(key, lambda: _open(base, size_bytes, given))


def open_existing(base: str) -> _core.Store:
    """A store as it is, with whatever settings it was made; raises RegionError if there is none."""
    if not data_path(base).exists():
        raise RegionError(f"{data_path(base)} is not there; `nearcache shm list` shows what is")
    return _core.Store.existing(base)


def _open(base: str, size_bytes: int | None, tuning: dict[str, int]) -> _core.Store:
    _make_private_directory(Path(base).parent)
    try:
        store = _core.Store(base, size_bytes=size_bytes or _fitting_size_bytes(base), **tuning)
    except ValueError as error:  # sizes that do not go together
        raise RegionError(f"{data_path(base)}: {error}") from error
    if store.notice:
        logger.warning("%s: %s", store.path, store.notice)
    return store


def _make_private_directory(directory: Path) -> None:
    # An absolute path may be anywhere; only our own directory is ours to make.
    if directory != default_directory():
        return
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise RegionError(
            f"{directory}: cannot be made ({error.strerror}); set LOCATION to an absolute path"
            " in a directory that this user owns"
        ) from error


def _fitting_size_bytes(base: str) -> int:
    """The size when nobody asked for one: an existing file's, else what surely fits.

    Half of the whole file system, not of what is free now: every process must come to the
    same answer. Containers often have 64 MiB of /dev/shm.
    """
    existing = data_path(base)
    if existing.exists():
        return max(MIN_SIZE_BYTES, existing.stat().st_size)
    try:
        whole = os.statvfs(Path(base).parent)
    except OSError as error:
        raise RegionError(
            f"{Path(base).parent}: {error.strerror}; make that directory, or set LOCATION to a name"
        ) from error
    return min(DEFAULT_SIZE_BYTES, whole.f_frsize * whole.f_blocks // 2)
