"""What nginx appends to a log, through rotations and truncation.

    rename + new file   the old one is read on until the new one has lines: between the rename
                        and nginx's reopening (USR1) its workers still write to the old
    copy + truncate     the file is shorter than what was read of it, or has other bytes there: the
                        copy is read to its end, then the file from its start

Files are told apart by device and inode, and a copy by what is in it; never by time. Looks
twice a second. What is written between the copy and the cut is lost for everybody.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence

from nearcache.nginx.logs.copied import rest_of_copy
from nearcache.nginx.logs.unpack import CHUNK_BYTES

PAUSE_S = 0.5
LONGEST_LINE_BYTES = 1 << 20  # as in the native reader
COMPARED_BYTES = 512  # in front of what comes: a line or more, with its time


class Follower:
    """One log. ``descriptor`` is of its newest file, and is this object's to close."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self.rotations = 0
        self.truncations = 0
        self.without_copy = 0
        """Truncations of which no copy was found: what was not read yet is lost."""
        self._position = os.lseek(descriptor, 0, os.SEEK_SET)
        self._begun = b""  # a line without its end yet
        self._before = b""  # the bytes in front of the position
        self._next: int | None = None
        self._next_is_cut = False  # it is no other file, but this one from its start
        self._next_has_lines = False

    def read(self) -> bytes:
        """Whole lines that came since; empty if there are none."""
        chunk = os.read(self.descriptor, CHUNK_BYTES)
        if not chunk:
            return self._look()
        if not self._goes_on():
            return self._start_again()
        self._position += len(chunk)
        self._before = (self._before + chunk)[-COMPARED_BYTES:]
        if not self._begun:
            chunk = chunk.lstrip(b"\0")  # nginx writes none: a hole that a crash left
        whole, newline, rest = (self._begun + chunk).rpartition(b"\n")
        if not newline and len(rest) > LONGEST_LINE_BYTES:
            self._begun = b""
            return rest  # the native reader counts it as too long
        self._begun = rest
        return whole + newline

    def skip(self, keep_bytes: int) -> bytes:
        """Passes over what is there, but for a last line that is not ended yet.

        Gives the whole lines in the last ``keep_bytes`` of what is passed over.
        """
        end = os.fstat(self.descriptor).st_size
        start = max(0, end - keep_bytes)
        lines, newline, _begun = _read_between(self.descriptor, start, end).rpartition(b"\n")
        lines += newline
        self._position = os.lseek(self.descriptor, start + len(lines), os.SEEK_SET)
        self._before = lines[-COMPARED_BYTES:]
        return lines[lines.find(b"\n") + 1 :] if start else lines

    def close(self) -> None:
        os.close(self.descriptor)
        if self._next is not None:
            os.close(self._next)
            self._next = None

    def _look(self) -> bytes:
        """At the end: was the file cut, or another put in its place?"""
        if os.fstat(self.descriptor).st_size < self._position:
            return self._start_again()
        if self._next is not None and self._next_has_lines:
            # The old was at its end once more after the new one had lines.
            return self._switch(self._next)
        self._find_next()
        self._next_has_lines = self._next is not None and os.fstat(self._next).st_size > 0
        return b""

    def _goes_on(self) -> bool:
        """Is what was read last still there, in front of what came?"""
        at = self._position - len(self._before)
        return os.pread(self.descriptor, len(self._before), at) == self._before

    def _start_again(self) -> bytes:
        """The file was cut: first what its copy has more than was read, then from its start."""
        self.truncations += 1
        copy = rest_of_copy(self.path, self._position, self._before)
        os.lseek(self.descriptor, 0, os.SEEK_SET)
        if copy is None:
            self.without_copy += 1
            self._position, self._before = 0, b""
            return self._flush()
        if self._next is not None:
            os.close(self._next)  # it is found again
        self._next, self._next_is_cut, self._next_has_lines = self.descriptor, True, False
        self.descriptor = copy
        self._position, self._before = os.lseek(copy, 0, os.SEEK_CUR), b""
        return self.read()

    def _find_next(self) -> None:
        current = self._next if self._next is not None else self.descriptor
        try:
            if os.path.samestat(os.stat(self.path), os.fstat(current)):
                return
            found = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return  # between a rename and the new file, or not ours to read yet: look again
        if self._next is not None:
            os.close(self._next)
        self._next, self._next_is_cut = found, False

    def _switch(self, descriptor: int) -> bytes:
        os.close(self.descriptor)
        self.descriptor, self._next, self._position, self._before = descriptor, None, 0, b""
        self.rotations += not self._next_is_cut
        self._next_has_lines = self._next_is_cut = False
        return self._flush()

    def _flush(self) -> bytes:
        """A line that its file will never end."""
        begun, self._begun = self._begun, b""
        return begun + b"\n" if begun else b""


def _read_between(descriptor: int, start: int, end: int) -> bytes:
    pieces = []
    while start < end and (piece := os.pread(descriptor, min(CHUNK_BYTES, end - start), start)):
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


def follow(
    followers: Sequence[Follower], pause: Callable[[float], object] = time.sleep
) -> Iterator[bytes]:
    """What comes in all of them, for ever. An empty chunk, then a pause: nothing is new."""
    try:
        while True:
            idle = True
            for each in followers:
                if chunk := each.read():
                    idle = False
                    yield chunk
            if idle:
                yield b""
                pause(PAUSE_S)
    finally:
        for each in followers:
            each.close()
