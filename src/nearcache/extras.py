"""What Django's cache API lacks, written once for every backend.

The names are those of django-redis where it has them: ``ttl``, ``pttl``, ``expire``,
``persist``, ``keys``, ``iter_keys``, ``delete_pattern``, ``lock``. ``incr_version`` keeps the
deadline. ``get_or_set`` is in :mod:`nearcache.stampede`.

A backend brings Django's own methods and the three properties at the head of
:class:`Extras`; everything here goes through those.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache, default_key_func

from nearcache.clock import Clock, SystemClock
from nearcache.codec import Codec, Undecodable
from nearcache.engine import ABSENT, Engine
from nearcache.errors import EngineBusy, OptionError
from nearcache.keys import KeySpace, encode_key
from nearcache.locks import Lock
from nearcache.metrics import Counters

SCAN_ITEMS = 1000
EXPIRED_MS = 1  # a deadline that has passed on any clock
ENDLESS_S = 10**11  # timeouts beyond three thousand years mean "never", infinity included
INCR_ATTEMPTS = 1000


class Extras(BaseCache):
    """The methods beyond Django's; see the head of this module."""

    clock: ClassVar[Clock] = SystemClock()

    @property
    def engine(self) -> Engine:
        """The engine, opened on first use."""
        raise NotImplementedError

    @property
    def codec(self) -> Codec:
        raise NotImplementedError

    @property
    def counters(self) -> Counters:
        """What this process has forgiven; shared by all backends on one store."""
        raise NotImplementedError

    # -- deadlines ---------------------------------------------------------------------------

    def ttl(self, key: Any, version: int | None = None) -> int | None:
        """Seconds left, rounded up; None if it never expires, 0 if there is no such key."""
        left_ms = self.pttl(key, version)
        return None if left_ms is None else -(-left_ms // 1000)

    def pttl(self, key: Any, version: int | None = None) -> int | None:
        """Milliseconds left; None if it never expires, 0 if there is no such key."""
        expires_at_ms = self.engine.expires_at(self._raw_key(key, version))
        if expires_at_ms is None:
            return None
        return 0 if expires_at_ms == ABSENT else max(0, expires_at_ms - self.clock.now_ms())

    def expire(self, key: Any, timeout: Any, version: int | None = None) -> bool:
        """Lets the key live ``timeout`` more seconds; True if it was there."""
        return self.touch(key, timeout, version)

    def persist(self, key: Any, version: int | None = None) -> bool:
        """Lets the key live for ever; True if it was there."""
        return self.touch(key, None, version)

    # -- compare and set ---------------------------------------------------------------------

    def gets(self, key: Any, version: int | None = None) -> tuple[Any, int] | None:
        """The value and a token for :meth:`cas`, or None if there is no such key."""
        found = self.engine.gets(self._raw_key(key, version))
        if found is None:
            return None
        try:
            return self.codec.decode(found[0]), found[1]
        except Undecodable:
            self.counters.undecodable += 1
            return None

    def cas(
        self,
        key: Any,
        value: Any,
        token: int,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
    ) -> bool:
        """Stores if nobody changed the key since :meth:`gets`; True if it did."""
        raw = self.codec.encode(value)
        return self.engine.cas(
            self._raw_key(key, version), raw, token, self._expires_at_ms(timeout)
        )

    # -- many keys ---------------------------------------------------------------------------

    def keys(self, pattern: str = "*", version: int | None = None) -> list[str]:
        """The keys of this prefix and version that match, as they were given to ``set``."""
        return list(self.iter_keys(pattern, version))

    def iter_keys(self, pattern: str = "*", version: int | None = None) -> Iterator[str]:
        """:meth:`keys`, one after the other; a key present all along comes exactly once."""
        space = self._key_space(version)
        seen: set[bytes] = set()
        cursor = 0
        while True:
            cursor, items = self.engine.scan(
                cursor, SCAN_ITEMS, prefix=space.prefix or b"", glob=space.glob(pattern)
            )
            for raw, *_ in items:
                if raw not in seen:
                    seen.add(raw)
                    yield space.user_key(raw)
            if cursor == 0:
                return

    def delete_pattern(self, pattern: str, version: int | None = None) -> int:
        """Deletes the keys that match; returns how many."""
        space = self._key_space(version)
        return self.engine.clear_matching(prefix=space.prefix or b"", glob=space.glob(pattern))

    def clear(self) -> None:
        """Empties the store; with a KEY_PREFIX, only of the keys of that prefix.

        With a KEY_PREFIX and a KEY_FUNCTION of your own the whole store is emptied: such
        keys do not show where their prefix ends, and a cache may always lose too much.
        """
        if self.key_prefix and self.key_func is default_key_func:
            self.engine.clear_matching(prefix=encode_key(f"{self.key_prefix}:"))
        else:
            self.engine.clear()

    # -- one caller at a time ----------------------------------------------------------------

    def lock(
        self,
        key: Any,
        timeout: float | None = None,
        blocking_timeout: float | None = None,
        version: int | None = None,
    ) -> Lock:
        """A lock of that name, to be held by one caller on this host at a time.

        ``timeout``: seconds until it is free again although nobody released it; None for
        "until its process ends". ``blocking_timeout``: seconds to wait for it; None for as
        long as it takes. Use it as ``with`` or ``async with``.
        """
        return Lock(
            self.engine,
            self._raw_key(key, version),
            timeout_s=timeout,
            wait_s=blocking_timeout,
            clock=self.clock,
            counters=self.counters,
        )

    # -- numbers -----------------------------------------------------------------------------

    def _incr_object(self, key: Any, delta: Any, version: int | None) -> Any:
        """incr for what is no 64-bit counter: floats, big integers. Atomic, keeps the deadline."""
        raw_key = self._raw_key(key, version)
        for _ in range(INCR_ATTEMPTS):
            found = self.gets(key, version)
            expires_at_ms = self.engine.expires_at(raw_key)
            if found is None or expires_at_ms == ABSENT:
                raise ValueError(f"Key '{key}' not found")
            total = found[0] + delta
            if self.engine.cas(raw_key, self.codec.encode(total), found[1], expires_at_ms):
                return total
        raise EngineBusy(f"{key!r} changed {INCR_ATTEMPTS} times while it was to be incremented")

    # -- versions ----------------------------------------------------------------------------

    def incr_version(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        """Moves the value to another version, with its deadline; the new version."""
        old = self.version if version is None else version
        old_key, new_key = self._raw_key(key, old), self._raw_key(key, old + delta)
        raw, expires_at_ms = self.engine.get(old_key), self.engine.expires_at(old_key)
        if raw is None or expires_at_ms == ABSENT:
            raise ValueError(f"Key '{key}' not found")
        self.engine.set(new_key, raw, expires_at_ms)
        self.engine.delete(old_key)
        return old + delta

    def decr_version(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        return self.incr_version(key, -delta, version)

    # -- the store itself --------------------------------------------------------------------

    def stats(self) -> dict[str, int]:
        """Counters of the store, and of what this process has forgiven (nearcache.metrics)."""
        of_store, of_process = self.engine.stats(), self.counters.as_dict()
        # The native path counts undecodable values in the store: one name, one number.
        return of_store | {name: of_store.get(name, 0) + n for name, n in of_process.items()}

    def check(self) -> list[str]:
        """Reads the whole store; every line is a broken invariant, and no line is good news."""
        return self.engine.check()

    def close(self, **kwargs: Any) -> None:
        """Nothing: the store belongs to the process, and Django calls this after every request."""

    # -- shared by the above -----------------------------------------------------------------

    def _raw_key(self, key: Any, version: int | None) -> bytes:
        return encode_key(self.make_and_validate_key(key, version))

    def _expires_at_ms(self, timeout: Any) -> int | None:
        if timeout == DEFAULT_TIMEOUT:
            timeout = self.default_timeout
        if timeout is None or timeout > ENDLESS_S:
            return None
        # Rounded up: a timeout above 0 lets the value live, if not for long.
        return EXPIRED_MS if timeout <= 0 else self.clock.now_ms() + math.ceil(timeout * 1000)

    def _key_space(self, version: int | None) -> KeySpace:
        space = KeySpace(
            self.key_func, self.key_prefix, self.version if version is None else version
        )
        if space.prefix is None:
            raise OptionError(
                type(self).__name__,
                "KEY_FUNCTION",
                "makes keys that do not end with the given key, so they cannot be listed or"
                " matched; use clear() or versions instead",
            )
        return space
