"""Purge without a module: expire entries in place, or unlink them. With a receipt.

Soft, the default, overwrites one number of the file: when it expires. nginx reads it at
every request, so the next one is EXPIRED, or STALE once where ``use_stale updating`` and
``background_update`` spare the user the wait. Nothing vanishes under nginx: its
accounting stays right, ``open_file_cache`` keeps no deleted file, and a 304 revalidates.

Hard unlinks. nginx then still counts the bytes until it notices, logs a critical line
when it does, and with ``open_file_cache`` may serve what is gone for a while.

A response with ``Vary`` has one file for each variant, all with the same key. Purging
only the one under the key's own MD5 leaves the others to be served as hits, so every
file of the key goes: variants first, the main one last (it is what leads to them), and
then a second look for what a request in flight has stored meanwhile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from nearcache.errors import NginxError, NotACacheFile
from nearcache.nginx.cachedir import CacheDir, Census, Found
from nearcache.nginx.cachefile import CacheFile, open_entry, read_open

How = Literal["soft", "hard"]
# Before now, so that clocks of a second's resolution agree that it is over.
EXPIRED_FOR_S = 2
TRIES = 3  # of one entry that nginx replaces while it is expired
SCANS = 3  # for entries that appear while others are purged

Selects = Callable[[CacheFile], bool]


@dataclass(frozen=True)
class Purged:
    """One line of a receipt."""

    path: str  # below the root
    key: str
    action: str  # "expired", "unlinked", "would be expired", "would be unlinked", "vanished"
    inode: int
    size: int
    age_s: float  # since it was stored or revalidated
    left_s: float  # how long it would have been served
    variant: bool


@dataclass
class Receipt:
    """What a purge did. ``census`` tells what else was met on the way."""

    root: str
    how: How
    dry_run: bool
    began: float  # Unix seconds
    purged: list[Purged] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # why an entry was left alone
    census: Census | None = None  # None if no scan was needed
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Purger:
    """Purges in one directory. ``clock`` is in Unix seconds."""

    def __init__(
        self,
        directory: CacheDir,
        *,
        how: How = "soft",
        dry_run: bool = False,
        forbid_stale: bool = False,
        files_per_second: float | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """
        Args:
            forbid_stale: clear the windows in which nginx may serve it although expired
                (``stale-while-revalidate``, ``stale-if-error``). A ``use_stale`` of the
                configuration is not in the file: only ``how="hard"`` helps against it.
            files_per_second: at most, so that a large purge does not load the disk.
        """
        self.directory = directory
        self.how = how
        self.dry_run = dry_run
        self.forbid_stale = forbid_stale
        self.pause_s = 1 / files_per_second if files_per_second else 0.0
        self.clock = clock
        self.sleep = sleep

    def purge_key(
        self, key: bytes, levels: Sequence[int] | None = None, *, thorough: bool = False
    ) -> Receipt:
        """All files of one key.

        Without a scan, in microseconds, if ``levels`` are known and the main file says
        that the response has no Vary. ``thorough`` scans nevertheless: a response that
        no longer varies may have variants from when it did, which nothing leads to.
        """
        receipt = self._receipt()
        began = time.monotonic()
        found = self.directory.find(key, levels) if levels is not None else None
        if found and found.entry.key != key:
            raise NginxError(f"{found.path} has another key with the same MD5; nothing was done")
        if found and not found.entry.vary and not thorough:
            self._take([found], receipt)
            receipt.seconds = time.monotonic() - began
            return receipt
        return self._scan(lambda entry: entry.key == key, receipt, began)

    def purge_where(self, selects: Selects) -> Receipt:
        """All entries that ``selects`` says yes to, and all variants of their keys."""
        return self._scan(selects, self._receipt(), time.monotonic())

    def _scan(self, selects: Selects, receipt: Receipt, began: float) -> Receipt:
        done: set[tuple[str, int]] = set()
        for _ in range(1 if self.dry_run else SCANS):
            census = Census()
            fresh = [
                found
                for found in self.directory.walk(census)
                if selects(found.entry) and not self._is_done(found, done)
            ]
            receipt.census = census
            if not fresh:
                break
            # Variants first: as long as the main file is there, it leads to none that is left.
            fresh.sort(key=lambda found: not found.entry.is_variant)
            self._take(fresh, receipt)
            done |= {(found.path, found.entry.inode) for found in fresh}
        receipt.seconds = time.monotonic() - began
        return receipt

    def _is_done(self, found: Found, done: set[tuple[str, int]]) -> bool:
        if (found.path, found.entry.inode) in done:
            return True
        is_over = self.how == "soft" and found.entry.valid_sec < self.clock()
        return is_over and not self.forbid_stale

    def _take(self, entries: Sequence[Found], receipt: Receipt) -> None:
        for found in entries:
            try:
                receipt.purged.append(self._purge(found))
            except (NotACacheFile, PermissionError) as error:
                receipt.refused.append(f"{found.path}: {error}")
            if self.pause_s and not self.dry_run:
                self.sleep(self.pause_s)

    def _purge(self, found: Found) -> Purged:
        word = {"soft": "expired", "hard": "unlinked"}[self.how]
        if self.dry_run:
            return self._line(found, f"would be {word}")
        try:
            folder = self.directory.open_folder(found.folder)
        except FileNotFoundError:
            return self._line(found, "vanished")
        try:
            act = self._expire if self.how == "soft" else self._unlink
            return self._line(found, word if act(folder, found) else "vanished")
        finally:
            os.close(folder)

    def _expire(self, folder: int, found: Found) -> bool:
        """Overwrite when it expires; again if nginx put another file there meanwhile."""
        for _ in range(TRIES):
            try:
                descriptor = open_entry(folder, found.entry.name, writing=True)
            except FileNotFoundError:
                return False
            try:
                self._expire_open(descriptor, found.entry)
                inode = os.fstat(descriptor).st_ino
            finally:
                os.close(descriptor)
            try:
                now = os.stat(found.entry.name, dir_fd=folder, follow_symlinks=False).st_ino
            except FileNotFoundError:
                return False
            if now == inode:
                return True
        raise NotACacheFile(found.path, f"nginx replaced it {TRIES} times while it was expired")

    def _expire_open(self, descriptor: int, expected: CacheFile) -> None:
        entry = self._same(descriptor, expected)
        layout, then = entry.layout, int(self.clock()) - EXPIRED_FOR_S
        changes = {"valid_sec": then}
        if self.forbid_stale and "updating_sec" in layout.fields:
            changes |= {"updating_sec": 0, "error_sec": 0}
        for name, value in changes.items():
            os.pwrite(descriptor, layout.pack_number(name, value), layout.fields[name].offset)
        if int(read_open(descriptor, expected.name).valid_sec) != then:
            raise NotACacheFile(expected.name, "what was written did not read back")

    def _unlink(self, folder: int, found: Found) -> bool:
        try:
            descriptor = open_entry(folder, found.entry.name)
        except FileNotFoundError:
            return False
        try:
            self._same(descriptor, found.entry)
        finally:
            os.close(descriptor)
        try:
            os.unlink(found.entry.name, dir_fd=folder)
        except FileNotFoundError:
            return False
        return True

    def _same(self, descriptor: int, expected: CacheFile) -> CacheFile:
        """The entry as it is now: still one, still of this key."""
        entry = read_open(descriptor, expected.name)
        if entry.key != expected.key:
            raise NotACacheFile(expected.name, "its key has changed since it was listed")
        return entry

    def _receipt(self) -> Receipt:
        return Receipt(str(self.directory.root), self.how, self.dry_run, self.clock())

    def _line(self, found: Found, action: str) -> Purged:
        entry, now = found.entry, self.clock()
        return Purged(
            path=found.path,
            key=entry.key.decode(errors="backslashreplace"),
            action=action,
            inode=entry.inode,
            size=entry.size,
            age_s=round(now - entry.date, 1),
            left_s=round(entry.time_left(now), 1),
            variant=entry.is_variant,
        )


def of_keys(keys: Sequence[bytes]) -> Selects:
    """Selects the entries of these keys."""
    wanted = set(keys)
    return lambda entry: entry.key in wanted
