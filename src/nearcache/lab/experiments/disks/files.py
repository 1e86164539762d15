"""A directory as a cache keeps it: two levels of subdirectories, many small files.

Sizes are drawn from what caches hold: most files a few kilobytes, some many. fio reads them.
``get`` and ``put`` here are what a file cache does around its reads and writes, because
fio opens its files before it looks at the clock.

    get   open, fstat, read all, close
    put   write a new file beside, close, rename it over the old one; no fsync, as caches do

What is replaced is a second set, so that reads never wait for its pages to be written.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from nearcache.lab.base.messages import Phase

FILE_COUNT = 256
GET, PUT = "files", "replaced"
SYNCED, LARGE = "synced", "large"
OTHERS = {SYNCED: 4 << 20, LARGE: 64 << 20}  # what fio syncs, what it reads from end to end
# (kilobytes, share of the files): half are one block, a few are pages with pictures in them.
SIZES_KB = ((4, 0.50), (8, 0.22), (16, 0.14), (32, 0.09), (64, 0.04), (128, 0.01))
HEAD_BYTES = 16  # of each file: a checksum over the rest
MOST_CALLS = 2000
LOOKED_AT = 1000  # entries, to see whether a directory is somebody's cache
LIVE = re.compile(r"[0-9a-f]{32}(\.\d{10})?|.*\.djcache|cache\.db|.*\.val")
HASHED = re.compile(r"[0-9a-f]{1,3}")
clock = time.perf_counter_ns


class WrongContent(Exception):
    """A file holds something else than was written; the message names it."""


def lay_out(directory: Path, seed: int) -> list[str]:
    """Make the files, those that are read and those that are replaced; the names of either."""
    rng = random.Random(seed)
    names = []
    for number in range(FILE_COUNT):
        # Short: fio takes no line of more than 4,096 characters, and gets them all in one.
        name = f"{number % 16:x}/{number // 16:02x}/{number:03x}"
        read, replaced = directory / GET / name, directory / PUT / name
        for path in (read, replaced):
            path.parent.mkdir(parents=True, exist_ok=True)
        _write_through(read, content(rng))
        replaced.write_bytes(content(rng))
        names.append(name)
    for name, size in OTHERS.items():
        _write_through(directory / name, rng.randbytes(size))
    return names


def _write_through(path: Path, data: bytes) -> None:
    """On the disk when it returns: a direct read would otherwise have to write it first."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def content(rng: random.Random) -> bytes:
    """A head and a body; whole blocks, so that O_DIRECT can read it."""
    (kilobytes,) = rng.choices([size for size, _ in SIZES_KB], [share for _, share in SIZES_KB])
    body = rng.randbytes(kilobytes * 1024 - HEAD_BYTES)
    return _checksum(body) + body


def get_files(directory: Path, names: Sequence[str], rng: random.Random, budget_ns: int) -> Phase:
    phase = Phase("get_file")
    while _goes_on(phase, budget_ns):
        path = str(directory / GET / rng.choice(names))
        start = clock()
        found = read_file(path)
        phase.samples.append(clock() - start)
        phase.calls += 1
        if found[:HEAD_BYTES] != _checksum(found[HEAD_BYTES:]):
            raise WrongContent(f"{path} is damaged")
        phase.hits += 1
    return phase


def put_files(directory: Path, names: Sequence[str], rng: random.Random, budget_ns: int) -> Phase:
    phase = Phase("put_file")
    while _goes_on(phase, budget_ns):
        path = str(directory / PUT / rng.choice(names))
        size = os.stat(path).st_size
        body = rng.randbytes(size - HEAD_BYTES)
        data = _checksum(body) + body
        start = clock()
        replace_file(path, data)
        phase.samples.append(clock() - start)
        phase.calls += 1
        if read_file(path) != data:
            raise WrongContent(f"{path} does not hold what was put there")
        phase.hits += 1
    return phase


def read_file(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def replace_file(path: str, data: bytes) -> None:
    scratch = f"{path}.new"
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
    os.rename(scratch, path)


def looks_live(directory: Path) -> str:
    """The name of a file that says that this is somebody's cache; empty if there is none.

    Looks at the directory and, as nginx has them, at those below with one to three digits.
    """
    for level in (directory, *_hashed(directory), *_hashed(directory, depth=2)):
        for entry in islice(level.iterdir(), LOOKED_AT):
            if LIVE.fullmatch(entry.name):
                return str(entry.relative_to(directory))
    return ""


def _hashed(directory: Path, depth: int = 1) -> list[Path]:
    found = [
        entry
        for entry in islice(directory.iterdir(), LOOKED_AT)
        if HASHED.fullmatch(entry.name) and entry.is_dir()
    ]
    return found if depth == 1 else [below for entry in found for below in _hashed(entry)]


def _goes_on(phase: Phase, budget_ns: int) -> bool:
    return phase.calls < 20 or (phase.calls < MOST_CALLS and sum(phase.samples) < budget_ns)


def _checksum(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=HEAD_BYTES).digest()
