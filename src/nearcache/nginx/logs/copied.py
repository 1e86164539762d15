"""The copy of a log that was cut: ``copytruncate`` copies a log and then empties it.

What was written between the last look and the cut is in the copy only, behind what was read.
The copy is known by its name, a rotated one of the same log, and by its content: in front of
that place it has the bytes that were read last. It may be packed by now.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import closing, suppress

from nearcache.errors import NginxError
from nearcache.nginx.logs.rotated import PACKED, rotation
from nearcache.nginx.logs.unpack import Raw, chunks_of

MOST_TRIED = 3  # the newest of the rotated files


def rest_of_copy(path: str, position: int, before: bytes) -> int | None:
    """A descriptor whose next bytes are those behind ``position`` of what ``path`` was.

    Args:
        before: the last bytes in front of that place.

    None if there is no such copy.
    """
    for name in _rotated(path):
        with suppress(OSError, NginxError):
            found = _rest(name, position, before)
            if found is not None:
                return found
    return None


def _rotated(path: str) -> list[str]:
    """The newest files that are called like rotated ones of this log; what is packed last."""
    directory, base = os.path.dirname(path), rotation(path)[0]
    found = []
    for name in os.listdir(directory or os.curdir):
        other = os.path.join(directory, name)
        if other != path and rotation(other)[0] == base:
            with suppress(OSError):  # it has just been packed, and removed
                facts = os.stat(other)
                if stat.S_ISREG(facts.st_mode):
                    found.append((facts.st_mtime_ns, other))
    newest = [name for _, name in sorted(found, reverse=True)[:MOST_TRIED]]
    return sorted(newest, key=lambda name: bool(PACKED.search(name)))


def _rest(name: str, position: int, before: bytes) -> int | None:
    with closing(Raw(os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))) as raw:
        if raw.packing:
            return _unpacked_rest(raw, position, before)
        if os.pread(raw.descriptor, len(before), position - len(before)) != before:
            return None
        os.lseek(raw.descriptor, position, os.SEEK_SET)
        return os.dup(raw.descriptor)


def _unpacked_rest(raw: Raw, position: int, before: bytes) -> int | None:
    """As a file without a name: what follows may be larger than memory."""
    at, last = 0, b""
    with tempfile.TemporaryFile() as rest:
        for chunk in chunks_of(raw):
            known = chunk[: position - at]
            at += len(known)
            last = (last + known)[-len(before) :]
            if at == position and last != before:
                return None
            rest.write(chunk[len(known) :])
        if at < position:
            return None
        rest.flush()
        rest.seek(0)
        return os.dup(rest.fileno())
