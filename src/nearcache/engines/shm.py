"""Shared memory: one mapped file per cache, for all processes of this user on this host.

The store itself is native, and satisfies :class:`~nearcache.engines.contract.Engine` as it is. This
module decides what comes before: which file, in which directory, of which size.

    name "default"    <directory>/<project>.default.v<layout>.seg, .lock and .owners
    "/run/app/pages"  /run/app/pages.v<layout>.seg, .lock and .owners

:mod:`nearcache.django_cache.placement.project` names the project. ``.owners`` says who has used the
file, in a line of JSON each, for people and for ``manage.py check``.

The directory is /dev/shm/nearcache-<uid> on Linux, where files are memory, and
$TMPDIR/nearcache-<uid> elsewhere. Only its owner may enter it: values may be pickles, so a user who
can write the file can run code in the processes that read it.

A process that becomes another user's (``gunicorn --user`` started by root) goes over to that user's
file at its next use. The native module notices, and asks :class:`Home` where that file is.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from nearcache import _core
from nearcache.base.options import MIB
from nearcache.base.per_process import once
from nearcache.errors import RegionError

logger = logging.getLogger("nearcache.shm")

TMPFS = "/dev/shm"  # noqa: S108 - the directory in it is private, and checked
DEFAULT_SIZE_BYTES = 256 * MIB
LEAST_MEAN_ITEM_BYTES = 64  # the core refuses less
SUFFIX = f".v{_core.LAYOUT_VERSION}.seg"
LOCK_SUFFIX = ".lock"
OWNERS_SUFFIX = ".owners"
DATA_FILE = re.compile(r"(.+)\.v[0-9]+\.seg")
"""A file that holds items, of whatever layout."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


def default_directory() -> Path:
    """Where caches with a plain name live."""
    parent = Path(TMPFS) if sys.platform == "linux" else Path(tempfile.gettempdir())
    return parent / f"nearcache-{os.geteuid()}"


def location(value: Any) -> str:
    """A parser of ``LOCATION``: a name, or an absolute path as text or as a Path."""
    if not isinstance(value, str | PurePath):
        raise ValueError(f"is a {type(value).__name__}; write a name, or an absolute path")
    text = str(value)
    if os.path.isabs(text):
        if text.endswith("/"):
            raise ValueError(f"is {text!r}, a directory; add the name of a file in it")
        return text
    if isinstance(value, PurePath) or not _NAME.fullmatch(text):
        raise ValueError(
            f"is {text!r}; write a name of letters, digits, '.', '_' and '-', or an absolute path"
        )
    return text


def base_path(location: str, project: str) -> str:
    """The path of a cache's files without their suffixes; names belong to a project."""
    if os.path.isabs(location):
        return location
    return str(default_directory() / f"{project}.{location}")


def base_path_in(directory: Path, location: str) -> str:
    """:func:`base_path` with all files in that directory, also where ``location`` is a path."""
    if not os.path.isabs(location):
        return str(directory / location)
    digest = hashlib.sha256(location.encode(errors="surrogateescape")).hexdigest()[:16]
    return str(directory / f"path-{digest}")


def data_path(base: str) -> Path:
    """The file that holds the items."""
    return Path(base + SUFFIX)


def bases_in(directory: Path) -> list[str]:
    """The base paths of the caches whose files lie there, of whatever layout."""
    names = sorted(each.name for each in directory.glob("*.seg"))
    found = (DATA_FILE.fullmatch(name) for name in names)
    return list(dict.fromkeys(str(directory / match[1]) for match in found if match))


@dataclass(frozen=True)
class Home:
    """Where a cache is, for the user that this process runs as when the store asks.

    ``location`` is a path, or a name that belongs to ``project``. With ``directory`` all files are
    in that directory. ``owner`` is what the file's note says of this process, as (name, value).
    """

    location: str
    project: str = ""
    directory: Path | None = None
    size_bytes: int | None = None
    owner: tuple[tuple[str, str], ...] = ()

    @property
    def base(self) -> str:
        """The path without suffixes, for the user that this process runs as now."""
        if self.directory is not None:
            return base_path_in(self.directory, self.location)
        return base_path(self.location, self.project)

    def find(self) -> str:
        base = self.base
        _make_private_directory(Path(base).parent)
        return base

    def opened(self, base: str, path: str, created: bool, notice: str | None) -> None:
        """Logs the store's notice, and notes who uses the file."""
        if notice:
            logger.warning("%s: %s", path, notice)
        if self.owner:
            note_owner(base, dict(self.owner), created)


