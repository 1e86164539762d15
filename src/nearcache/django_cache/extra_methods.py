"""What Django's cache API lacks, written once for every backend.

The names are those of django-redis where it has them: ``ttl``, ``pttl``, ``expire``,
``pexpire``, ``expire_at``, ``pexpire_at``, ``persist``, ``keys``, ``iter_keys``,
``delete_pattern``, ``lock``. ``incr_version`` keeps the deadline. ``get_or_set`` is in
:mod:`nearcache.django_cache.get_or_set`.

A backend brings Django's own methods and the three properties at the head of
:class:`ExtraMethods`; everything here goes through those. Each method is a flow, so that it is
there twice: plain, and as an ``a`` twin to be awaited (see :mod:`nearcache.base.sans_io`).
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache, default_key_func

from nearcache.base.clock import Clock, SystemClock
from nearcache.base.counters import Counters
from nearcache.base.keys import KeySpace, encode_key
from nearcache.base.sans_io import Flow, Pause, arun, ask, run, twins
from nearcache.codec import Codec, Undecodable
from nearcache.codec.envelope import HEAD_BYTES, EnvelopeCodec, Stale, opened
from nearcache.coordination.async_locks import AsyncLock
from nearcache.coordination.locks import Lock
from nearcache.engines.contract import ABSENT, Engine
from nearcache.errors import EngineBusy, OptionError

SCAN_ITEMS = 1000
EXPIRED_MS = 1  # a deadline that has passed on any clock
ENDLESS_S = 10**11  # timeouts beyond three thousand years mean "never", infinity included
INCR_ATTEMPTS = 1000


class ExtraMethods(BaseCache):
    """The methods beyond Django's; see the head of this module.

    ``close``, which Django calls after every request, is its own, and does nothing: the store
    belongs to the process.
    """

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

    def _ttl(self, key: Any, version: int | None = None) -> Flow[int | None]:
        """Seconds left, rounded up; None if it never expires, 0 if there is no such key."""
        left_ms = yield from self._pttl(key, version)
        return None if left_ms is None else -(-left_ms // 1000)

    ttl, attl = twins(_ttl)

    def _pttl(self, key: Any, version: int | None = None) -> Flow[int | None]:
        """Milliseconds left; None if it never expires, 0 if there is no such key."""
        expires_at_ms = yield ask("expires_at", self._raw_key(key, version))
        if expires_at_ms is None:
            return None
        return 0 if expires_at_ms == ABSENT else max(0, expires_at_ms - self.clock.now_ms())

    pttl, apttl = twins(_pttl)

    def _expire(self, key: Any, timeout: Any, version: int | None = None) -> Flow[bool]:
        """Lets the key live ``timeout`` more seconds (or timedelta); True if it was there."""
        if isinstance(timeout, timedelta):
            timeout = timeout.total_seconds()
        return (yield from self._moved(self._raw_key(key, version), self._expires_at_ms(timeout)))

    expire, aexpire = twins(_expire)

    def _pexpire(self, key: Any, timeout: Any, version: int | None = None) -> Flow[bool]:
        """Lets the key live ``timeout`` more milliseconds (or timedelta); True if it was there."""
        lifetime = timeout if isinstance(timeout, timedelta) else timeout / 1000
        return (yield from self._expire(key, lifetime, version))

    pexpire, apexpire = twins(_pexpire)

    def _expire_at(self, key: Any, when: Any, version: int | None = None) -> Flow[bool]:
        """Lets the key live until ``when``: a datetime, or seconds since the Unix epoch."""
        moment = when.timestamp() if isinstance(when, datetime) else when
        return (yield from self._pexpire_at(key, int(moment * 1000), version))

    expire_at, aexpire_at = twins(_expire_at)

    def _pexpire_at(self, key: Any, when: Any, version: int | None = None) -> Flow[bool]:
        """Lets the key live until ``when``: a datetime, or milliseconds since the Unix epoch."""
        if isinstance(when, datetime):
            when = int(when.timestamp() * 1000)
        return (yield from self._moved(self._raw_key(key, version), max(EXPIRED_MS, when)))

    pexpire_at, apexpire_at = twins(_pexpire_at)

    def _persist(self, key: Any, version: int | None = None) -> Flow[bool]:
        """Lets the key live for ever; True if it was there."""
        return (yield from self._moved(self._raw_key(key, version), None))

    persist, apersist = twins(_persist)

    def _moved(self, raw_key: bytes, expires_at_ms: int | None) -> Flow[bool]:
        """Moves a deadline. A value in an envelope keeps its grace behind the new one; a stale
        one is no more there to be touched than one that has expired.
        """
        if not isinstance(self.codec, EnvelopeCodec):
            done: bool = yield ask("touch", raw_key, expires_at_ms)
            return done
        head = yield ask("touch_head", raw_key, expires_at_ms, HEAD_BYTES + 1)
        return head is not None and (yield from self._settled(raw_key, expires_at_ms, head))

    def _settled(self, raw_key: bytes, expires_at_ms: int | None, head: bytes) -> Flow[bool]:
        """The rest of a touch, after the deadline of what begins with ``head`` was moved."""
        envelope = opened(head) if isinstance(self.codec, EnvelopeCodec) else None
        if envelope is None:
            return True
        yield from self._moved_envelope(raw_key, expires_at_ms)
        return envelope.soft_ms > self.clock.now_ms()

    def _moved_envelope(self, raw_key: bytes, expires_at_ms: int | None) -> Flow[None]:
        """Writes the new deadline into the envelope that is there, if it is one still."""
        for _ in range(INCR_ATTEMPTS):
            found = yield ask("gets", raw_key)
            envelope = opened(found[0]) if found else None
            if envelope is None:
                return  # deleted or replaced since it was touched
            if envelope.soft_ms > self.clock.now_ms():
                envelope = envelope.moved(expires_at_ms)
            # Only what was seen: another value stored meanwhile has a deadline of its own.
            if (yield ask("cas", raw_key, envelope.sealed(), found[1], envelope.expires_at_ms)):
                return
        raise EngineBusy(f"{raw_key!r} changed {INCR_ATTEMPTS} times while it was touched")

    # -- compare and set ---------------------------------------------------------------------

    def _gets(self, key: Any, version: int | None = None) -> Flow[tuple[Any, int] | None]:
        """The value and a token for :meth:`cas`, or None if there is no such key."""
        found = yield ask("gets", self._raw_key(key, version))
        if found is None:
            return None
        value = self._decoded(found[0], self._missing_key)
        return None if value is self._missing_key else (value, found[1])

    gets, agets = twins(_gets)

    def _cas(
        self,
        key: Any,
        value: Any,
        token: int,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
    ) -> Flow[bool]:
        """Stores if nobody changed the key since :meth:`gets`; True if it did."""
        raw_key, raw = self._raw_key(key, version), self.codec.encode(value)
        done: bool = yield ask("cas", raw_key, raw, token, self._expires_at_ms(timeout))
        return done

    cas, acas = twins(_cas)

    # -- many keys ---------------------------------------------------------------------------

    def _keys(
        self, pattern: str = "*", version: int | None = None, itersize: int | None = None
    ) -> Flow[list[str]]:
        """The keys of this prefix and version that match, as they were given to ``set``."""
        pages = _Pages(self._key_space(version), pattern, itersize)
        found: list[str] = []
        while not pages.over:
            found += yield from pages.next()
            yield Pause(0)  # a page is short, and a store is not
        return found

    keys, akeys = twins(_keys)

    def iter_keys(
        self, pattern: str = "*", version: int | None = None, itersize: int | None = None
    ) -> Iterator[str]:
        """:meth:`keys`, one after the other; a key present all along comes exactly once.

        ``itersize``: how many keys the store looks at per step, 1000 if not given.
        """
        pages = _Pages(self._key_space(version), pattern, itersize)
        while not pages.over:
            yield from run(pages.next(), self.engine, self.clock)

    async def aiter_keys(
        self, pattern: str = "*", version: int | None = None, itersize: int | None = None
    ) -> AsyncIterator[str]:
        """:meth:`iter_keys`, to be iterated with ``async for``."""
        pages = _Pages(self._key_space(version), pattern, itersize)
        while not pages.over:
            for key in await arun(pages.next(), self.engine, self.clock):
                yield key
            await self.clock.asleep(0)

    def _delete_pattern(self, pattern: str, version: int | None = None) -> Flow[int]:
        """Deletes the keys that match; returns how many."""
        space = self._key_space(version)
        prefix, glob = space.prefix or b"", space.glob(pattern)
        count: int = yield ask("clear_matching", prefix=prefix, glob=glob)
        return count

    delete_pattern, adelete_pattern = twins(_delete_pattern)

    def _clear(self) -> Flow[None]:
        """Empties the store; with a KEY_PREFIX, only of the keys of that prefix.

        With a KEY_PREFIX and a KEY_FUNCTION of your own the whole store is emptied: such
        keys do not show where their prefix ends, and a cache may always lose too much.
        """
        own = self._own_prefix()
        if own:
            yield ask("clear_matching", prefix=own)
        else:
            yield ask("clear")

    clear, aclear = twins(_clear)

    def _own_prefix(self) -> bytes:
        """What all keys of this KEY_PREFIX begin with; nothing if that cannot be told."""
        if self.key_prefix and self.key_func is default_key_func:
            return encode_key(f"{self.key_prefix}:")
        return b""

    # -- one caller at a time ----------------------------------------------------------------

    def lock(
        self,
        key: Any,
        *ambiguous: Any,
        timeout: float | None = None,
        wait: float | None = None,
        blocking_timeout: float | None = None,
        version: int | None = None,
        blocking: bool = True,
        auto_renew: bool = True,
        max_hold: float | None = None,
        reentrant: bool = False,
        sleep: float | None = None,
        thread_local: bool = True,
    ) -> Lock:
        """A lock of that name: one holder among all who share the store, first come first served.

        Use it as ``with`` or ``async with``; see :mod:`nearcache.coordination.locks`, and
        ``docs/locks.md``.

        ``timeout``: seconds until it is free again if its holder dies; a living holder's time
        is renewed, unless ``auto_renew`` is False, and for ``max_hold`` seconds at most. None:
        shared memory frees it when the holder's process is gone, Redis after 30 s.
        ``wait`` (``blocking_timeout``): seconds to wait for it, None for as long as it takes.
        ``blocking=False`` is ``wait=0``. ``reentrant``: the thread or task that holds it may
        come in again. ``sleep`` and ``thread_local`` are taken and not needed: nobody polls,
        and a lock object may be released in another thread.

        TypeError: for more than the key without a name, as the second is ``version`` in
        django-redis and ``timeout`` in redis-py.
        """
        if ambiguous:
            raise TypeError(
                "lock() takes its key alone without a name, because others read what follows as"
                " version or as timeout: write timeout=, wait= (or blocking_timeout=), version="
            )
        wait_s = blocking_timeout if wait is None else wait
        return Lock(
            self.engine,
            self._raw_key(key, version),
            timeout_s=timeout,
            wait_s=wait_s if blocking else 0.0,
            auto_renew=auto_renew,
            max_hold_s=max_hold,
            reentrant=reentrant,
            clock=self.clock,
            counters=self.counters,
        )

    def alock(self, key: Any, *ambiguous: Any, **given: Any) -> AsyncLock:
        """The same lock for ``async with``, its methods to be awaited; arguments as of ``lock``."""
        return AsyncLock(self.lock(key, *ambiguous, **given))

    # -- numbers -----------------------------------------------------------------------------

    def _incr_any(self, key: Any, delta: Any, version: int | None) -> Flow[Any]:
        """incr for what is no 64-bit counter: floats, big integers. Atomic, keeps the deadline."""
        raw_key = self._raw_key(key, version)
        for _ in range(INCR_ATTEMPTS):
            found = yield from self._gets(key, version)
            expires_at_ms = yield ask("expires_at", raw_key)
            if found is None or expires_at_ms == ABSENT:
                raise ValueError(f"Key '{key}' not found")
            total = found[0] + delta
            if (yield ask("cas", raw_key, self.codec.encode(total), found[1], expires_at_ms)):
                return total
        raise EngineBusy(f"{key!r} changed {INCR_ATTEMPTS} times while it was to be incremented")

    _incr_object, _aincr_object = twins(_incr_any)

    # -- versions ----------------------------------------------------------------------------

    def _incr_version(self, key: Any, delta: int = 1, version: int | None = None) -> Flow[int]:
        """Moves the value to another version, with its deadline; the new version."""
        old: int = self.version if version is None else version
        old_key, new_key = self._raw_key(key, old), self._raw_key(key, old + delta)
        raw = yield ask("get", old_key)
        expires_at_ms = yield ask("expires_at", old_key)
        if raw is None or expires_at_ms == ABSENT:
            raise ValueError(f"Key '{key}' not found")
        yield ask("set", new_key, raw, expires_at_ms)
        yield ask("delete", old_key)
        return old + delta

    incr_version, aincr_version = twins(_incr_version)

    # -- the store itself --------------------------------------------------------------------

    def _stats(self) -> Flow[dict[str, int]]:
        """Counters of the store, and what this process has forgiven (nearcache.base.counters)."""
        of_store: dict[str, int] = yield ask("stats")
        of_process = self.counters.as_dict()
        # The native path counts undecodable values in the store: one name, one number.
        return of_store | {name: of_store.get(name, 0) + n for name, n in of_process.items()}

    stats, astats = twins(_stats)

    def _check(self) -> Flow[list[str]]:
        """Reads the whole store; every line is a broken invariant, and no line is good news."""
        faults: list[str] = yield ask("check")
        return faults

    check, acheck = twins(_check)

    async def aclose(self, **kwargs: Any) -> None:
        """Nothing, like ``close``, which Django calls after every request: the store belongs to
        the process. Django's own twin of it goes to a thread from 6.1 on.
        """

    # -- shared by the above -----------------------------------------------------------------

    def _decoded(self, raw: bytes, default: Any) -> Any:
        """The value of stored bytes; ``default`` if they are stale, or cannot be read."""
        try:
            return self.codec.decode(raw)
        except Stale:
            return default
        except Undecodable:
            self.counters.undecodable += 1
            return default

    def _raw_key(self, key: Any, version: int | None) -> bytes:
        return encode_key(self.make_and_validate_key(key, version))

    def _lifetime_ms(self, timeout: Any) -> int | None:
        """Milliseconds to live: None for ever, 0 for none at all."""
        if timeout == DEFAULT_TIMEOUT:
            timeout = self.default_timeout
        # Rounded up: a timeout above 0 lets the value live, if not for long.
        endless = timeout is None or timeout > ENDLESS_S
        return None if endless else math.ceil(max(timeout, 0) * 1000)

    def _expires_at_ms(self, timeout: Any) -> int | None:
        lifetime_ms = self._lifetime_ms(timeout)
        if lifetime_ms is None:
            return None
        return self.clock.now_ms() + lifetime_ms if lifetime_ms else EXPIRED_MS

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


class _Pages:
    """A scan through a key space, page by page, which gives no key twice."""

    def __init__(self, space: KeySpace, pattern: str, itersize: int | None) -> None:
        self.over = False
        self._space = space
        self._glob = space.glob(pattern)
        self._limit = itersize or SCAN_ITEMS
        self._cursor = 0
        self._seen: set[bytes] = set()

    def next(self) -> Flow[list[str]]:
        prefix = self._space.prefix or b""
        self._cursor, items = yield ask(
            "scan", self._cursor, self._limit, prefix=prefix, glob=self._glob
        )
        self.over = self._cursor == 0
        fresh = [item[0] for item in items if item[0] not in self._seen]
        self._seen.update(fresh)
        return [self._space.user_key(raw) for raw in dict.fromkeys(fresh)]
