"""One file of an nginx cache directory: what it holds, and for how long.

    header (layout.py)   when it expires, where the parts begin, Vary and the variant
    "\nKEY: " key "\n"    the key as nginx built it
    head                 what the upstream sent before the body, byte by byte
    body                 the rest

A file is accepted if one layout explains all of it: the marker lies behind the
structure, the line ends where the head begins, the checksum is that of the key, and the
name of the file is the MD5 of the key or the variant. Anything else is not a cache file,
and the reason is said; nothing is guessed from the platform.

Reading takes the first page only (more where key and head are longer), and tells the
kernel not to read ahead. heads.py reads what the head says.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from nearcache.errors import NotACacheFile
from nearcache.nginx.cachedir.heads import Head
from nearcache.nginx.cachedir.layout import BY_SIZE, LARGEST, Layout
from nearcache.nginx.keys.paths import name_of
from nearcache.report.words import printable

MARKER = b"\nKEY: "
LAST_MARKER = LARGEST + len(MARKER)
FIRST_READ = 4096
NOT_REGULAR = (errno.ELOOP, errno.EISDIR, errno.ENXIO)
NAME = re.compile(r"[0-9a-f]{32}")
TEMPORARY = re.compile(r"[0-9a-f]{32}\.[0-9]{10}")


@dataclass(frozen=True)
class CacheFile:
    """A response that nginx has stored. Times are Unix seconds, sizes bytes."""

    name: str
    layout: Layout
    key: bytes
    valid_sec: float  # when it expires
    date: int  # when it was stored or last revalidated
    last_modified: int | None
    stale_while_revalidate_s: int
    stale_if_error_s: int
    etag: bytes
    vary: bytes
    variant: str  # the name of this variant's file; empty if the response has no Vary
    head: Head  # of the response
    size: int  # of the whole file
    blocks: int  # what the disk holds for it
    body_start: int
    inode: int
    owner: int  # user id

    @property
    def is_variant(self) -> bool:
        """Does it lie under the name of its variant and not of its key?"""
        return self.name != name_of(self.key)

    @property
    def body_size(self) -> int:
        return max(0, self.size - self.body_start)

    def time_left(self, now: float) -> float:
        """Seconds until it expires; negative if it has."""
        return self.valid_sec - now

    @property
    def status(self) -> int | None:
        """The status of the stored response; None if its head does not tell."""
        return self.head.status

    def headers(self, name: str) -> list[str]:
        """The values of a response header, in their order."""
        return self.head.values(name)

    @cached_property
    def text(self) -> str:
        """The key, to be shown: bytes that are no UTF-8 as ``\\xff``.

        A key comes from a request: as it is, it could drive a terminal.
        """
        shown = self.key.decode(errors="backslashreplace")
        return shown if shown.isprintable() else printable(shown)


def parse(name: str, first: bytes, status: os.stat_result) -> CacheFile:
    """What the file called ``name`` is, from its first bytes (as far as the body, if there).

    Raises:
        NotACacheFile: no layout explains it; the message says what did not fit.
    """
    if not NAME.fullmatch(name):
        raise NotACacheFile(name, "its name is not 32 hexadecimal digits")
    marked = _marked(first)
    if not marked:
        at = first.find(MARKER)
        where = f"its key is at byte {at}, as in no version known" if at >= 0 else "it has no key"
        raise NotACacheFile(name, where)
    reasons = []
    for layout in marked:
        values = layout.values(first)
        reason = _why_not(name, first, layout, values)
        if reason is None:
            return _made(name, first, layout, values, status)
        reasons.append(reason)
    raise NotACacheFile(name, reasons[0])


def read(directory: int, name: str) -> CacheFile:
    """Read the head of ``name`` in an open directory.

    Raises:
        NotACacheFile: it is something else: a link, a pipe, a directory, another format.
        OSError: it has gone (FileNotFoundError), or may not be read.
    """
    descriptor = open_entry(directory, name)
    try:
        return read_open(descriptor, name)
    finally:
        os.close(descriptor)


def open_entry(directory: int, name: str, *, writing: bool = False) -> int:
    """A descriptor of a regular file, never through a link."""
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_RDWR if writing else os.O_RDONLY)
    try:
        descriptor = os.open(name, flags, dir_fd=directory)
    except OSError as error:
        if error.errno in NOT_REGULAR:
            raise NotACacheFile(name, "it is not a regular file") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotACacheFile(name, "it is not a regular file")
    return descriptor


def read_open(descriptor: int, name: str) -> CacheFile:
    """As :func:`read`, from a descriptor that is open. Leaves its position alone."""
    status = os.fstat(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead into the page cache
    first = os.pread(descriptor, FIRST_READ, 0)
    try:
        entry = parse(name, first, status)
        needed = entry.body_start
    except NotACacheFile:
        # Perhaps its key is longer than what was read.
        needed = _head_ends(first)
        if min(needed, status.st_size) <= len(first):
            raise
    if needed > len(first):
        entry = parse(name, os.pread(descriptor, min(needed, status.st_size), 0), status)
    return entry


def read_variant(descriptor: int, name: str) -> CacheFile | None:
    """As :func:`read_open`, but None for the main file of a key, which is seen quickly."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    first = os.pread(descriptor, FIRST_READ, 0)
    at = first.find(MARKER, 0, LAST_MARKER) + len(MARKER)
    if at >= len(MARKER) and name == name_of(first[at : first.find(b"\n", at)]):
        return None
    entry = read_open(descriptor, name)
    return entry if entry.is_variant else None


