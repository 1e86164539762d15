"""The directory of an nginx cache: its entries, read while nginx works in it.

Files come and go underneath: what vanishes between listing and opening is counted as
vanished, not reported as an error. Links are never followed, ``temp`` is nginx's own,
and what is no cache entry is counted with its reason. Nothing here writes.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from nearcache.errors import NginxError, NotACacheFile
from nearcache.nginx.cachefile import NAME, TEMPORARY, CacheFile, open_entry, read_open
from nearcache.nginx.keys import name_of, path_of

LEVEL_NAME = re.compile(r"[0-9a-f]{1,2}")
DEEPEST = 3


@dataclass
class Census:
    """What a walk met besides entries. Counts are files."""

    entries: int = 0
    temporary: int = 0
    vanished: int = 0
    unreadable: int = 0
    foreign: Counter[str] = field(default_factory=Counter)  # why it is no entry -> how many


@dataclass(frozen=True)
class Found:
    """One entry and where it was: ``folder`` is relative to the root."""

    entry: CacheFile
    folder: str

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.entry.name}" if self.folder else self.entry.name


class CacheDir:
    """One cache directory, held open, so that a rename of it cannot lead elsewhere.

    Use as a context manager.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            self.descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise NginxError(f"{root} does not exist; give the path of *_cache_path") from None
        except NotADirectoryError:
            raise NginxError(f"{root} is not a directory; give the path of *_cache_path") from None
        except PermissionError:
            raise NginxError(
                f"{root} may not be read by this user; nginx keeps it for its workers: "
                "run this as their user or as root"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self.descriptor)

    def walk(self, census: Census | None = None) -> Iterator[Found]:
        """Every entry there is. ``census`` is filled while it goes."""
        counted = census if census is not None else Census()
        root = os.dup(self.descriptor)
        try:
            yield from self._walk(root, "", counted)
        finally:
            os.close(root)

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
        """A descriptor of a directory below the root, opened level by level without links."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        current = os.dup(self.descriptor)
        for part in filter(None, folder.split("/")):
            try:
                below = os.open(part, flags, dir_fd=current)
            finally:
                os.close(current)
            current = below
        return current

    def find(self, key: bytes, levels: Sequence[int]) -> Found | None:
        """The main entry of a key without a walk; None if it is not stored."""
        name = name_of(key)
        folder = str(path_of(name, levels).parent)
        folder = "" if folder == "." else folder
        try:
            return Found(self.read(folder, name), folder)
        except FileNotFoundError:
            return None

    def _walk(self, directory: int, folder: str, census: Census) -> Iterator[Found]:
        try:
            listed = sorted(os.scandir(directory), key=lambda item: item.name)
        except OSError:
            census.unreadable += 1
            return
        for item in listed:
            if item.is_dir(follow_symlinks=False):
                yield from self._descend(directory, folder, item.name, census)
            else:
                found = self._look(directory, folder, item.name, census)
                if found:
                    yield found

    def _descend(self, directory: int, folder: str, name: str, census: Census) -> Iterator[Found]:
        depth = folder.count("/") + bool(folder) + 1
        if not LEVEL_NAME.fullmatch(name) or depth > DEEPEST:
            if name != "temp":
                census.foreign["a directory that is no level of a cache"] += 1
            return
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            below = os.open(name, flags, dir_fd=directory)
        except OSError:
            census.unreadable += 1
            return
        try:
            yield from self._walk(below, f"{folder}/{name}" if folder else name, census)
        finally:
            os.close(below)

    def _look(self, directory: int, folder: str, name: str, census: Census) -> Found | None:
        if TEMPORARY.fullmatch(name):
            census.temporary += 1
            return None
        if not NAME.fullmatch(name):
            census.foreign["its name is not 32 hexadecimal digits"] += 1
            return None
        try:
            descriptor = open_entry(directory, name)
            try:
                entry = read_open(descriptor, name)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            census.vanished += 1
        except NotACacheFile as foreign:
            census.foreign[foreign.reason] += 1
        except OSError:
            census.unreadable += 1
        else:
            census.entries += 1
            return Found(entry, folder)
        return None


def levels_of(folder: str) -> tuple[int, ...]:
    """The ``levels`` that put an entry into this folder."""
    return tuple(len(part) for part in folder.split("/") if part)


def is_cache_root(path: Path) -> bool:
    """Does a directory look like a cache: does one of its first files read as an entry?"""
    with CacheDir(path) as directory:
        return next(directory.walk(), None) is not None
