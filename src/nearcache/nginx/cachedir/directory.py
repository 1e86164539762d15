"""The directory of an nginx cache: its entries, read while nginx works in it.

Files come and go underneath: what vanishes between listing and opening is counted as
vanished, not reported as an error. Links are never followed, ``temp`` is nginx's own,
and what is no cache entry is counted with its reason. Nothing here writes.

A walk holds one descriptor and one block of names for each level, however many files
there are: a cache without ``levels`` may have a million in one directory. So entries come
in the order of the file system.
"""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Self

from nearcache.errors import NginxError, NotACacheFile
from nearcache.nginx.cachedir.cachefile import NAME, TEMPORARY, CacheFile, open_entry, read_open
from nearcache.nginx.keys.paths import name_of, path_of

LEVEL_NAME = re.compile(r"[0-9a-f]{1,2}")
OFFSETS = re.compile(r"\d{3,}")  # each would be a reason of its own
DEEPEST = 3
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NOT_OURS = (
    "may not be read or written by this user; run this as that of nginx's workers, or as root"
)
LOOKS_AT = 200  # entries, to find out how the directory is laid out

ReadEntry = Callable[[int, str], CacheFile | None]
"""From an open descriptor and the name to the entry, as :func:`cachefile.read_open`; None for one
that the caller does not want."""

Enter = Callable[[int, str], None]
"""Is given each directory (descriptor, and path below the root) right before it is listed."""


@dataclass
class Census:
    """What a walk met besides entries. Counts are files."""

    entries: int = 0
    temporary: int = 0
    vanished: int = 0
    unreadable: int = 0
    foreign: Counter[str] = field(default_factory=Counter)  # why it is no entry -> how many

    def to_json(self) -> dict[str, Any]:
        # asdict() would make a Counter anew, of its pairs, and count these.
        return vars(self) | {"foreign": dict(self.foreign.most_common())}


@dataclass(frozen=True)
class Found:
    """One entry and where it was: ``folder`` is relative to the root."""

    entry: CacheFile
    folder: str

    @property
    def path(self) -> str:
        return joined(self.folder, self.entry.name)


