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
from dataclasses import dataclass
from functools import cached_property

from nearcache.errors import NotACacheFile
from nearcache.nginx.heads import Head
from nearcache.nginx.keys import name_of
from nearcache.nginx.layout import BY_SIZE, Layout

MARKER = b"\nKEY: "
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
        """The key, to be shown: bytes that are no UTF-8 as ``\\xff``, no control characters."""
        shown = self.key.decode(errors="backslashreplace")
        return shown if shown.isprintable() else "".join(map(_printable, shown))


def _printable(character: str) -> str:
    # A key comes from a request: printed as it is, it could drive a terminal.
    return character if character.isprintable() else ascii(character)[1:-1]


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
        reason = _why_not(name, first, layout)
        if reason is None:
            return _made(name, first, layout, status)
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
    needed = min(_head_ends(first), status.st_size)
    if needed > len(first):
        first = os.pread(descriptor, needed, 0)
    return parse(name, first, status)


def _marked(first: bytes) -> list[Layout]:
    """The layouts behind whose structure the marker lies."""
    return [
        layout
        for size, layouts in BY_SIZE.items()
        if first.startswith(MARKER, size)
        for layout in layouts
    ]


def _head_ends(first: bytes) -> int:
    """How much must be read for key and head, as far as any layout says: 64 KiB at most."""
    numbers = [
        layout.number(first, member)
        for layout in _marked(first)
        for member in ("header_start", "body_start")
    ]
    return max(numbers, default=0)


def _why_not(name: str, first: bytes, layout: Layout) -> str | None:
    """What contradicts this layout; None if nothing does."""
    if layout.version is not None and layout.number(first, "version") != layout.version:
        return f"its version is not that of its shape ({layout})"
    start, body = layout.number(first, "header_start"), layout.number(first, "body_start")
    if start > len(first):
        return f"its head begins at byte {start}, and there are only {len(first)}"
    if start <= layout.size + len(MARKER) or first[start - 1 : start] != b"\n":
        return "its key does not end where its head begins"
    if body < start:
        return "its body begins before its head"
    key = first[layout.size + len(MARKER) : start - 1]
    if zlib.crc32(key) != layout.number(first, "crc32"):
        return "its key does not have the checksum that the header says"
    if name not in (name_of(key), _variant(first, layout)):
        return "its name is the MD5 neither of its key nor of a variant"
    return None


def _variant(first: bytes, layout: Layout) -> str:
    """The variant's name; empty without Vary. Versions before 3 knew none."""
    field = layout.fields.get("variant")
    if field is None:
        return ""
    raw = first[field.offset : field.offset + field.size]
    return raw.hex() if any(raw) else ""


def _made(name: str, first: bytes, layout: Layout, status: os.stat_result) -> CacheFile:
    def number(field: str, default: int = 0) -> int:
        return layout.number(first, field) if field in layout.fields else default

    def text(field: str) -> bytes:
        return layout.text(first, field) if field in layout.fields else b""

    start, body = number("header_start"), number("body_start")
    modified = number("last_modified", -1)
    return CacheFile(
        name=name,
        layout=layout,
        key=first[layout.size + len(MARKER) : start - 1],
        valid_sec=number("valid_sec") + number("valid_msec") / 1000,
        date=number("date"),
        last_modified=None if modified == -1 else modified,
        stale_while_revalidate_s=number("updating_sec"),
        stale_if_error_s=number("error_sec"),
        etag=text("etag"),
        vary=text("vary"),
        variant=_variant(first, layout),
        head=Head(first[start:body]),
        size=status.st_size,
        blocks=status.st_blocks * 512,
        body_start=body,
        inode=status.st_ino,
        owner=status.st_uid,
    )
