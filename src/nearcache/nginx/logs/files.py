"""Access logs as one stream of bytes: files, directories of rotated logs, standard input.

Rotated logs of one name are read in the order of time, whatever order they were given in
(a shell puts ``access.log`` before ``access.log.1``). What cannot be read is told and left
out, and the others are read. No line of one file runs into the next.

Not here: names of rotated logs (``rotated.py``), unpacking (``unpack.py``), waiting for new
lines (``follow.py``), and what lines mean (the native core).
"""

from __future__ import annotations

import os
import re
import select
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from nearcache.errors import NginxError
from nearcache.nginx.logs.follow import PAUSE_S, Follower, follow
from nearcache.nginx.logs.rotated import PACKED, in_order_of_time, is_access_log, rotation
from nearcache.nginx.logs.unpack import Raw, chunks_of
from nearcache.report.words import plural

STDIN = "-"
USUAL_PLACE = "/var/log/nginx"
MOST_NAMED = 3
PEEKED_LINES = 20
COMPARED_BYTES = 4096
LOST = "no copy of what was cut lies beside it: its last lines are not counted"

_OPEN_PIPE = re.compile(r"/dev/fd/\d+|/proc/self/fd/\d+")  # a shell's <(command)


class Logs:
    """Some logs, read once from front to back.

    Args:
        given: files, directories and ``-``.
        following: never end, but go on with what nginx writes to the newest file of each.

    Raises NginxError if nothing of what was given can be read.
    """

    def __init__(self, given: Sequence[str], *, following: bool = False) -> None:
        self.troubles: list[str] = []
        """What was not read, or not to its end, and why."""
        self.notes: list[str] = []
        """What was left out on purpose, and why."""
        self.files_read = 0
        self.pause: Callable[[float], object] = time.sleep
        """How to wait for more; to be set before anything is read."""
        self.names = in_order_of_time(self._without_doubles(self._expanded(given)))
        """What is read, in this order."""
        self._unread: set[str] = set()
        self._followed = {rotation(name)[0]: name for name in self.names} if following else {}
        self._followers: list[Follower] = []
        self._ahead: list[bytes] = []
        self._done_bytes = 0
        self._raw: Raw | None = None
        self._stream = self._chunks()

    @property
    def opened(self) -> list[str]:
        """Of the names those that could be read, as far as it has come."""
        return [name for name in self.names if name not in self._unread]

    @property
    def total_bytes(self) -> int | None:
        """How much there is to read as it lies on the disk; None for what has no end."""
        if self._followed or STDIN in self.names:
            return None
        return sum(_size_of(name) for name in self.names)

    @property
    def read_bytes(self) -> int:
        """How far it has come in the files as they lie on the disk."""
        return self._done_bytes + (self._raw.read_bytes if self._raw else 0)

    @property
    def rotations(self) -> int:
        """How often another file took the place of one that was followed."""
        return sum(each.rotations for each in self._followers)

    @property
    def truncations(self) -> int:
        """How often one was cut while it was followed: what ``copytruncate`` does."""
        return sum(each.truncations for each in self._followers)

    @property
    def without_copy(self) -> int:
        """How often one was cut and no copy of it found: what was not read yet is lost."""
        return sum(each.without_copy for each in self._followers)

    def changes(self) -> list[str]:
        """What became of each file while it was followed, for people; empty if nothing did."""
        return [
            f"{each.path} was rotated {plural(each.rotations, 'time')} and truncated "
            f"{plural(each.truncations, 'time')} while it was followed; reading went on"
            + (f"; {LOST}" if each.without_copy else "")
            for each in self._followers
            if each.rotations or each.truncations
        ]

    def skip_to_end(self, keep_bytes: int) -> list[bytes]:
        """Following, before anything else: only what comes from now on is read.

        Gives what is passed over of each log, as whole lines: the last ``keep_bytes`` of it.

        Raises NginxError if there is nothing to follow.
        """
        for name in self._followed.values():
            raw = self._open(name)
            if raw and raw.packing:
                self.troubles.append(f"{_shown(name)} is packed: nginx writes nothing to it")
            elif raw:
                self._follow(name, raw)
            if raw:
                raw.close()
        if not self._followers:
            raise NginxError("; ".join(self.troubles) or "no log to follow")
        self._stream = follow(self._followers, self.pause)
        return [each.skip(keep_bytes) for each in self._followers]

    def peek(self) -> bytes:
        """The first lines, which :meth:`chunks` gives again; empty if there is nothing.

        Waits for a few lines only: a pipe may be slow.
        """
        while sum(chunk.count(b"\n") for chunk in self._ahead) < PEEKED_LINES:
            chunk = next(self._stream, None)
            if chunk is None:
                break
            if chunk:
                self._ahead.append(chunk)
            elif self._ahead:
                break
        return b"".join(self._ahead)

    def chunks(self) -> Iterator[bytes]:
        """All of it, about 1 MiB at once. An empty chunk, only when following: nothing is new."""
        while self._ahead:
            yield self._ahead.pop(0)
        yield from self._stream
        if not self.files_read and self.troubles:
            raise NginxError("; ".join(self.troubles))

    def _chunks(self) -> Iterator[bytes]:
        for name in self.names:
            if name == STDIN and self._followed and sys.stdin and not sys.stdin.isatty():
                yield from self._until_readable(sys.stdin.fileno())
            raw = self._open(name)
            if raw is None:
                continue
            if name in self._followed.values() and name != STDIN and not raw.packing:
                self._follow(name, raw)
            else:
                yield from self._file(name, raw)
            raw.close()
        if self._followers:
            yield from follow(self._followers, self.pause)

    def _follow(self, name: str, raw: Raw) -> None:
        self._followers.append(Follower(name, os.dup(raw.descriptor)))
        self.files_read += 1

    def _file(self, name: str, raw: Raw) -> Iterator[bytes]:
        self._raw = raw
        last = b"\n"
        try:
            for chunk in chunks_of(raw):
                if last == b"\n":
                    # nginx writes none: they are a hole that a crash or a cut left.
                    chunk = chunk.lstrip(b"\0")  # noqa: PLW2901
                last = chunk[-1:] or last
                if chunk:
                    yield chunk
                if name == STDIN and self._followed:
                    yield from self._until_readable(raw.descriptor)
        except NginxError as problem:
            self.troubles.append(f"{_shown(name)} {problem}")
        if last != b"\n":
            yield b"\n"
        self.files_read += 1
        self._done_bytes += raw.read_bytes
        self._raw = None

    def _until_readable(self, descriptor: int) -> Iterator[bytes]:
        """Empty chunks while a pipe says nothing: who waits for it may have had enough."""
        while not select.select([descriptor], [], [], PAUSE_S)[0]:
            yield b""
            self.pause(0)

    def _open(self, name: str) -> Raw | None:
        try:
            return Raw(_descriptor(name))
        except OSError as error:
            self.troubles.append(f"{_shown(name)} {_why(error)}")
        except NginxError as problem:
            self.troubles.append(f"{_shown(name)} {problem}")
        self._unread.add(name)
        return None

    def _expanded(self, given: Sequence[str]) -> list[str]:
        names = []
        for each in given:
            if each != STDIN and os.path.isdir(each):
                names += self._logs_in(Path(each))
            else:
                names.append(each)
        return names

    def _logs_in(self, directory: Path) -> list[str]:
        try:
            files = sorted(path for path in directory.iterdir() if path.is_file())
        except OSError as error:
            self.troubles.append(f"{directory} {_why(error)}")
            return []
        found = [str(path) for path in files if is_access_log(path.name)]
        others = [path.name for path in files if not is_access_log(path.name)]
        if others:
            shown = ", ".join(others[:MOST_NAMED]) + (" ..." if len(others) > MOST_NAMED else "")
            self.notes.append(f"{directory}: {len(others)} not named like access logs ({shown})")
        if not found:
            self.troubles.append(f"{directory} holds no access logs; name the files")
        return found

    def _without_doubles(self, names: Sequence[str]) -> list[str]:
        """Reading one file twice, by two names, would count all of it twice."""
        seen: dict[object, str] = {}
        for name in names:
            try:
                facts = os.stat(name) if name != STDIN else None
            except OSError:
                facts = None
            identity = (facts.st_dev, facts.st_ino) if facts else name
            if identity in seen:
                self.notes.append(f"{name} is the same file as {seen[identity]}: read once")
            seen.setdefault(identity, name)
        return self._without_packed(list(seen.values()))

    def _without_packed(self, names: Sequence[str]) -> list[str]:
        """While a log is being packed it lies there twice, and the packed one is not whole yet."""
        kept = []
        for name in names:
            plain = PACKED.sub("", name)
            if plain != name and plain in names and _begin_alike(plain, name):
                self.notes.append(f"{name} is {plain}, packed: read once")
            else:
                kept.append(name)
        return kept


