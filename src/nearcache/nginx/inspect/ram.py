"""How much RAM a cache holds: its pages in the page cache, and nodes in ``keys_zone``.

nginx reads cached responses from files, so their RAM is the kernel's page cache and shows in
no process. A page is counted if it is resident before anybody reads the file: the file is
asked first, read (one page) second, and the page that the look brought in is given back.

Source of the bytes of a node: ngx_http_file_cache_node_t has 120 bytes on 64-bit machines,
which the slab allocator rounds to 128; the documentation says 8 thousand keys for a megabyte.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from nearcache.nginx.cachedir.cachefile import FIRST_READ, CacheFile, read_open
from nearcache.nginx.inspect.pagecache import PAGE_BYTES, Ask, Pages, method
from nearcache.report.words import percent, plural, size

KEYS_PER_MEGABYTE = 8000
MEGABYTE = 1 << 20


@dataclass
class Ram:
    """Pages of many files, summed. ``method`` is empty where the kernel does not tell."""

    method: str = ""
    files: int = 0  # that the kernel told of
    unknown: int = 0  # files of which it did not
    pages: int = 0  # that these files have
    resident: int = 0
    dirty: int | None = None
    evicted: int | None = None
    recently_evicted: int | None = None
    given_back: int = 0  # pages that a look brought in and that were dropped again

    def add(self, file_bytes: int, told: Pages) -> None:
        self.files += 1
        self.pages += -(-file_bytes // PAGE_BYTES)
        self.resident += told.resident
        if told.dirty is not None:
            self.dirty = (self.dirty or 0) + told.dirty
            self.evicted = (self.evicted or 0) + (told.evicted or 0)
            self.recently_evicted = (self.recently_evicted or 0) + (told.recently_evicted or 0)

    @property
    def sentence(self) -> str:
        """``a 34 MB cache: 33 MB in RAM (97.1%)``; both in pages of the kernel."""
        if not self.method:
            return (
                "how much of it is in RAM this kernel does not tell"
                " (cachestat needs Linux 6.5, mincore the owner of the files)"
            )
        if not self.files and not self.unknown:
            return "nothing is there"
        if not self.files:
            return f"of no file the kernel tells what is in RAM ({plural(self.unknown, 'file')})"
        whole, inside = self.pages * PAGE_BYTES, self.resident * PAGE_BYTES
        share = percent(self.resident / self.pages) if self.pages else "all"
        return f"a {size(whole)} cache: {size(inside)} in RAM ({share})"

    def to_json(self) -> dict[str, Any]:
        in_pages = {
            name: None if value is None else value * PAGE_BYTES
            for name, value in (
                ("files_bytes", self.pages),
                ("resident_bytes", self.resident),
                ("dirty_bytes", self.dirty),
                ("evicted_bytes", self.evicted),
                ("recently_evicted_bytes", self.recently_evicted),
            )
        }
        return {"method": self.method, "files": self.files, "unknown": self.unknown} | in_pages


class QuietReader:
    """Reads entries for a walk: counts what is in RAM before, and leaves it as it was."""

    def __init__(self) -> None:
        name, self._ask = method()
        self.ram = Ram(name)

    def __call__(self, descriptor: int, name: str) -> CacheFile:
        before = _pages(self._ask, descriptor, 0) if self._ask else None
        if self._ask and before and before.resident:
            # Partly in RAM: is the page that is going to be read?
            first = _pages(self._ask, descriptor, FIRST_READ)
        else:
            first = before
        try:
            entry = read_open(descriptor, name)
        finally:
            if first and not first.resident:
                # Only what was read: a page that nginx has read meanwhile stays.
                os.posix_fadvise(descriptor, 0, FIRST_READ, os.POSIX_FADV_DONTNEED)
                self.ram.given_back += 1
        if before is None:
            self.ram.unknown += 1
        else:
            self.ram.add(entry.size, before)
        return entry


def _pages(ask: Ask, descriptor: int, length: int) -> Pages | None:
    """Of the first bytes, or of all for 0."""
    whole = os.fstat(descriptor).st_size
    return ask(descriptor, 0, min(length, whole) if length else whole)


def keys_zone_bytes(entries: int) -> int:
    """What a ``keys_zone`` needs for so many entries."""
    return -(-entries * MEGABYTE // KEYS_PER_MEGABYTE)