def open_store(home: Home, **tuning: int | None) -> _core.Store:
    """The store of that file, which is made if it is not there. Mapped once per process.

    ``tuning`` are further arguments of ``Store``; None stands for the default of each.
    """
    given = {name: value for name, value in tuning.items() if value is not None}
    made: list[tuple[str, _core.Store]] = []

    def make() -> _core.Store:
        made.append(_open(home, given))
        return made[-1][1]

    store = once(("shm", home, *sorted(given.items())), make)
    for base, new in made:  # not inside of `once`: it logs
        home.opened(base, new.path, new.created, new.notice)
    return store


def open_existing(base: str) -> _core.Store:
    """The store that is there, with its own settings. Raises RegionError if there is none."""
    if not data_path(base).exists():
        raise RegionError(f"{data_path(base)} is not there; `nearcache shm list` shows what is")
    return _core.Store.existing(base)


def _open(home: Home, tuning: dict[str, Any]) -> tuple[str, _core.Store]:
    size_bytes = home.size_bytes
    if not size_bytes:
        size_bytes, tuning = DEFAULT_SIZE_BYTES, {"or_less": True, **tuning}
    try:
        base = home.find()
        return base, _core.Store(base, size_bytes=size_bytes, home=home, **tuning)
    except (ValueError, OSError) as error:  # sizes that do not go together; a closed directory
        raise RegionError(f"{data_path(home.base)}: {error}") from error


def _make_private_directory(directory: Path) -> None:
    """Makes the last directory of the path if it is missing, closed to others.

    So a path may begin in a directory that others read (systemd's RuntimeDirectory, an emptyDir). A
    directory that is there stays as it is. The core refuses it if it is open to others.
    """
    above_is_there = directory == default_directory() or os.path.isdir(directory.parent)
    if os.path.lexists(directory) or not above_is_there:
        return
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise RegionError(
            f"{directory}: cannot be made ({error.strerror}); set LOCATION to an absolute path"
            " in a directory that this user owns"
        ) from error


# -- who uses a file -------------------------------------------------------------------------


def owners(base: str) -> list[dict[str, str]]:
    """The notes of those who have used this cache since its file was made."""
    try:
        lines = Path(base + OWNERS_SUFFIX).read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return [each for each in found if isinstance(each, dict)]


def note_owner(base: str, owner: dict[str, str], anew: bool) -> None:
    """Notes who uses the cache. ``anew``: earlier notes are of an older file, and go."""
    if not anew and owner in owners(base):
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (os.O_TRUNC if anew else os.O_APPEND)
    try:
        file = os.open(base + OWNERS_SUFFIX, flags, 0o600)
        with open(file, "w", errors="surrogateescape") as note:
            note.write(json.dumps(owner, sort_keys=True) + "\n")
    except OSError as error:
        # The cache works without the note; only `manage.py check` knows less.
        logger.warning("%s%s: cannot be written (%s)", base, OWNERS_SUFFIX, error.strerror)


# -- files that nobody uses ------------------------------------------------------------------


def is_used(base: str) -> bool:
    """Whether a process has this cache open."""
    if not os.path.exists(base + LOCK_SUFFIX):
        return False
    with _alone(base) as alone:
        return not alone


def remove_unused(base: str) -> bool:
    """Removes the files of a cache that nobody has open; True if they are gone."""
    with _alone(base) as alone:
        if not alone:
            return False
        directory, name = os.path.split(base)
        for path in Path(directory).iterdir():
            match = DATA_FILE.fullmatch(path.name)
            if (match and match[1] == name) or path.name == name + OWNERS_SUFFIX:
                path.unlink(missing_ok=True)
        # Last: a process that waits for the lock file sees that it is gone, and begins again.
        Path(base + LOCK_SUFFIX).unlink(missing_ok=True)
        return True


@contextlib.contextmanager
def _alone(base: str) -> Iterator[bool]:
    """Holds the bytes of the lock file that openers and users hold; False if another holds them."""
    try:
        lock = os.open(base + LOCK_SUFFIX, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        yield False
        return
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 2, 0)
    except OSError:
        yield False
    else:
        yield True
    finally:
        os.close(lock)