class CacheDir:
    """One cache directory, held open, so that a rename of it cannot lead elsewhere.

    Use as a context manager.
    """

    def __init__(self, root: Path, *, follow: bool = True) -> None:
        """
        Args:
            follow: whether ``root`` itself may be a link. What writes must not: a link can be
                turned elsewhere by whoever may write beside it.
        """
        self.root = root
        try:
            self.descriptor = os.open(root, FOLDER & ~os.O_NOFOLLOW if follow else FOLDER)
        except FileNotFoundError:
            raise NginxError(f"{root} does not exist; give the path of *_cache_path") from None
        except PermissionError:
            raise NginxError(
                f"{root} may not be read by this user; nginx keeps it for its workers: "
                "run this as their user or as root"
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            if not follow and root.is_symlink():
                raise NginxError(
                    f"{root} is a link, and nothing is purged through one; "
                    f"if it is right, give {root.resolve()}"
                ) from None
            raise NginxError(f"{root} is not a directory; give the path of *_cache_path") from None
        self.owner = os.fstat(self.descriptor).st_uid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self.descriptor)

    def walk(
        self,
        census: Census | None = None,
        read: ReadEntry = read_open,
        *,
        below: str = "",
        enter: Enter | None = None,
    ) -> Iterator[Found]:
        """Every entry there is. ``census`` is filled while it goes.

        Args:
            below: a directory below the root, to walk only that. Raises as :meth:`open_folder`.
        """
        counted = census if census is not None else Census()
        beginning = self.open_folder(below)
        try:
            # Opened anew: a duplicate would share its place in the list with every other walk.
            root = os.open(".", FOLDER, dir_fd=beginning)
        finally:
            os.close(beginning)
        try:
            yield from self._walk(root, below, counted, read, enter)
        finally:
            os.close(root)

    def levels(self) -> tuple[int, ...] | None:
        """The ``levels`` by which most of the first entries lie; None if there is no entry."""
        seen = Counter(levels_of(found.folder) for found in islice(self.walk(), LOOKS_AT))
        return seen.most_common(1)[0][0] if seen else None

    def read(self, folder: str, name: str) -> CacheFile:
        """One entry by its place. Raises as :func:`cachefile.read` does."""
        descriptor = self.open(folder, name)
        try:
            return read_open(descriptor, name)
        finally:
            os.close(descriptor)

    def open(self, folder: str, name: str, *, writing: bool = False) -> int:
        """A descriptor of one entry; no part of its path may be a link."""
        directory = self.open_folder(folder)
        try:
            return open_entry(directory, name, writing=writing)
        finally:
            os.close(directory)

    def open_folder(self, folder: str) -> int:
        """A descriptor of a directory below the root, opened level by level without links.

        Raises NotACacheFile where there is one, OSError for what has gone or may not be read.
        """
        current = os.dup(self.descriptor)
        for part in filter(None, folder.split("/")):
            try:
                below = os.open(part, FOLDER, dir_fd=current)
            except OSError as error:
                if error.errno in (errno.ENOTDIR, errno.ELOOP):
                    raise NotACacheFile(folder, "a link or a file stands for a level") from error
                raise
            finally:
                os.close(current)
            current = below
        return current

    def find(self, key: bytes, levels: Sequence[int]) -> Found | None:
        """The main entry of a key without a walk; None if it is not stored.

        Raises NotACacheFile if something else is in its place, NginxError if it may not be read.
        """
        name = name_of(key)
        folder = str(path_of(name, levels).parent)
        folder = "" if folder == "." else folder
        try:
            return Found(self.read(folder, name), folder)
        except FileNotFoundError:
            return None
        except PermissionError:
            raise NginxError(f"{path_of(name, levels)} {NOT_OURS}") from None

    def has(self, key: bytes, levels: Sequence[int]) -> bool:
        """Is there something in the place of a key? What is no entry a purge will refuse."""
        try:
            return self.find(key, levels) is not None
        except NotACacheFile:
            return True

    def _walk(
        self, directory: int, folder: str, census: Census, read: ReadEntry, enter: Enter | None
    ) -> Iterator[Found]:
        if enter:
            enter(directory, folder)
        try:
            listed = os.scandir(directory)
        except OSError:
            census.unreadable += 1
            return
        with listed:
            for item in self._items(listed, census):
                if item.is_dir(follow_symlinks=False):
                    yield from self._descend(directory, folder, item.name, census, read, enter)
                else:
                    entry = self._look(directory, item.name, census, read)
                    if entry:
                        yield Found(entry, folder)

    def _items(
        self, listed: Iterator[os.DirEntry[str]], census: Census
    ) -> Iterator[os.DirEntry[str]]:
        try:
            yield from listed
        except OSError:
            # The directory went away, or the disk did: what it did not list is not known.
            census.unreadable += 1

    def _descend(
        self,
        directory: int,
        folder: str,
        name: str,
        census: Census,
        read: ReadEntry,
        enter: Enter | None,
    ) -> Iterator[Found]:
        if not is_level(folder, name):
            if name != "temp":
                census.foreign["a directory that is no level of a cache"] += 1
            return
        try:
            below = os.open(name, FOLDER, dir_fd=directory)
        except FileNotFoundError:
            census.vanished += 1
            return
        except OSError:
            census.unreadable += 1
            return
        try:
            yield from self._walk(below, joined(folder, name), census, read, enter)
        finally:
            os.close(below)

    def _look(self, directory: int, name: str, census: Census, read: ReadEntry) -> CacheFile | None:
        if TEMPORARY.fullmatch(name):
            census.temporary += 1
            return None
        if not NAME.fullmatch(name):
            census.foreign["its name is not 32 hexadecimal digits"] += 1
            return None
        try:
            descriptor = open_entry(directory, name)
            try:
                entry = read(descriptor, name)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            census.vanished += 1
        except NotACacheFile as foreign:
            census.foreign[OFFSETS.sub("N", foreign.reason)] += 1
        except OSError:
            census.unreadable += 1
        else:
            census.entries += 1
            return entry
        return None


def is_level(folder: str, name: str) -> bool:
    """Is a directory of this name, in this folder, one that nginx keeps entries in?"""
    return bool(LEVEL_NAME.fullmatch(name)) and folder.count("/") + bool(folder) < DEEPEST


def joined(folder: str, name: str) -> str:
    """The path below the root of what lies in a folder."""
    return f"{folder}/{name}" if folder else name


def levels_of(folder: str) -> tuple[int, ...]:
    """The ``levels`` that put an entry into this folder."""
    return tuple(len(part) for part in folder.split("/") if part)
