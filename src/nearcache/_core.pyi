"""Types of the native module (crates/nearcache-python)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

LAYOUT_VERSION: int

class Store:
    """One shared-memory cache file, mapped. Keys and values are bytes.

    Thread-safe; survives ``fork``. The file is found or made by the constructor.
    A value is one header byte (see ``nearcache.codec``) and a payload, or raw
    decimal digits, which :meth:`incr` can add to.

    Times are milliseconds since the Unix epoch; ``None`` means "never expires".
    Raises ``RegionError`` or ``RegionFull`` if the file cannot be used.
    """

    path: str  # the data file
    created: bool  # True if this call made the file: the cache starts empty
    size_bytes: int  # of the data file; may differ from what was asked, see `notice`
    max_item_bytes: int
    notice: str | None  # what the caller should know, for example "size differs"

    def __new__(
        cls,
        base_path: str,
        *,
        size_bytes: int,
        max_item_bytes: int | None = None,
    ) -> Store: ...
    def get(self, key: bytes) -> bytes | None: ...
    def gets(self, key: bytes) -> tuple[bytes, int] | None:
        """The value and its version, for :meth:`cas`."""
    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...
    def set(self, key: bytes, value: bytes, expires_at_ms: int | None) -> bool:
        """True if stored; False if refused (too large, or the shard stayed locked): then the old value is gone."""
    def set_many(self, items: Sequence[tuple[bytes, bytes]], expires_at_ms: int | None) -> list[int]:
        """Stores all; returns the positions that were refused."""
    def add(self, key: bytes, value: bytes, expires_at_ms: int | None) -> bool: ...
    def cas(self, key: bytes, value: bytes, version: int, expires_at_ms: int | None) -> bool:
        """Stores if the key still has `version`. Raises EngineBusy."""
    def get_and_set(self, key: bytes, value: bytes, expires_at_ms: int | None) -> bytes | None:
        """Raises EngineBusy."""
    def incr(self, key: bytes, delta: int) -> int | None:
        """The new value, or None if the key is absent. Keeps the deadline. Raises DataError, EngineBusy."""
    def touch(self, key: bytes, expires_at_ms: int | None) -> bool: ...
    def expires_at(self, key: bytes) -> int | None:
        """-1 if absent, None if it never expires."""
    def contains(self, key: bytes) -> bool: ...
    def delete(self, key: bytes) -> bool: ...
    def delete_many(self, keys: Sequence[bytes]) -> int: ...
    def scan(
        self, cursor: int, limit: int, *, prefix: bytes = b"", glob: bytes | None = None
    ) -> tuple[int, list[tuple[bytes, int, int | None, int]]]:
        """(next cursor, [(key, value bytes, expires_at_ms, stored-at version)]); a next cursor of 0 ends the scan."""
    def clear(self) -> None: ...
    def clear_matching(self, *, prefix: bytes = b"", glob: bytes | None = None) -> int: ...
    def cull(self, items: int) -> int:
        """Evicts that many items in the eviction policy's order."""
    def __len__(self) -> int:
        """Items stored, those expired but not yet swept included."""
    def stats(self) -> dict[str, int]: ...
    def check(self) -> list[str]:
        """Walks everything; every broken invariant is a line."""
    def lock_acquire(self, name: bytes, ttl_ms: int) -> int | None:
        """A fencing token (> 0), or None if held. A dead holder's lock is free at once."""
    def lock_renew(self, name: bytes, token: int, ttl_ms: int) -> bool: ...
    def lock_release(self, name: bytes, token: int) -> bool: ...
