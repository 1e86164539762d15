"""Types of the native module (crates/nearcache-python)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

LAYOUT_VERSION: int  # of the data file; in its name

def encode(value: object) -> bytes | None:
    """The `exact` bytes of a value, without a header byte; see crates/nearcache-python/src/exact.

    None if the value is not for that format, or some of it would not come back as it was:
    then pickle it.
    """

def decode(payload: bytes) -> Any:
    """The value of `exact` bytes, which may come from anywhere. Raises ValueError."""

class Store:
    """One shared-memory cache file, mapped: an Engine as ``nearcache.engine`` has it.

    Thread-safe; survives ``fork``. The file is found or made by the constructor, which
    raises RegionError or RegionFull if it cannot be used, and ValueError if the sizes make
    no sense.
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
        mean_item_bytes: int | None = None,
        near_items: int = 4096,
        near_bytes: int = 16 << 20,
    ) -> Store:
        """`mean_item_bytes` (key, value and 32) sizes the index; None for what suits most.

        `near_*` bound the decoded objects that a FusedCache keeps in this
        process; 0 items: none.
        """
    @staticmethod
    def existing(base_path: str) -> Store:
        """The store at that path as it is; RegionError if there is none."""
    def get(self, key: bytes) -> bytes | None: ...
    def gets(self, key: bytes) -> tuple[bytes, int] | None:
        """The value and its version, for :meth:`cas`."""
    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...
    def set(self, key: bytes, value: bytes, expires_at_ms: int | None) -> bool:
        """True if stored; False if refused (too large, or the shard stayed locked): then the old value is gone."""
    def set_many(
        self, items: Sequence[tuple[bytes, bytes]], expires_at_ms: int | None
    ) -> list[int]:
        """Stores all; returns the positions that were refused."""
    def add(self, key: bytes, value: bytes, expires_at_ms: int | None) -> bool: ...
    def cas(self, key: bytes, value: bytes, version: int, expires_at_ms: int | None) -> bool:
        """Stores if the key still has `version`. Raises EngineBusy."""
    def get_and_set(self, key: bytes, value: bytes, expires_at_ms: int | None) -> bytes | None:
        """Raises EngineBusy."""
    def incr(self, key: bytes, delta: int) -> int | None:
        """The new value, or None if the key is absent. Keeps the deadline. Raises DataError, EngineBusy."""
    def touch(self, key: bytes, expires_at_ms: int | None) -> bool: ...
    def touch_head(self, key: bytes, expires_at_ms: int | None, size: int) -> bytes | None: ...
    def head(self, key: bytes, size: int) -> bytes | None:
        """The first `size` bytes of the value; no more is copied, and it does not count as a use.

        A value damaged in the file may show a wrong head, where :meth:`get` says None.
        """
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
        """A fencing token (> 0), or None if held or waited for. A dead holder's lock is free at once."""
    def lock_wait(
        self, name: bytes, ticket: int | None, ttl_ms: int, wait_ms: int
    ) -> tuple[int | None, int | None]:
        """Waits in the lock's queue: (token, None), or (None, ticket) when `wait_ms` is over.

        Ticket 0 is no place: all 1,024 of the store are taken, and whoever asks first gets the
        lock. Raises EngineBusy.
        """
    def lock_leave(self, name: bytes, ticket: int) -> None:
        """Gives a place in the queue up."""
    def lock_renew(self, name: bytes, token: int, ttl_ms: int) -> bool: ...
    def lock_release(self, name: bytes, token: int) -> bool: ...

class CacheArguments:
    """What ``BaseCache.__init__`` assigns, and the keys made of it, natively.

    Not for itself: FusedCache and RedisCommands inherit from it. A class that overrides
    Django's key methods, and a KEY_FUNCTION, are honoured.
    """

    key_prefix: str
    version: int
    key_func: Callable[[Any, str, int], str]
    default_timeout: float | None

    def _raw_key(self, key: Any, version: int | None = None) -> bytes:
        """The bytes the store has the key under."""

