"""THE CONTRACT of engines: bytes under bytes keys, with deadlines.

An engine knows nothing of Django, of Python objects or of key prefixes. Engines add no prose to
what is said here. ``tests/contract`` says the same as tests.

Keys
    bytes, one to 65,535 of them.
Values
    bytes. A value that is plain decimal digits (``-?(0|[1-9][0-9]*)``) is a counter.
Deadlines
    milliseconds since the Unix epoch, or ``None`` for "never". A value is readable before its
    deadline, and gone from then on. A deadline in the past stores nothing, and removes what was
    there.
Versions
    opaque numbers; a key's version changes whenever its value is set or incremented.
Refusal
    an engine may refuse to store: the item is too large, or a lock did not come free for as long as
    its owner may hold it. The engine then does not raise. It leaves the key absent rather than
    old, and says that it stored nothing.
Errors
    :class:`~nearcache.errors.EngineBusy` where "not stored" would be a wrong answer (incr, cas,
    get_and_set); :class:`~nearcache.errors.DataError` where the value does not fit.

Waiting
    an engine that waits for a network has ``native_async = True`` and an ``a`` twin of each
    method (``aget``; ``alen`` for ``__len__``), to be awaited. Any other engine answers in
    microseconds, so coroutines call its plain methods.

An engine may lose any item at any time, and never shows a value that was deleted or replaced.
Every method may be called from any thread, and after a fork.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

ABSENT = -1
"""What :meth:`Engine.expires_at` returns for a key that is not there."""

ScanItem = tuple[bytes, int, int | None, int]
"""Key, size of the value in bytes (of a counter maybe less than its digits), deadline, version."""


class Engine(Protocol):
    """See the head of this module."""

    def get(self, key: bytes) -> bytes | None: ...

    def gets(self, key: bytes) -> tuple[bytes, int] | None:
        """The value and its version; None if the key is absent."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """As many answers as keys, in their order."""

    def set(self, key: bytes, value: bytes, expires_at_ms: int | None) -> bool:
        """True if stored."""

    def set_many(
        self, items: Sequence[tuple[bytes, bytes]], expires_at_ms: int | None
    ) -> list[int]:
        """The positions of the items that were refused."""

    def add(self, key: bytes, value: bytes, expires_at_ms: int | None) -> bool:
        """Stores if the key is absent; True if stored."""

    def cas(self, key: bytes, value: bytes, version: int, expires_at_ms: int | None) -> bool:
        """Stores if the key still has that version; True if stored."""

    def get_and_set(self, key: bytes, value: bytes, expires_at_ms: int | None) -> bytes | None:
        """Stores, and returns what was there."""

    def incr(self, key: bytes, delta: int) -> int | None:
        """The new value of a counter, whose deadline stays; None if the key is absent.

        Raises DataError if the value is no counter, or the sum leaves 64 signed bits.
        """

    def touch(self, key: bytes, expires_at_ms: int | None) -> bool:
        """Moves the deadline; True if the key was there."""

    def touch_head(self, key: bytes, expires_at_ms: int | None, size: int) -> bytes | None:
        """:meth:`touch`, and the first ``size`` bytes of the value; None if there is no such key.

        In one round trip, however large the value is. For values that hold a deadline of their own.
        """

    def expires_at(self, key: bytes) -> int | None:
        """The deadline, or :data:`ABSENT`."""

    def contains(self, key: bytes) -> bool: ...

    def delete(self, key: bytes) -> bool:
        """True if the key was there."""

    def delete_many(self, keys: Sequence[bytes]) -> int:
        """How many of them were there."""

    def scan(
        self, cursor: int, limit: int, *, prefix: bytes = b"", glob: bytes | None = None
    ) -> tuple[int, list[ScanItem]]:
        """The next cursor, and about ``limit`` items. A scan starts with 0, and 0 ends it.

        A key that is present all along comes at least once. ``glob`` is matched against the whole
        key (see :mod:`nearcache.base.keys`). In an item -1 stands for what the engine would have to
        look up key by key: in Redis size, deadline and version.
        """

    def clear(self) -> None: ...

    def clear_matching(self, *, prefix: bytes = b"", glob: bytes | None = None) -> int:
        """Deletes what :meth:`scan` would list; returns how many."""

    def cull(self, items: int) -> int:
        """Evicts up to so many items, the least useful first; returns how many."""

    def __len__(self) -> int:
        """The number of items. Expired items that were not swept yet may count."""

    def stats(self) -> dict[str, int]: ...

    def check(self) -> list[str]:
        """Walks the whole store. Each broken invariant is a line."""

    def lock_acquire(self, name: bytes, ttl_ms: int) -> int | None:
        """A fencing token, or None if another caller holds the lock or waits for it.

        The token is above every earlier token of this lock. The lock is free again when it is
        released, and when its time runs out. An engine that can tell frees it also when the process
        that holds it is gone. An engine that cannot tell has ``lock_ttl_ms``, the time of locks
        made without one. Names of locks are no keys: ``clear`` and ``scan`` pass over them.
        """

    def lock_renew(self, name: bytes, token: int, ttl_ms: int) -> bool:
        """True if the lock was still held under that token. It then lasts ``ttl_ms`` from now."""

    def lock_release(self, name: bytes, token: int) -> bool:
        """True if the lock was still held under that token.

        A second release, because the first answer got lost, may say True again.
        """

    def lock_wait(
        self, name: bytes, ticket: int | None, ttl_ms: int, wait_ms: int
    ) -> tuple[int | None, int | None]:
        """Waits in the lock's queue, first come first served: ``(token, ticket)``.

        Without a ticket the caller joins the end of the queue. It waits ``wait_ms`` at most, and is
        woken when the lock comes to it: then ``(token, None)`` is returned. Otherwise
        ``(None, ticket)`` is returned, maybe early, and the place is kept for the next call.

        A place is passed over when its process is gone, and when nobody has asked for it for two
        seconds. A caller that comes back after that has its old place, or the last one. With
        ``wait_ms`` 0 the call does not wait: for callers that must not block their thread.
        """

    def lock_leave(self, name: bytes, ticket: int) -> None:
        """Gives up the place in the queue, and the lock if it has just come to that place."""

    def claim(self, key: bytes, owner: int, ttl_ms: int) -> bool:
        """Notes that ``owner`` computes the key's value; False if another owner does.

        A claim is over at :meth:`unclaim`, and when its time runs out. An engine that can tell ends
        it also when its process is gone. Nothing is left of a claim that is over.

        The owner is a number from 1 to 2**63 - 1, which a caller makes up before it asks. So the
        claim can be given up whatever came back. To ask again prolongs the claim. Claims are
        neither keys nor locks: ``scan``, ``clear`` and ``clear_matching`` pass over them. They have
        no queue.

        A claim is no lock: after a failover, an eviction or a long standstill two callers may
        compute at once.
        """

    def unclaim(self, key: bytes, owner: int) -> None:
        """Gives the claim up if this owner has it."""
