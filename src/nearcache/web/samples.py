"""Where samples go: a directory of mapped files, shared by all workers of a host.

The articles kept their samples in the caches that they measured: read a list, append, write it
back. Of 34,902 requests a third left no trace, and the slower a cache, the more of its own.
Here every worker process counts in a file that it alone writes, and a reader adds them up.

    control      magic | epoch | slots                  8-byte words, in the host's order
    slot-000     magic | epoch | 6 words unused | series | series | ...
    slot-001     ...
    a series     done | missed | failed | wrong | lost | sum ns | max ns | stored bytes
                 | 7 words unused | attempted | 2048 buckets (buckets.py)

Invariants. Comments cite them.

- **P1** A slot is written by one process: the one that holds its ``flock``, which the kernel
  lets go of when that process ends, however it ends. A newcomer takes a free slot over with
  what is in it, so there are never more slots than there were workers at one time.
- **P2** Within that process a mutex is held from the first to the last word of a change.
- **P3** ``attempted`` moves before the cache is asked, the outcome when it has answered. So
  attempted = done + missed + failed + wrong + lost + those under way, always.
- **P4** What a process had under way when it died becomes ``lost``, by whoever next finds its
  slot free.
- **P5** A reset raises the epoch in ``control``. A slot of another epoch counts as empty, and
  its owner empties it before its next attempt. What is under way at a reset is not counted.
- **P6** Files are made, slots chosen, looked after (P4) and reset under the directory's
  ``flock``.

Words are read and written whole. A reader may meet a change half made, and is then off by
what happened in that instant. Files are allocated in full when they are made: on a tmpfs
that is full, touching a hole would kill the worker (SIGBUS); this way it is an error.

Not here: what is measured (bench.py), what the numbers mean (summary.py).
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from nearcache.base.per_process import Mutex
from nearcache.errors import LabError
from nearcache.web.buckets import BUCKETS, bucket_of

MAGIC = 0x6E63776562303101  # another layout is another number
WORD_BYTES = 8
HEAD_WORDS = 8
SERIES_HEAD_WORDS = 16
SERIES_WORDS = SERIES_HEAD_WORDS + BUCKETS
CONTROL_BYTES = 4096
MOST_SLOTS = 512
FORGOTTEN_AFTER_S = 60.0

MAGIC_WORD, EPOCH, SLOTS = range(3)
DONE, MISSED, FAILED, WRONG, LOST, SUM_NS, MAX_NS, STORED_BYTES = range(8)
# Behind the outcomes, so that who reads from front to back never finds more settled than begun.
ATTEMPTED = SERIES_HEAD_WORDS - 1

Outcome = Literal["done", "missed", "failed", "wrong"]
OUTCOME_WORDS: dict[Outcome, int] = {
    "done": DONE,
    "missed": MISSED,
    "failed": FAILED,
    "wrong": WRONG,
}


@dataclass
class Series:
    """One series, added up over workers."""

    attempted: int = 0
    done: int = 0
    missed: int = 0
    failed: int = 0
    wrong: int = 0
    lost: int = 0
    sum_ns: int = 0
    max_ns: int = 0
    stored_bytes: int = 0
    counts: list[int] = field(default_factory=lambda: [0] * BUCKETS)

    @classmethod
    def of(cls, words: Sequence[int]) -> Series:
        """From the words of one slot."""
        return cls(
            attempted=words[ATTEMPTED],
            done=words[DONE],
            missed=words[MISSED],
            failed=words[FAILED],
            wrong=words[WRONG],
            lost=words[LOST],
            sum_ns=words[SUM_NS],
            max_ns=words[MAX_NS],
            stored_bytes=words[STORED_BYTES],
            counts=list(words[SERIES_HEAD_WORDS:]),
        )

    @property
    def under_way(self) -> int:
        settled = self.done + self.missed + self.failed + self.wrong + self.lost
        return self.attempted - settled

    def __add__(self, other: Series) -> Series:
        return Series(
            attempted=self.attempted + other.attempted,
            done=self.done + other.done,
            missed=self.missed + other.missed,
            failed=self.failed + other.failed,
            wrong=self.wrong + other.wrong,
            lost=self.lost + other.lost,
            sum_ns=self.sum_ns + other.sum_ns,
            max_ns=max(self.max_ns, other.max_ns),
            stored_bytes=max(self.stored_bytes, other.stored_bytes),
            counts=[a + b for a, b in zip(self.counts, other.counts, strict=True)],
        )


class Slot:
    """A file that this process alone writes (P1)."""

    def __init__(self, descriptor: int, words: memoryview[int]) -> None:
        self.pid = os.getpid()
        self.descriptor = descriptor
        self.words = words

    def empty_for(self, epoch: int) -> None:
        """Forget everything. The epoch comes last: nobody reads what is half gone (P5)."""
        for base in self._bases():
            if self.words[base + ATTEMPTED]:
                for word in range(base, base + SERIES_WORDS):
                    self.words[word] = 0
        self.words[EPOCH] = epoch

    def write_off(self) -> None:
        """What its last owner had under way will never be settled (P4)."""
        for base in self._bases():
            head = self.words[base : base + SERIES_HEAD_WORDS].tolist()
            self.words[base + LOST] += Series.of(head).under_way

    def _bases(self) -> range:
        return range(HEAD_WORDS, len(self.words), SERIES_WORDS)


class Attempt(NamedTuple):
    """One operation that is under way."""

    slot: Slot
    epoch: int
    base: int  # of its series, in words

    @property
    def counts(self) -> bool:
        """Not if samples were reset since (P5), nor in the copy of a request that a fork made."""
        return self.slot.words[EPOCH] == self.epoch and self.slot.pid == os.getpid()


class SampleStore:
    """The samples of these series. Nothing is opened before it is needed.

    Raises:
        LabError: by any method, if the directory cannot be used; the message says why.
    """

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        self.directory = directory
        self.names = tuple(names)
        self._bases = {n: HEAD_WORDS + i * SERIES_WORDS for i, n in enumerate(self.names)}
        self._slot_bytes = (HEAD_WORDS + len(self.names) * SERIES_WORDS) * WORD_BYTES
        self._mutex = Mutex()
        self._control: memoryview[int] | None = None
        self._slot: Slot | None = None
        self._all: list[memoryview[int]] = []

    # -- writing -------------------------------------------------------------------------------

    def begin(self, name: str) -> Attempt:
        """An operation of this series begins. ``end`` it, whatever happens."""
        with self._mutex.now():
            slot, epoch = self._own_slot(), self._open_control()[EPOCH]
            if slot.words[EPOCH] != epoch:
                slot.empty_for(epoch)
            slot.words[self._bases[name] + ATTEMPTED] += 1
        return Attempt(slot, epoch, self._bases[name])

    def end(self, attempt: Attempt, outcome: Outcome, ns: int = 0) -> None:
        """It ended. Only what is done has a time."""
        with self._mutex.now():
            words, base = attempt.slot.words, attempt.base
            if not attempt.counts:
                return
            if outcome == "done":
                words[base + SERIES_HEAD_WORDS + bucket_of(ns)] += 1
                words[base + SUM_NS] += ns
                words[base + MAX_NS] = max(words[base + MAX_NS], ns)
            words[base + OUTCOME_WORDS[outcome]] += 1

    def note_stored_bytes(self, attempt: Attempt, size: int) -> None:
        """What the value of this series takes where it is stored."""
        with self._mutex.now():
            if attempt.counts:
                attempt.slot.words[attempt.base + STORED_BYTES] = size

    def reset(self) -> None:
        """Forget all samples of all workers (P5)."""
        control = self._open_control()
        with self._locked():
            control[EPOCH] += 1

    # -- reading -------------------------------------------------------------------------------

    def totals(self) -> dict[str, Series]:
        """All series, each added up over all workers, dead ones included."""
        control = self._open_control()
        with self._locked():
            self._look_after_the_dead(control[SLOTS])
        found = {name: Series() for name in self.names}
        for words in self._current_slots():
            for name, base in self._bases.items():
                if words[base + ATTEMPTED]:
                    found[name] += Series.of(words[base : base + SERIES_WORDS].tolist())
        return found

    def mean_ns(self, *names: str) -> float | None:
        """The mean of all that is done in these series; None if that is nothing."""
        slots = self._current_slots()
        bases = [self._bases[name] for name in names]
        done = sum(words[base + DONE] for words in slots for base in bases)
        total_ns = sum(words[base + SUM_NS] for words in slots for base in bases)
        return total_ns / done if done else None

    # -- files ---------------------------------------------------------------------------------

    def _own_slot(self) -> Slot:
        if self._slot is not None and self._slot.pid != os.getpid():
            # Forked. Our copy would keep the parent's slot locked when the parent is gone. Not
            # a fork hook: uWSGI forks without calling them.
            os.close(self._slot.descriptor)
            self._slot = None
        if self._slot is None:
            control = self._open_control()
            with self._locked():
                self._slot = self._take_slot(control)
        return self._slot

    def _take_slot(self, control: memoryview[int]) -> Slot:
        for number in range(MOST_SLOTS):
            descriptor, words = self._open(self._slot_path(number), self._slot_bytes)
            if _try_lock(descriptor):
                slot = Slot(descriptor, words)
                slot.write_off()
                control[SLOTS] = max(control[SLOTS], number + 1)
                return slot
            os.close(descriptor)
        raise LabError(f"more than {MOST_SLOTS} workers share {self.directory}; start fewer")

    def _look_after_the_dead(self, slots: int) -> None:
        for number in range(slots):
            descriptor, words = self._open(self._slot_path(number), self._slot_bytes)
            try:
                if _try_lock(descriptor):
                    Slot(descriptor, words).write_off()
            finally:
                os.close(descriptor)

    def _current_slots(self) -> list[memoryview[int]]:
        """The words of all slots of this epoch."""
        control = self._open_control()
        with self._mutex.now():
            while len(self._all) < control[SLOTS]:
                descriptor, words = self._open(self._slot_path(len(self._all)), self._slot_bytes)
                os.close(descriptor)
                self._all.append(words)
            return [words for words in self._all if words[EPOCH] == control[EPOCH]]

    def _slot_path(self, number: int) -> Path:
        return self.directory / f"slot-{number:03}"

    def _open_control(self) -> memoryview[int]:
        if self._control is None:
            private_directory(self.directory.parent)
            private_directory(self.directory)
            with self._locked():
                descriptor, self._control = self._open(self.directory / "control", CONTROL_BYTES)
            os.close(descriptor)
        return self._control

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """P6. A descriptor of its own, or threads of one process would all be let in."""
        try:
            descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            # Mapped files outlive their names: workers would go on counting where nobody reads.
            raise LabError(
                f"{self.directory}, where samples are kept, is gone ({error.strerror}); restart the"
                " web server, and give NEARCACHE_WEB a DIRECTORY that nobody cleans up"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _open(self, path: Path, size: int) -> tuple[int, memoryview[int]]:
        """A file of ours and its words; made if it is not there."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = -1
        try:
            descriptor = os.open(path, flags, 0o600)
            return descriptor, _words(descriptor, path, size)
        except OSError as error:
            _close(descriptor)
            hint = "make room, or give NEARCACHE_WEB a DIRECTORY elsewhere"
            advice = f"; {hint}" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
            raise LabError(f"cannot use {path}: {error.strerror}{advice}") from error
        except BaseException:
            _close(descriptor)
            raise