class FusedCache(CacheArguments):
    """Django's cache methods on a :class:`Store`, each one native call.

    To be inherited before ``BaseCache``. On first use it reads ``engine`` (a Store) and these:

    * ``native_codec`` (True if absent): write values natively, as serializer "auto" does;
      False: with ``codec.encode``.
    * ``bounded`` (False if absent): call ``_make_room(raw_key)`` before each write.

    It also calls ``codec.decode`` for values with a header that is not its own,
    ``_incr_object(key, delta, version)`` to add to what is no 64-bit counter, and adds to
    ``counters.undecodable`` (unless the codec raised ``nearcache.codec.envelope.Stale``) and
    ``counters.refused``.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...
    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any: ...
    def get_many(self, keys: Iterable[Any], version: int | None = None) -> dict[Any, Any]: ...
    def set(self, key: Any, value: Any, timeout: Any = ..., version: int | None = None) -> None: ...
    def set_many(
        self, data: Mapping[Any, Any], timeout: Any = ..., version: int | None = None
    ) -> list[Any]:
        """The keys that were refused."""
    def add(self, key: Any, value: Any, timeout: Any = ..., version: int | None = None) -> bool: ...
    def touch(self, key: Any, timeout: Any = ..., version: int | None = None) -> bool: ...
    def delete(self, key: Any, version: int | None = None) -> bool: ...
    def delete_many(self, keys: Iterable[Any], version: int | None = None) -> None: ...
    def has_key(self, key: Any, version: int | None = None) -> bool: ...
    def __contains__(self, key: Any) -> bool: ...
    def incr(self, key: Any, delta: Any = 1, version: int | None = None) -> Any: ...
    def decr(self, key: Any, delta: Any = 1, version: int | None = None) -> Any: ...

class RedisCommands(CacheArguments):
    """RESP2 commands of Django's arguments, packed; and the values of replies.

    To be inherited before ``BaseCache``. On first use it reads ``native_codec`` (True if
    absent): values are written as serializer "auto" without a compressor does, and read
    natively where they can be; False: all of them with ``codec.encode`` and ``codec.decode``.
    It also calls ``codec.decode`` for values with a header that is not its own, and adds to
    ``counters.undecodable``, unless the codec raised ``nearcache.codec.envelope.Stale``.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...
    def _get_command(self, key: Any, version: int | None = None, /) -> bytes: ...
    def _command(self, name: bytes, key: Any, version: int | None = None, /, *args: bytes) -> bytes:
        """``name``, the final key, ``args``."""
    def _set_command(
        self,
        key: Any,
        value: Any,
        timeout: Any = ...,
        version: int | None = None,
        nx: bool = False,
        /,
    ) -> bytes:
        """``SET``, with ``PX`` unless it never expires, with ``NX`` if asked for.

        A timeout of 0 or less is a ``DEL``, with ``nx`` an ``EXISTS``: their replies are
        numbers, and an add of what is over at once succeeds if the number is 0.
        """
    def _store_command(
        self,
        key: Any,
        raw: bytes,
        timeout: Any = ...,
        version: int | None = None,
        nx: bool = False,
        /,
    ) -> bytes:
        """:meth:`_set_command` of a value that is encoded already."""
    def _set_many_command(
        self, items: dict[Any, Any], timeout: Any = ..., version: int | None = None, /
    ) -> tuple[bytes, int]:
        """A pipeline of :meth:`_set_command`, and how many replies it will have."""
    def _mget_command(self, keys: Iterable[Any], version: int | None = None, /) -> bytes:
        """``MGET``; no bytes at all if there are no keys."""
    def _delete_command(self, keys: Iterable[Any], version: int | None = None, /) -> bytes:
        """``UNLINK``; no bytes at all if there are no keys."""
    def _timeout_ms(self, timeout: Any = ..., /) -> int | None:
        """Milliseconds to live, rounded up; None for ever, 0 for none at all."""
    def _value(self, reply: bytes | None, default: Any = None, /) -> Any:
        """The value of a reply; the default if there is none, or it cannot be read."""
    def _values(self, keys: Sequence[Any], replies: Sequence[bytes | None], /) -> dict[Any, Any]:
        """The values by key, without the missing and those that cannot be read."""
