"""This process's part of a recording: which keys, what is noted of a call, and the file.

Keys are sampled, not calls: a key is in for good or out for good, in every process, so that
hit ratios, reuse and popularity can be scaled up (SHARDS: Waldspurger et al., FAST '15). Who
is in is decided by a CRC-32 that begins with a secret: a call that is out pays for that and
no more. The key that is written is a keyed BLAKE2b, which only calls that are in pay for.

Nothing here may harm the application: any exception of ours is counted, told once and
forgotten; nobody waits for the lock longer than a moment; a file that has reached its size
ends the recording. A process that is killed loses what it had not written: the records of a
few seconds.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import pickle
import re
import secrets
import stat
import time
import weakref
import zlib
from dataclasses import dataclass
from typing import Any

from nearcache.base.per_process import Mutex, generation
from nearcache.recording.trace import (
    MAGIC,
    MOST_U16,
    MOST_U32,
    NEVER_EXPIRES,
    NUMBER_OF,
    RECORD,
    UNKNOWN_SIZE,
    Names,
    block,
)

logger = logging.getLogger("nearcache.recording")

BLOCK_RECORDS = 1000
FLUSH_AFTER_NS = 5_000_000_000
LOCK_WAIT_S = 0.02  # then the record is lost, and counted
SQUEEZE_BYTES = 16 * 1024
LEAST_SQUEEZED = 64  # what is smaller is made larger by zlib's own header
MOST_SQUEEZED_KEYS = 4096  # and each once: it costs more than all the rest
MOST_PREFIXES = 1000
NUMBER_BYTES = 8
CHOICES = 2**32
SPREAD = 0x9E3779B1  # odd: CRCs of numbered keys differ in few bits, their products in many

# The first word, dotted or not, of letters only: what keys are named after. What is not followed
# by a separator may be a token or a name, so a key that is one word has no prefix.
_PREFIX = re.compile(r"([A-Za-z_-]{1,32}(?:\.[A-Za-z_-]{1,32}){0,3})[:./|]")


@dataclass(frozen=True, kw_only=True)
class RecorderOptions:
    """What is recorded where. One recorder per process for equal options."""

    path: str
    share: float
    max_bytes: int
    salt: bytes
    prefixes: bool
    backend: str


class Recorder:
    """Notes calls of one cache into one file. Safe for threads, greenlets and forks."""

    def __init__(self, options: RecorderOptions) -> None:
        self.options = options
        self._hash_key = hashlib.blake2b(options.salt, person=b"nearcache-record").digest()
        self._crc = int.from_bytes(self._hash_key[:4])
        self._below = round(options.share * CHOICES)
        # Time of day once, then the monotonic clock: records of one host can be put in order.
        self._epoch_ns = time.time_ns() - time.monotonic_ns()
        self._mutex = Mutex()
        self.state = "recording"  # then "full", or why it cannot write
        self.written = self.lost = self.errors = 0
        self._begin()
        atexit.register(_flush_at_exit, weakref.ref(self))

    def _begin(self) -> None:
        """Nothing of another process: neither its records nor its number nor its file."""
        self._of = generation()
        self._process = secrets.token_hex(4)
        self._descriptor: int | None = None
        self._untold_lost = self._untold_errors = 0
        self._squeezed: set[int] = set()
        self._clear()

    def _clear(self) -> None:
        self._records: list[bytes] = []
        self._oldest_ns = 0
        self._prefixes, self._types = Names(MOST_PREFIXES), Names(255)

    def takes(self, key: Any) -> bool:
        """Whether calls with this key are recorded."""
        try:
            raw = key.encode() if type(key) is str else str(key).encode()
        except Exception:  # noqa: BLE001 - the cache itself will say what is wrong with it
            return False
        return zlib.crc32(raw, self._crc) * SPREAD % CHOICES < self._below

    def note(
        self,
        operation: str,
        key: Any,
        version: Any,
        latency_ns: int,
        outcome: int,
        *,
        value: Any = UNKNOWN_SIZE,
        has_value: bool = False,
        ttl_ms: int | None = 0,
        of: int = 1,
    ) -> None:
        """One key of one call. Never raises."""
        try:
            hashed = self._hashed(key, version) if of else 0
            size, kind, squeezed = UNKNOWN_SIZE, "", 0
            if has_value:
                size, kind, squeezed = self._measured(value, hashed)
            prefix = self._prefix(key) if of else ""
            ttl = NEVER_EXPIRES if ttl_ms is None else min(max(0, ttl_ms), NEVER_EXPIRES - 1)
            lock = self._mutex.now()
            if not lock.acquire(timeout=LOCK_WAIT_S):
                self._lose(1)
                return
            try:
                self._begin_if_forked()
                now_ns = self._epoch_ns + time.monotonic_ns()
                self._records.append(
                    RECORD.pack(
                        now_ns - latency_ns,
                        hashed,
                        min(latency_ns, MOST_U32),
                        size,
                        ttl,
                        self._prefixes.number(prefix),
                        min(of, MOST_U16),
                        NUMBER_OF[operation],
                        outcome,
                        self._types.number(kind),
                        squeezed,
                    )
                )
                self._oldest_ns = self._oldest_ns or now_ns
                due = now_ns - self._oldest_ns > FLUSH_AFTER_NS
                if due or len(self._records) >= BLOCK_RECORDS:
                    self._flush()
            finally:
                lock.release()
        except Exception as error:  # noqa: BLE001 - recording must not break the cache
            self.forgive(error)

    def flush(self) -> None:
        """Write what is buffered. Never raises."""
        try:
            lock = self._mutex.now()
            if lock.acquire(timeout=1.0):
                try:
                    self._begin_if_forked()
                    self._flush()
                finally:
                    lock.release()
        except Exception as error:  # noqa: BLE001
            self.forgive(error)

    def forgive(self, error: Exception) -> None:
        """An error of recording: counted, and told when the state changes."""
        self.errors += 1
        self._untold_errors += 1
        self._say(f"{type(error).__name__}: {error}")

    def as_dict(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "written": self.written,
            "waiting": len(self._records),
            "lost": self.lost,
            "errors": self.errors,
        }

    # -- what is noted ---------------------------------------------------------------------

    def _hashed(self, key: Any, version: Any) -> int:
        text = f"{version}\0{key}".encode(errors="surrogatepass")
        digest = hashlib.blake2b(text, digest_size=8, key=self._hash_key)
        return int.from_bytes(digest.digest())

    def _prefix(self, key: Any) -> str:
        if not self.options.prefixes or not isinstance(key, str):
            return ""
        return first_word(key)

    def _measured(self, value: Any, hashed: int) -> tuple[int, str, int]:
        """(bytes, type, 255 x what is left of them when compressed; 0: not looked at)."""
        kind = type(value).__name__
        if value is None or isinstance(value, bool | int | float):
            return NUMBER_BYTES, kind, 0
        raw = _bytes_of(value)
        return min(len(raw), UNKNOWN_SIZE - 1), kind, self._squeeze(raw, hashed)

    def _squeeze(self, raw: bytes, hashed: int) -> int:
        known = self._squeezed
        if len(raw) < LEAST_SQUEEZED or hashed in known or len(known) >= MOST_SQUEEZED_KEYS:
            return 0
        known.add(hashed)
        head = raw[:SQUEEZE_BYTES]
        return max(1, min(255, round(255 * len(zlib.compress(head, 1)) / len(head))))

    # -- the file --------------------------------------------------------------------------

    def _flush(self) -> None:
        """The caller holds the lock."""
        records = self._records
        if not records:
            return
        head = {
            "process": self._process,
            "share": self.options.share,
            "backend": self.options.backend,
            "prefixes": list(self._prefixes.texts),
            "types": list(self._types.texts),
            "lost": self._untold_lost,
            "errors": self._untold_errors,
        }
        self._clear()
        try:
            whole = self._append(block(head, records))
        except OSError as error:
            self._close()
            self._lose(len(records))
            self.forgive(error)
            return
        if whole:
            self._untold_lost = self._untold_errors = 0
            self.written += len(records)
            self._say("recording")
        else:
            self._lose(len(records))

    def _append(self, data: bytes) -> bool:
        descriptor = self._opened()
        if os.fstat(descriptor).st_size + len(data) > self.options.max_bytes:
            self._below = 0  # nobody is in from now on
            self._say("full")
            return False
        written = os.write(descriptor, data)
        if written < len(data):
            raise OSError(f"only {written} of {len(data)} bytes were written: is the disk full?")
        return True

    def _opened(self) -> int:
        """The file, ours and a recording; a new one if the last was moved away."""
        if self._descriptor is not None:
            if _is_at(self._descriptor, self.options.path):
                return self._descriptor
            self._close()
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(self.options.path, flags, 0o600)
        try:
            _refuse_foreign(descriptor, self.options.path)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return descriptor

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _lose(self, count: int) -> None:
        self.lost += count
        self._untold_lost += count

    def _say(self, state: str) -> None:
        if state != self.state:
            level = logging.INFO if state in ("recording", "full") else logging.WARNING
            logger.log(level, "recording of %s: %s", self.options.path, state)
            self.state = state

    def _begin_if_forked(self) -> None:
        """The caller holds the lock, which is this process's."""
        if self._of != generation():
            self._close()  # our descriptor only: the parent keeps its own
            self._begin()


def first_word(key: str) -> str:
    """What a key is named after, or nothing."""
    found = _PREFIX.match(key)
    return found[1] if found else ""


def _bytes_of(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def _refuse_foreign(descriptor: int, path: str) -> None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        raise OSError(f"{path} is no file of this user's")
    if found.st_size and os.pread(descriptor, len(MAGIC), 0) != MAGIC:
        raise OSError(f"{path} is there, and is no recording")


def _flush_at_exit(reference: weakref.ref[Recorder]) -> None:
    recorder = reference()
    if recorder is not None:
        recorder.flush()
