"""Purge without a module: expire entries in place, or unlink them. With a receipt.

Soft, the default, overwrites one number of the file: when it expires. nginx reads it at
every request, so the next one is EXPIRED, or STALE once where ``use_stale updating`` and
``background_update`` spare the user the wait. Nothing vanishes under nginx: its
accounting stays right, ``open_file_cache`` keeps no deleted file, and a 304 revalidates.

Hard unlinks. nginx then still counts the bytes until it notices, logs a critical line
when it does, and with ``open_file_cache`` may serve what is gone for a while.

A response with ``Vary`` has one file for each variant, all with the same key. Purging
only the one under the key's own MD5 leaves the others to be served as hits, so every
file of the key goes, and then there is a second look for what a request in flight has
stored meanwhile. A hard purge takes variants first and the main file, which leads to
them, last: if it is interrupted, nothing is left that only a scan would find.

What is written to is checked right before, in the open file: that it is an entry, that
its key is the one that was asked for, and that it belongs to the owner of the directory
(who can write there could put a hard link to somebody else's file under a valid name).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Sequence
from itertools import product

from nearcache.errors import NginxError, NotACacheFile
from nearcache.nginx.cachedir.cachefile import CacheFile, open_entry, read_open
from nearcache.nginx.cachedir.directory import NOT_OURS, CacheDir, Census, Found, joined
from nearcache.nginx.cachedir.variants import Place
from nearcache.nginx.keys.paths import EVERY_LEVELS, name_of, path_of
from nearcache.nginx.purge.receipt import How, Purged, Receipt

# Before now, so that clocks of a second's resolution agree that it is over.
EXPIRED_FOR_S = 2
TRIES = 3  # of one entry that nginx replaces while it is expired
SCANS = 3  # for entries that appear while others are purged

Selects = Callable[[CacheFile], bool]

Variants = Callable[[Collection[bytes]], Sequence[Place] | None]
"""Where variants of these keys may lie, all that were stored before the call; None if that was not
known in time. As :meth:`VariantTable.variants_of`."""


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
        give_up_after_s: float | None = None,
        owner: int | None = None,
        variants: Variants | None = None,
        before: Callable[[Found], None] | None = None,
        each: Callable[[Purged], None] | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """
        Args:
            forbid_stale: clear the windows in which nginx may serve it although expired
                (``stale-while-revalidate``, ``stale-if-error``). A ``use_stale`` of the
                configuration is not in the file: only ``how="hard"`` helps against it.
            files_per_second: at most, so that a large purge does not load the disk.
            give_up_after_s: a scan that takes longer stops, and the receipt says so.
            owner: the user id that entries must have; else that of the directory.
            variants: knows where they are, so that no key needs a scan.
            before: is shown each entry right before it is purged.
            each: is told each line of the receipt as it happens.
        """
        self.directory = directory
        self.how = how
        self.dry_run = dry_run
        self.forbid_stale = forbid_stale
        self.pause_s = 1 / files_per_second if files_per_second else 0.0
        self.give_up_after_s = give_up_after_s
        self.owner = directory.owner if owner is None else owner
        self.variants = variants
        self.before = before
        self.each = each
        self.clock = clock
        self.sleep = sleep

    def purge_key(
        self, key: bytes, levels: Sequence[int] | None = None, *, thorough: bool = False
    ) -> Receipt:
        """All files of one key; see :meth:`purge_keys`."""
        return self.purge_keys([key], levels, thorough=thorough)

    def purge_keys(
        self,
        keys: Sequence[bytes],
        levels: Sequence[int] | None = None,
        *,
        thorough: bool = False,
        scan: bool = True,
    ) -> Receipt:
        """All files of these keys.

        A key whose main file says that the response has no Vary is purged without a scan, in
        microseconds, if ``levels`` are known. For all others together there is one scan: their
        variants can lie anywhere, also where the main file has gone.

        Args:
            thorough: scan for all of them. A response that no longer varies may have
                variants from when it did, which nothing leads to.
            scan: False says that nothing in this cache varies, so that no scan is needed.
        """
        receipt, began = self._begin()
        left = set(keys)
        if levels is not None:
            for key in keys:
                found = self._find(key, levels, receipt)
                if found and not scan:
                    self._take(found, receipt)
                elif found and not found.entry.vary and not thorough:
                    self._take(found, receipt)
                    left.discard(key)
        if left and scan and self.variants:
            self._take_all(left, self.variants, receipt)
        elif left and scan:
            self._scan(lambda entry: entry.key in left, receipt, began)
        receipt.seconds = time.monotonic() - began
        return receipt

    def purge_where(self, selects: Selects) -> Receipt:
        """All entries that ``selects`` says yes to. It must go by the key alone: an entry and its
        variants have the same.
        """
        receipt, began = self._begin()
        self._scan(selects, receipt, began)
        receipt.seconds = time.monotonic() - began
        return receipt

    def _find(self, key: bytes, levels: Sequence[int], receipt: Receipt) -> Found | None:
        """What stands in the place of an entry and is none is refused; other keys are purged."""
        try:
            found = self.directory.find(key, levels)
        except (NginxError, OSError) as error:
            self._refuse_once(_why(str(path_of(name_of(key), levels)), error), receipt)
            return None
        if found and found.entry.key != key:
            raise NginxError(f"{found.path} has another key with the same MD5; nothing was done")
        return found

    def _take_all(self, keys: Collection[bytes], variants: Variants, receipt: Receipt) -> None:
        refused: set[str] = set()
        for turn in range(1 if self.dry_run else SCANS):
            before = receipt.counts.total()
            places = variants(keys)
            if places is None:
                receipt.complete = False
                return
            for folder, name in places:
                self._take_variant(folder, name, keys, receipt, turn, refused)
            # Last: they lead to variants. Anywhere: nginx may have other levels than are said here.
            for key, levels in product(keys, EVERY_LEVELS):
                main = self._find(key, levels, receipt)
                if main:
                    self._take_unless_over(main, receipt, turn, refused)
            if receipt.counts.total() == before:
                return

    def _take_variant(
        self,
        folder: str,
        name: str,
        keys: Collection[bytes],
        receipt: Receipt,
        turn: int,
        refused: set[str],
    ) -> None:
        """Unless something else is in its place by now."""
        try:
            found = Found(self.directory.read(folder, name), folder)
        except FileNotFoundError:
            return
        except (NotACacheFile, OSError) as error:
            self._refuse_once(_why(joined(folder, name), error), receipt)
            return
        if found.entry.key in keys and found.path not in refused:
            self._take_unless_over(found, receipt, turn, refused)

    def _refuse_once(self, why: str, receipt: Receipt) -> None:
        """A second look meets again what the first has refused."""
        if why not in receipt.refused:
            receipt.refuse(why)

    def _scan(self, selects: Selects, receipt: Receipt, began: float) -> None:
        # A file that was refused would be refused again.
        refused: set[str] = set()
        for turn in range(1 if self.dry_run else SCANS):
            before = receipt.counts.total()
            parts = (True, False) if self.how == "hard" and not self.dry_run else (None,)
            for variants in parts:
                census = Census()
                # The first look has met everything; the last of a hard purge nothing any more.
                receipt.census = receipt.census or census
                for found in self.directory.walk(census):
                    if self._is_late(began):
                        receipt.complete = False
                        return
                    if variants not in (None, found.entry.is_variant) or found.path in refused:
                        continue
                    if selects(found.entry):
                        self._take_unless_over(found, receipt, turn, refused)
            if receipt.counts.total() == before:
                return

    def _is_late(self, began: float) -> bool:
        return self.give_up_after_s is not None and time.monotonic() - began > self.give_up_after_s

    def _take_unless_over(
        self, found: Found, receipt: Receipt, turn: int, refused: set[str]
    ) -> None:
        if self._is_over(found.entry):
            receipt.over += turn == 0
        elif not self._take(found, receipt):
            refused.add(found.path)

    def _is_over(self, entry: CacheFile) -> bool:
        """Is there nothing left for a soft purge to do?"""
        if self.how == "hard" or entry.valid_sec >= self.clock():
            return False
        windows = entry.stale_while_revalidate_s or entry.stale_if_error_s
        return not (self.forbid_stale and windows)

    def _take(self, found: Found, receipt: Receipt) -> bool:
        """False if it was refused."""
        try:
            line = self._purge(found)
        except (NotACacheFile, OSError) as error:
            receipt.refuse(_why(found.path, error))
            return False
        receipt.add(line)  # who is told may fail: that is no refusal
        if self.pause_s and not self.dry_run:
            self.sleep(self.pause_s)
        return True

    def _purge(self, found: Found) -> Purged:
        word = {"soft": "expired", "hard": "unlinked"}[self.how]
        if self.before and not self.dry_run:
            self.before(found)
        if self.dry_run:
            self._check(found.entry, found.entry)
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
        self._check(entry, expected)
        return entry

    def _check(self, entry: CacheFile, expected: CacheFile) -> None:
        if entry.key != expected.key:
            raise NotACacheFile(expected.name, "its key has changed since it was listed")
        if entry.owner != self.owner:
            raise NotACacheFile(
                expected.name, f"it belongs to user id {entry.owner}, the cache to {self.owner}"
            )

    def _begin(self) -> tuple[Receipt, float]:
        root = str(self.directory.root)
        return Receipt(root, self.how, self.dry_run, self.clock(), self.each), time.monotonic()

    def _line(self, found: Found, action: str) -> Purged:
        entry, now = found.entry, self.clock()
        return Purged(
            path=found.path,
            key=entry.text,
            action=action,
            inode=entry.inode,
            size=entry.size,
            age_s=round(now - entry.date, 1),
            left_s=round(entry.time_left(now), 1),
            variant=entry.is_variant,
        )


def _why(path: str, error: Exception) -> str:
    """Why an entry was left alone."""
    if isinstance(error, NotACacheFile):
        return f"{path}: {error.reason}"
    if isinstance(error, PermissionError):
        return f"{path} {NOT_OURS}"
    return f"{path}: {error.strerror}" if isinstance(error, OSError) else str(error)
