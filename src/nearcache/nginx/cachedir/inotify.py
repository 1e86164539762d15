"""inotify: the kernel tells what happens in directories.

An event is queued before the system call that caused it returns. So who reads the queue now
knows of everything that was done before. Three things are not told: what happened before a
directory was watched, what did not fit into the queue (``IN_Q_OVERFLOW``), and what another
host does to a file system that it shares (:func:`is_shared`).

Called by ctypes: it is three functions and one structure, and has not changed since Linux 2.6.
Sources: inotify(7), statfs(2).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import struct
import sys
import termios
from functools import cache
from typing import NamedTuple

CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x8, 0x40, 0x80, 0x100, 0x200
OVERFLOW, IGNORED, ONLY_DIRECTORIES, IS_DIRECTORY = 0x4000, 0x8000, 0x1000000, 0x40000000

HEAD = struct.Struct("iIII")  # watch, mask, cookie, bytes of the name
SHARED = frozenset(
    {
        0x6969,  # NFS
        0x517B,  # SMB
        0xFF534D42,  # CIFS
        0xFE534D42,  # SMB2
        0x01021997,  # 9p
        0x65735546,  # FUSE: sshfs, GlusterFS and so on
        0x00C36400,  # Ceph
        0x5346414F,  # AFS
        0x73757245,  # Coda
        0x01161970,  # GFS2
        0x7461636F,  # OCFS2
        0x0BD00BD0,  # Lustre
        0x786F4256,  # VirtualBox
    }
)


class Event(NamedTuple):
    """What happened to ``name`` in the directory of a watch."""

    watch: int
    mask: int
    name: str


class Inotify:
    """One queue. OSError (``EMFILE``) if this user has too many."""

    def __init__(self) -> None:
        flags = os.O_NONBLOCK | os.O_CLOEXEC
        self._descriptor = _checked(_libc().inotify_init1(flags))

    def close(self) -> None:
        os.close(self._descriptor)

    def watch(self, directory: int, mask: int) -> int:
        """The number of the watch of an open directory, whatever its path is by now.

        OSError: ``ENOSPC`` if this user watches too many.
        """
        path = f"/proc/self/fd/{directory}".encode()
        watched = _libc().inotify_add_watch(self._descriptor, path, mask | ONLY_DIRECTORIES)
        return _checked(watched)

    def wait(self, timeout_s: float) -> bool:
        """Until there is an event: then True."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def read(self, at_most: int | None = None) -> list[Event]:
        """The events that there are now, in their order.

        Args:
            at_most: bytes of them; at least an event's, which are below 300.
        """
        waiting = bytearray(4)
        fcntl.ioctl(self._descriptor, termios.FIONREAD, waiting)
        size = int.from_bytes(waiting, sys.byteorder)
        size = size if at_most is None else min(size, at_most)
        return _events(os.read(self._descriptor, size)) if size else []


def _events(read: bytes) -> list[Event]:
    found, at = [], 0
    while at < len(read):
        watch, mask, _, length = HEAD.unpack_from(read, at)
        at += HEAD.size
        found.append(Event(watch, mask, os.fsdecode(read[at : at + length].rstrip(b"\0"))))
        at += length
    return found


def is_shared(directory: int) -> bool:
    """May other hosts change this open directory, which nobody would tell?"""
    told = ctypes.create_string_buffer(256)  # more than a struct statfs
    _checked(_libc().fstatfs(directory, told))
    kind = ctypes.c_long.from_buffer(told).value  # its first member
    return kind & 0xFFFFFFFF in SHARED


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
