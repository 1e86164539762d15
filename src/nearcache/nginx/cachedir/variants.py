"""Which files of a cache hold variants of which key, in memory: so that no purge need scan.

The main file of a key has its MD5 for a name: one open() says if it is there. A variant's name is
an MD5 of request headers, and only the file itself tells whose it is. So this table has a
row for each variant and none for main files: 110 bytes a variant, nothing where nothing varies.

    one walk      finds the variants that are there; directories are watched before they are listed
    inotify       tells of all that comes and goes from then on (inotify.py)
    a question    first reads what inotify has to tell: events are queued before a file can be seen

What is promised: an answer knows of every file that was in its place before the question was
asked. Who cannot be told that waits. When inotify has lost events, or a directory came or went as
a whole, the walk is made anew. Where inotify is no help (too few watches, a file system that other
hosts write to), each question needs a walk that began after it: one for all who wait, given up
when nobody waits any more.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

from nearcache.errors import NginxError, NotACacheFile
from nearcache.nginx.cachedir import inotify
from nearcache.nginx.cachedir.cachefile import NAME, CacheFile, read_variant
from nearcache.nginx.cachedir.directory import (
    NOT_OURS,
    CacheDir,
    Census,
    ReadEntry,
    is_level,
    joined,
)
from nearcache.nginx.cachedir.inotify import Event, Inotify
from nearcache.nginx.keys.paths import name_of
from nearcache.report.words import plural

logger = logging.getLogger("nearcache.nginx.variants")

APPEARS = inotify.CREATE | inotify.MOVED_TO | inotify.CLOSE_WRITE
GOES = inotify.DELETE | inotify.MOVED_FROM
SLICE_S, REST_S = 0.02, 0.005  # of a walk: others need disk and interpreter, too
LOOK_S = 0.1  # whoever waits looks so often if he is still wanted
IDLE_S = 0.2  # the keeper looks so often if the directory is still the one in its place
GATHER_S = 0.02  # events are worked off together
GULP = 8192  # bytes of events, while others wait
UNREADABLE_S = 60.0  # then what could not be read is tried again

SCHEMA = """
CREATE TABLE variants (key BLOB, name BLOB, folder TEXT, PRIMARY KEY (key, name, folder))
WITHOUT ROWID;
CREATE INDEX by_name ON variants (name);
"""

Place = tuple[str, str]
"""A folder below the root, and a name in it."""


class _Abandoned(Exception):
    """Nobody waits for this walk."""


class VariantTable:
    """The variants in one cache directory. A thread keeps it until :meth:`close`."""

    def __init__(self, path: Path, most_waiting: int | None = None) -> None:
        """
        Args:
            most_waiting: at once; who comes later is told that nothing is known yet.
        """
        self.path = path
        self._most_waiting = most_waiting
        self._changed = threading.Condition()  # and what guards the picture
        self._asked = threading.Event()
        self._picture: _Picture | None = None
        self._waiting: list[float] = []  # since when each of them
        self._closing = False
        self._can_watch = True  # as far as is known
        self._said = ""
        self._thread = threading.Thread(target=self._keep, name="nearcache-variants", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread; who waits is told that nothing is known."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._asked.set()
        self._thread.join()

    def variants_of(
        self,
        keys: Collection[bytes],
        directory: CacheDir,
        until: float,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> list[Place] | None:
        """Where variants of these keys may lie; None if that was not known in time.

        Every variant that was stored before the call is there. What lies in such a place must
        be read again: it may have gone.

        Args:
            directory: that of this table, as the caller has it open.
            until: how long to wait, on the monotonic clock.
            is_wanted: False ends the wait.
        Raises:
            NginxError: some files or directories may not be read.
        """
        began = time.monotonic()
        with self._changed:
            most = self._most_waiting
            may_wait = most is None or len(self._waiting) < most
            self._waiting.append(began)
            try:
                while True:
                    picture = self._picture
                    if picture and picture.tells(directory, began):
                        return picture.places_of(keys)
                    left_s = until - time.monotonic()
                    if left_s <= 0 or self._closing or not may_wait or not is_wanted():
                        return None
                    self._asked.set()
                    self._changed.wait(min(left_s, LOOK_S))
            finally:
                self._waiting.remove(began)

    @property
    def is_warm(self) -> bool:
        """Is a question answered at once?"""
        with self._changed:
            return bool(self._picture and self._picture.is_live)

    # -- the thread

    def _keep(self) -> None:
        while not self._closing:
            try:
                directory = CacheDir(self.path, follow=False)
            except (NginxError, OSError):  # who asks finds out himself
                self._rest()
                continue
            try:
                with directory:
                    self._turn(directory)
            except _Abandoned:
                pass
            except Exception:
                logger.exception("%s: the table of variants failed, and is made anew", self.path)
                self._forget()
                self._rest()
        self._forget()

    def _turn(self, directory: CacheDir) -> None:
        picture = self._picture
        if picture and (not picture.is_of(directory) or picture.is_to_be_tried_again):
            self._forget()
        elif picture and picture.is_live:
            picture.wait()
            with self._changed:
                picture.listen(directory, GULP)
        elif self._can_watch or self._is_asked_since(picture.began if picture else 0.0):
            self._make(directory)
        else:
            self._rest()

    def _is_asked_since(self, then: float) -> bool:
        with self._changed:
            return any(began > then for began in self._waiting)

    def _make(self, directory: CacheDir) -> None:
        self._forget()
        picture = _Picture(directory)
        try:
            picture.fill(directory, self._breathe)
        except BaseException:
            picture.close()
            raise
        finally:
            self._can_watch = picture.can_watch
        with self._changed:
            self._picture = picture
            self._changed.notify_all()
        said = str(picture)
        if picture.can_watch:
            logger.info("%s: %s", self.path, said)
        elif said != self._said:
            logger.warning("%s: %s", self.path, said)
        self._said = said

    def _breathe(self, picture: _Picture) -> None:
        """Between two slices of a walk."""
        if self._closing or (not picture.can_watch and not self._waiting):
            raise _Abandoned
        time.sleep(REST_S)

    def _forget(self) -> None:
        with self._changed:
            picture, self._picture = self._picture, None
        if picture:
            picture.close()

    def _rest(self) -> None:
        self._asked.wait(IDLE_S)
        self._asked.clear()


class _Picture:
    """The variants in one directory, as a walk finds them, and inotify keeps them where it can."""

    def __init__(self, directory: CacheDir) -> None:
        self.began = time.monotonic()
        self._root = _identity(directory)
        self._folders: dict[int, str] = {}  # by their watches
        self._rows = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._rows.executescript(SCHEMA)
        self._unreadable = 0
        self._is_lost = False
        self._why_not = ""
        self._inotify: Inotify | None = None
        if inotify.is_shared(directory.descriptor):
            self._why_not = "other hosts may write to this file system"
            return
        try:
            self._inotify = Inotify()
        except OSError as error:
            self._cannot_watch(error)

    def __str__(self) -> str:
        if self._why_not:
            return f"a purge of what is not stored looks at all files: {self._why_not}"
        (count,) = self._rows.execute("SELECT count(*) FROM variants").fetchone()
        took_s = time.monotonic() - self.began
        return f"{plural(count, 'variant')}, found in {took_s:.1f} s; new ones are told by inotify"

    @property
    def can_watch(self) -> bool:
        return not self._why_not

    @property
    def is_live(self) -> bool:
        """Is everything that was stored until now either known or told by inotify?"""
        return self.can_watch and not self._is_lost

    @property
    def is_to_be_tried_again(self) -> bool:
        return self._unreadable > 0 and time.monotonic() - self.began > UNREADABLE_S

    def is_of(self, directory: CacheDir) -> bool:
        return self._root == _identity(directory)

    def close(self) -> None:
        self._stop_watching()
        self._rows.close()

    def _stop_watching(self) -> None:
        if self._inotify:
            self._inotify.close()
        self._inotify = None

    def fill(self, directory: CacheDir, breathe: Callable[[_Picture], None]) -> None:
        """Walks through the directory; ``breathe`` is called between slices."""
        until = time.monotonic() + SLICE_S

        def read(descriptor: int, name: str) -> CacheFile | None:
            nonlocal until
            if time.monotonic() > until:
                self.listen(directory)  # the queue has an end
                breathe(self)
                until = time.monotonic() + SLICE_S
            return read_variant(descriptor, name)

        self._walk(directory, "", read)

    def tells(self, directory: CacheDir, began: float) -> bool:
        """Has it every variant that was in this directory at ``began``, which is past?"""
        if not self.is_of(directory):
            return False
        if not self.can_watch:
            return self.began >= began
        self.listen(directory)
        return self.is_live

    def places_of(self, keys: Collection[bytes]) -> list[Place]:
        if self._unreadable:
            raise NginxError(f"{plural(self._unreadable, 'file or directory')} {NOT_OURS}")
        return [
            (folder, name.hex())
            for key in keys
            for name, folder in self._rows.execute(
                "SELECT name, folder FROM variants WHERE key = ?", (_digest(key),)
            )
        ]

    def wait(self) -> None:
        """Until inotify has something to tell, and a moment longer."""
        if self._inotify and self._inotify.wait(IDLE_S):
            time.sleep(GATHER_S)

    def listen(self, directory: CacheDir, at_most: int | None = None) -> None:
        """Reads what inotify has to tell: all of it, or so many bytes."""
        try:
            for event in self._inotify.read(at_most) if self._inotify else ():
                self._note(event, directory)
        except BaseException:
            self._is_lost = True  # what came after it was read, and is not known
            raise

    def _note(self, event: Event, directory: CacheDir) -> None:
        folder = self._folders.get(event.watch)
        if event.mask & inotify.OVERFLOW:
            self._is_lost = True
        elif folder is None:
            pass  # of a directory that has gone
        elif event.mask & inotify.IGNORED:
            del self._folders[event.watch]
            self._is_lost |= not folder
        elif event.mask & inotify.IS_DIRECTORY:
            self._note_directory(event, folder, directory)
        elif NAME.fullmatch(event.name):
            if event.mask & GOES:
                row = bytes.fromhex(event.name), folder
                self._rows.execute("DELETE FROM variants WHERE name = ? AND folder = ?", row)
            else:
                self._look(directory, folder, event.name)

    def _note_directory(self, event: Event, folder: str, directory: CacheDir) -> None:
        if not is_level(folder, event.name):
            return
        if event.mask & (inotify.MOVED_FROM | inotify.MOVED_TO):
            self._is_lost = True  # a walk through all that it holds is nothing to wait for here
        elif event.mask & inotify.CREATE:
            try:
                self._walk(directory, joined(folder, event.name), read_variant)
            except (FileNotFoundError, NotACacheFile):
                pass  # it has gone, or a link is in its place
            except OSError:
                self._unreadable += 1

    def _look(self, directory: CacheDir, folder: str, name: str) -> None:
        try:
            descriptor = directory.open(folder, name)
            try:
                entry = read_variant(descriptor, name)
            finally:
                os.close(descriptor)
        except (FileNotFoundError, NotACacheFile):
            pass  # it has gone, or whoever writes it will close it
        except OSError:
            self._unreadable += 1
        else:
            if entry:
                self._add(entry, folder)

    def _walk(self, directory: CacheDir, below: str, read: ReadEntry) -> None:
        census = Census()
        for found in directory.walk(census, read, below=below, enter=self._enter):
            self._add(found.entry, found.folder)
        self._unreadable += census.unreadable

    def _enter(self, descriptor: int, folder: str) -> None:
        if self._inotify is None:
            return
        try:
            self._folders[self._inotify.watch(descriptor, APPEARS | GOES)] = folder
        except OSError as error:
            if os.fstat(descriptor).st_nlink:  # else it has gone, and its parent is watched
                self._stop_watching()
                self._cannot_watch(error)

    def _cannot_watch(self, error: OSError) -> None:
        limit = {errno.ENOSPC: "max_user_watches", errno.EMFILE: "max_user_instances"}
        which = limit.get(error.errno or 0, "")
        more = f"; raise fs.inotify.{which} (sysctl)" if which else ""
        self._why_not = f"inotify: {error.strerror}{more}"

    def _add(self, entry: CacheFile, folder: str) -> None:
        row = _digest(entry.key), bytes.fromhex(entry.name), folder
        self._rows.execute("INSERT OR IGNORE INTO variants VALUES (?, ?, ?)", row)


def _identity(directory: CacheDir) -> tuple[int, int]:
    status = os.fstat(directory.descriptor)
    return status.st_dev, status.st_ino


def _digest(key: bytes) -> bytes:
    return bytes.fromhex(name_of(key))
