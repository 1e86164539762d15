"""THE CONTRACT of engines: bytes under bytes keys, with deadlines.

An engine knows nothing of Django, of Python objects or of key prefixes. Implementations add
no prose to what is said here; ``tests/contract`` says it again as a test.

Keys
    bytes, one to 65,535 of them.
Values
    bytes. A value that is plain decimal digits (``-?(0|[1-9][0-9]*)``) is a counter.
Deadlines
    milliseconds since the Unix epoch, or ``None`` for "never". A value is readable before its
    deadline and gone at it. A deadline in the past stores nothing and removes what was there.
Versions
    opaque numbers; a key's version changes whenever its value is set or incremented.
Refusal
    an engine may refuse to store (item too large, or a lock not free in time though its owner was
    waited for as long as that may be right). It then leaves the key absent rather than old, and
    says so; it does not raise.
Errors
    :class:`~nearcache.errors.EngineBusy` where "not stored" would be a wrong answer (incr, cas,
    get_and_set); :class:`~nearcache.errors.DataError` where the value does not fit.

Waiting
    an engine that waits for a network has ``native_async = True`` and an ``a`` twin of each
    method (``aget``; ``alen`` for ``__len__``), to be awaited. Any other answers in
    microseconds and is called straight from coroutines too.

A cache may lose any item at any time, and never shows a value that was deleted or replaced.
Every method may be called from any thread, and after a fork.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

ABSENT = -1
"""What :meth:`Engine.expires_at` says about a key that is not there."""

ScanItem = tuple[bytes, int, int | None, int]
"""Key, bytes that the value takes (a counter may take fewer than its digits), deadline, version."""


class Engine(Protocol):
    """See the head of this module."""

    def get(self, key: bytes) -> bytes | None: ...

    def gets(self, key: bytes) -> tuple[bytes, int] | None:
        """The value and its version."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """As many answers as keys, in their order."""

    def set(self, key: bytes, value: bytes, expires_at_ms: int | None) -> bool:
        """True if stored."""

    def set_many(
        self, items: Sequence[tuple[bytes, bytes]], expires_at_ms: int | None
    ) -> list[int]:
        """The positions of the items that were refused."""

    def add(self, key: bytes, value: bytes, expires_at_ms: int | None) -> bool:
        """Stores if the key is absent; True if it did."""

    def cas(self, key: bytes, value: bytes, version: int, expires_at_ms: int | None) -> bool:
        """Stores if the key still has that version; True if it did."""

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

        For values that hold a deadline of their own: in one round trip, however large they are.
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
        """The next cursor and about ``limit`` items; start with 0, and 0 ends the scan.

        Keys present all along come at least once. ``glob`` is matched against the whole key
        (see :mod:`nearcache.base.keys`). What an engine would have to look up key by key is -1 in
        the items: in Redis that is size, deadline and version.
        """

    def clear(self) -> None: ...

    def clear_matching(self, *, prefix: bytes = b"", glob: bytes | None = None) -> int:
        """Deletes what :meth:`scan` would list; returns how many."""

    def cull(self, items: int) -> int:
        """Evicts up to that many items, least useful first; returns how many."""

    def __len__(self) -> int:
        """Items stored; those expired and not yet swept may count."""

    def stats(self) -> dict[str, int]: ...

    def check(self) -> list[str]:
        """Walks everything; every broken invariant is a line."""

    def lock_acquire(self, name: bytes, ttl_ms: int) -> int | None:
        """A fencing token above every earlier one of this lock, or None if somebody holds the
        lock, or waits for it.

        The lock is free again when released and when its time runs out; where the engine can
        know, also at once when the process that holds it is gone. An engine that cannot has
        ``lock_ttl_ms``, the time of locks made without one. Names live apart from keys:
        ``clear`` and ``scan`` do not know them.
        """

    def lock_renew(self, name: bytes, token: int, ttl_ms: int) -> bool:
        """True if the lock was still held under that token, and then for ``ttl_ms`` from now."""

    def lock_release(self, name: bytes, token: int) -> bool:
        """True if the lock was still held under that token.

        Repeated, because the first answer got lost, it may say True again.
        """

    def lock_wait(
        self, name: bytes, ticket: int | None, ttl_ms: int, wait_ms: int
    ) -> tuple[int | None, int | None]:
        """Waits in the lock's queue, first come first served: ``(token, ticket)``.

        Without a ticket the caller joins the end. It waits ``wait_ms`` at most, woken when the
        lock comes to it: ``(token, None)`` then; otherwise ``(None, ticket)``, and its place is
        kept for the next call. It may return early. Others go past a place when its process is
        gone, and when nobody has asked for it for two seconds; who then comes back has the old
        place or the last one. 0 does not wait: for callers that must not block their thread.
        """

    def lock_leave(self, name: bytes, ticket: int) -> None:
        """Gives the place in the queue up, and the lock if it has just come to that place."""

    def claim(self, key: bytes, owner: int, ttl_ms: int) -> bool:
        """Notes that ``owner`` computes the key's value; False if somebody else does.

        A claim is over at :meth:`unclaim`, when its time runs out, and, where the engine can
        know, when its process is gone; nothing is left of it then. The owner is a number from 1
        to 2**63 - 1 that a caller makes up before it asks: asking again prolongs its claim, and
        it can be undone whatever came back. Claims live apart from keys and from locks:
        ``scan``, ``clear`` and ``clear_matching`` do not know them. Nobody waits in a queue.

        No lock: after a failover, an eviction or a long standstill two may compute at once.
        """

    def unclaim(self, key: bytes, owner: int) -> None:
        """Gives the claim up if this owner has it."""