def _begin_alike(plain: str, packed: str) -> bool:
    try:
        one, other = _beginning(plain), _beginning(packed)
    except (OSError, NginxError):
        return False
    return bool(one and other) and one == other


def _beginning(name: str) -> bytes:
    """The first line, or as much of it as is compared."""
    raw, found = Raw(_descriptor(name)), b""
    try:
        for chunk in chunks_of(raw):
            found += chunk
            if b"\n" in found or len(found) >= COMPARED_BYTES:
                break
    finally:
        raw.close()
    return found.partition(b"\n")[0][:COMPARED_BYTES]


def _descriptor(name: str) -> int:
    if name == STDIN:
        if sys.stdin is None or sys.stdin.isatty():
            raise NginxError("is a terminal; pipe a log into it: zcat access.log.*.gz | ...")
        return os.dup(sys.stdin.fileno())
    # O_NONBLOCK: a named pipe without a writer would wait for one for ever.
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    if stat.S_ISFIFO(mode) and _OPEN_PIPE.fullmatch(name):
        os.set_blocking(descriptor, True)
        return descriptor
    os.close(descriptor)
    if stat.S_ISFIFO(mode):
        raise NginxError("is a named pipe; give it on standard input: nearcache ... - <PIPE")
    raise NginxError("is no file")


def _why(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "does not exist"
    if isinstance(error, PermissionError):
        return "may not be read by this user; try sudo, or the group adm"
    return f"cannot be read: {error.strerror or error}"


def _size_of(name: str) -> int:
    try:
        return os.stat(name).st_size
    except OSError:
        return 0


def _shown(name: str) -> str:
    return "standard input" if name == STDIN else name