def _marked(first: bytes) -> list[Layout]:
    """The layouts behind whose structure the marker lies."""
    found: list[Layout] = []
    at = first.find(MARKER, 0, LAST_MARKER)
    while at >= 0:
        found += BY_SIZE.get(at, ())
        at = first.find(MARKER, at + 1, LAST_MARKER)
    return found


def _head_ends(first: bytes) -> int:
    """How much must be read for key and head, as far as any layout says: 64 KiB at most."""
    numbers = [
        values[member]
        for layout in _marked(first)
        for values in [layout.values(first)]
        # In the other byte order the version is wrong, and the offsets would be enormous.
        if layout.version == values.get("version")
        for member in ("header_start", "body_start")
    ]
    return max(numbers, default=0)


def _why_not(name: str, first: bytes, layout: Layout, values: Mapping[str, Any]) -> str | None:
    """What contradicts this layout; None if nothing does."""
    if layout.version is not None and values["version"] != layout.version:
        return f"its version is not that of its shape ({layout})"
    start, body = values["header_start"], values["body_start"]
    if start > len(first):
        return f"its head begins at byte {start}, and there are only {len(first)}"
    if start <= layout.size + len(MARKER) or first[start - 1 : start] != b"\n":
        return "its key does not end where its head begins"
    if body < start:
        return "its body begins before its head"
    key = first[layout.size + len(MARKER) : start - 1]
    if zlib.crc32(key) != values["crc32"]:
        return "its key does not have the checksum that the header says"
    if name not in (name_of(key), _variant(values)):
        return "its name is the MD5 neither of its key nor of a variant"
    return None


def _variant(values: Mapping[str, Any]) -> str:
    """The variant's name; empty without Vary. Versions before 3 knew none."""
    raw = values.get("variant", b"")
    return raw.hex() if any(raw) else ""


def _made(
    name: str, first: bytes, layout: Layout, values: Mapping[str, Any], status: os.stat_result
) -> CacheFile:
    start, body = values["header_start"], values["body_start"]
    modified = values["last_modified"]
    return CacheFile(
        name=name,
        layout=layout,
        key=first[layout.size + len(MARKER) : start - 1],
        valid_sec=values["valid_sec"] + values["valid_msec"] / 1000,
        date=values["date"],
        last_modified=None if modified == -1 else modified,
        stale_while_revalidate_s=values.get("updating_sec", 0),
        stale_if_error_s=values.get("error_sec", 0),
        etag=values.get("etag", b""),
        vary=values.get("vary", b""),
        variant=_variant(values),
        head=Head(first[start:body]),
        size=status.st_size,
        blocks=status.st_blocks * 512,
        body_start=body,
        inode=status.st_ino,
        owner=status.st_uid,
    )