def _words(descriptor: int, path: Path, size: int) -> memoryview[int]:
    found = os.fstat(descriptor).st_size
    if found < size:
        os.posix_fallocate(descriptor, 0, size)
    words = memoryview(mmap.mmap(descriptor, size)).cast("Q")
    if not words[MAGIC_WORD]:
        words[MAGIC_WORD] = MAGIC  # new, or its maker died in the line above
    if found > size or words[MAGIC_WORD] != MAGIC:
        raise LabError(f"{path} is not a file of samples; remove {path.parent} and try again")
    return words


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)


def private_directory(path: Path) -> None:
    """Make it if it is not there; nobody else may have made it, or write to it."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise LabError(f"cannot make {path}: {error.strerror}; set a DIRECTORY") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise LabError(f"{path} is not a directory of this user alone; set another DIRECTORY")


def forget_former(directory: Path, prefix: str) -> None:
    """Remove what other settings of this site have left behind and no process uses."""
    for former in directory.parent.glob(f"{prefix}*"):
        if former != directory and _is_forgotten(former):
            shutil.rmtree(former, ignore_errors=True)


def _is_forgotten(directory: Path) -> bool:
    try:
        # A worker that has just made it may not have its slot yet.
        if time.time() - directory.stat().st_mtime < FORGOTTEN_AFTER_S:
            return False
        return all(_is_free(slot) for slot in directory.glob("slot-*"))
    except OSError:
        return False  # somebody else is removing it


def _is_free(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return _try_lock(descriptor)
    finally:
        os.close(descriptor)
