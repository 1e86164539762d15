"""Which pages of a file are in RAM, asked without reading it.

    cachestat   Linux 6.5: resident, dirty, evicted and recently evicted pages, no mapping
    mincore     before it: resident pages only, through a mapping

Both answer the owner of a file (or root) only; since Linux 5.2 mincore tells others that all
is resident, so for files of others it is not asked. Where neither answers, that is said.

Sources: cachestat(2) in Documentation/admin-guide/mm of Linux, mincore(2). glibc has no
function for the former, so it is called by its number, which all architectures but Alpha share.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

CACHESTAT = 451 if platform.machine() != "alpha" else 561
PAGE_BYTES = mmap.PAGESIZE
MAP_FAILED = ctypes.c_void_p(-1).value


class Pages(NamedTuple):
    """Pages of a file. What mincore does not tell is None."""

    resident: int
    dirty: int | None = None
    evicted: int | None = None  # were resident once, and the kernel needed the room
    recently_evicted: int | None = None  # so lately that reading them again says: too little RAM


Ask = Callable[[int, int, int], Pages | None]
"""(descriptor, offset, length) to pages; None if the kernel does not tell."""


@cache
def method() -> tuple[str, Ask | None]:
    """The best that this kernel has: ("cachestat" or "mincore", how), or ("", None)."""
    for name, ask in (("cachestat", cachestat), ("mincore", mincore)):
        if _answers(ask):
            return name, ask
    return "", None


def cachestat(descriptor: int, offset: int, length: int) -> Pages | None:
    asked = (ctypes.c_uint64 * 2)(offset, length)
    told = (ctypes.c_uint64 * 5)()  # cache, dirty, writeback, evicted, recently evicted
    if _libc().syscall(CACHESTAT, descriptor, asked, told, 0) != 0:
        return None
    return Pages(told[0], told[1] + told[2], told[3], told[4])


def mincore(descriptor: int, offset: int, length: int) -> Pages | None:
    """``offset`` must be that of a page."""
    if length == 0:
        return Pages(0)
    if os.geteuid() not in (0, os.fstat(descriptor).st_uid):
        return None
    libc = _libc()
    # PROT_NONE: nothing can be read through it by accident, so nothing gets resident by it.
    place = libc.mmap(None, length, 0, mmap.MAP_SHARED, descriptor, offset)
    if place == MAP_FAILED:
        return None
    try:
        told = (ctypes.c_ubyte * -(-length // PAGE_BYTES))()
        if libc.mincore(ctypes.c_void_p(place), ctypes.c_size_t(length), told) != 0:
            return None
        return Pages(sum(byte & 1 for byte in told))
    finally:
        libc.munmap(ctypes.c_void_p(place), ctypes.c_size_t(length))


def _answers(ask: Ask) -> bool:
    """Tried on a file of our own: kernels refuse, and so do filters around containers."""
    try:
        descriptor = os.memfd_create("nearcache")
        try:
            os.write(descriptor, b"x")
            told = ask(descriptor, 0, 1)
            return told is not None and told.resident == 1
        finally:
            os.close(descriptor)
    except OSError:
        return False


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
    ]  # fmt: skip
    return libc
