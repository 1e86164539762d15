"""A dict with deadlines: the reference that the other engines are tested against.

It is plain rather than fast. One lock around everything makes each method atomic, so what it does
is what the contract means. It has no bound, belongs to this process only, and its named locks know
no other process: it is no cache to run a site on.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nearcache.base.clock import Clock, SystemClock
from nearcache.engines.contract import ABSENT, ScanItem
from nearcache.errors import DataError

_COUNTER = re.compile(rb"-?(0|[1-9][0-9]*)")
_INT64 = range(-(2**63), 2**63)

_PART = re.compile(rb"(\*)|(\?)|\[(\^?)((?:(?:\\.|[^\]])(?:-[^\]])?)*)\]?|\\?(.)", re.DOTALL)
_MEMBER = re.compile(rb"(\\.|[^\]])(?:-([^\]]))?", re.DOTALL)

PLACE_KEPT_MS = 2000
"""How long a place in a lock's queue waits for its owner to ask again."""


@dataclass
class _Item:
    value: bytes
    expires_at_ms: int | None
    version: int


@dataclass
class _Held:
    token: int
    until_ms: int


@dataclass
class _Place:
    ticket: int
    kept_until_ms: int


class MemoryEngine:
    """See :mod:`nearcache.engines.contract`."""

    def __init__(self, clock: Clock | None = None, max_item_bytes: int = 1 << 30) -> None:
        self._clock = clock or SystemClock()
        self._max_item_bytes = max_item_bytes
        self._items: dict[bytes, _Item] = {}
        self._held: dict[bytes, _Held] = {}
        self._claims: dict[bytes, _Held] = {}
        self._queues: dict[bytes, list[_Place]] = {}
        self._last_version = 0
        self._last_token = 0
        self._last_ticket = 0
        self._lock = threading.RLock()

    def get(self, key: bytes) -> bytes | None:
        found = self.gets(key)
        return found[0] if found else None

    def gets(self, key: bytes) -> tuple[bytes, int] | None:
        with self._lock:
            item = self._live_locked(key)
            return (item.value, item.version) if item else None

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def set(self, key: bytes, value: bytes, expires_at_ms: int | None) -> bool:
        with self._lock:
            self._items.pop(key, None)
            if len(key) + len(value) > self._max_item_bytes:
                return False
            self._last_version += 1
            self._items[key] = _Item(value, expires_at_ms, self._last_version)
            self._live_locked(key)
            return True

    def set_many(
        self, items: Sequence[tuple[bytes, bytes]], expires_at_ms: int | None
    ) -> list[int]:
        stored = [self.set(key, value, expires_at_ms) for key, value in items]
        return [at for at, ok in enumerate(stored) if not ok]

    def add(self, key: bytes, value: bytes, expires_at_ms: int | None) -> bool:
        with self._lock:
            return not self._live_locked(key) and self.set(key, value, expires_at_ms)

    def cas(self, key: bytes, value: bytes, version: int, expires_at_ms: int | None) -> bool:
        with self._lock:
            item = self._live_locked(key)
            if item is None or item.version != version:
                return False
            return self.set(key, value, expires_at_ms)

    def get_and_set(self, key: bytes, value: bytes, expires_at_ms: int | None) -> bytes | None:
        with self._lock:
            before = self.get(key)
            self.set(key, value, expires_at_ms)
            return before

    def incr(self, key: bytes, delta: int) -> int | None:
        with self._lock:
            item = self._live_locked(key)
            if item is None:
                return None
            total = _counter(item.value) + delta
            if total not in _INT64:
                raise DataError("the sum does not fit into 64 bits")
            self.set(key, b"%d" % total, item.expires_at_ms)
            return total

    def touch(self, key: bytes, expires_at_ms: int | None) -> bool:
        with self._lock:
            item = self._live_locked(key)
            if item is None:
                return False
            item.expires_at_ms = expires_at_ms
            return True

    def touch_head(self, key: bytes, expires_at_ms: int | None, size: int) -> bytes | None:
        with self._lock:
            item = self._live_locked(key)
            return item.value[:size] if item and self.touch(key, expires_at_ms) else None

    def expires_at(self, key: bytes) -> int | None:
        with self._lock:
            item = self._live_locked(key)
            return item.expires_at_ms if item else ABSENT

    def contains(self, key: bytes) -> bool:
        return self.gets(key) is not None

    def delete(self, key: bytes) -> bool:
        with self._lock:
            item = self._live_locked(key)
            return item is not None and self._items.pop(key) is item

    def delete_many(self, keys: Sequence[bytes]) -> int:
        return sum(self.delete(key) for key in keys)

    def scan(
        self, cursor: int, limit: int, *, prefix: bytes = b"", glob: bytes | None = None
    ) -> tuple[int, list[ScanItem]]:
        """The cursor is the highest version seen. Versions only grow, so no item is passed over."""
        with self._lock:
            found = sorted(self._matching_locked(prefix, glob), key=lambda pair: pair[1].version)
            page = [pair for pair in found if pair[1].version > cursor][:limit]
        items = [(key, len(it.value), it.expires_at_ms, it.version) for key, it in page]
        return (items[-1][3] if len(items) == limit else 0), items

    def clear(self) -> None:
        with self._lock:
            self._items.clear()

    def clear_matching(self, *, prefix: bytes = b"", glob: bytes | None = None) -> int:
        with self._lock:
            return self.delete_many([key for key, _ in self._matching_locked(prefix, glob)])

    def cull(self, items: int) -> int:
        with self._lock:
            victims = list(self._items)[: max(items, 0)]
            for key in victims:
                del self._items[key]
            return len(victims)

    def __len__(self) -> int:
        return len(self._items)

    def stats(self) -> dict[str, int]:
        with self._lock:
            value_bytes = sum(len(item.value) for item in self._items.values())
            return {"items": len(self._items), "value_bytes": value_bytes}

    def check(self) -> list[str]:
        return []

    def lock_acquire(self, name: bytes, ttl_ms: int) -> int | None:
        with self._lock:
            return None if self._first_locked(name) else self._take_locked(name, ttl_ms)

    def lock_wait(
        self, name: bytes, ticket: int | None, ttl_ms: int, wait_ms: int
    ) -> tuple[int | None, int | None]:
        """Waits by looking every millisecond of the clock."""
        with self._lock:
            place = self._place_locked(name, ticket)
        for left_ms in range(wait_ms, -1, -1):
            with self._lock:
                place.kept_until_ms = self._clock.now_ms() + PLACE_KEPT_MS
                if self._first_locked(name) is place:
                    token = self._take_locked(name, ttl_ms)
                    if token is not None:
                        self._queues[name].remove(place)
                        return token, None
            if left_ms:
                self._clock.sleep(0.001)
        return None, place.ticket

    def lock_leave(self, name: bytes, ticket: int) -> None:
        with self._lock:
            queue = self._queues.get(name, [])
            queue[:] = [place for place in queue if place.ticket != ticket]

    def lock_renew(self, name: bytes, token: int, ttl_ms: int) -> bool:
        with self._lock:
            if not self._holds_locked(name, token):
                return False
            self._held[name].until_ms = self._clock.now_ms() + ttl_ms
            return True

    def lock_release(self, name: bytes, token: int) -> bool:
        with self._lock:
            return self._holds_locked(name, token) and bool(self._held.pop(name))

    def claim(self, key: bytes, owner: int, ttl_ms: int) -> bool:
        with self._lock:
            found, now_ms = self._claims.get(key), self._clock.now_ms()
            if found and found.token != owner and found.until_ms > now_ms:
                return False
            self._claims[key] = _Held(owner, now_ms + ttl_ms)
            return True

    def unclaim(self, key: bytes, owner: int) -> None:
        with self._lock:
            found = self._claims.get(key)
            if found and found.token == owner:
                del self._claims[key]

    def _take_locked(self, name: bytes, ttl_ms: int) -> int | None:
        held = self._held.get(name)
        if held and held.until_ms > self._clock.now_ms():
            return None
        self._last_token += 1
        self._held[name] = _Held(self._last_token, self._clock.now_ms() + ttl_ms)
        return self._last_token

    def _place_locked(self, name: bytes, ticket: int | None) -> _Place:
        queue = self._queues.setdefault(name, [])
        for place in queue:
            if place.ticket == ticket:
                return place
        self._last_ticket += 1
        queue.append(_Place(self._last_ticket, self._clock.now_ms() + PLACE_KEPT_MS))
        return queue[-1]

    def _first_locked(self, name: bytes) -> _Place | None:
        now_ms = self._clock.now_ms()
        queue = self._queues.get(name, [])
        queue[:] = [place for place in queue if place.kept_until_ms > now_ms]
        return queue[0] if queue else None

    def _live_locked(self, key: bytes) -> _Item | None:
        item = self._items.get(key)
        if item is None or not self._expired(item):
            return item
        del self._items[key]
        return None

    def _matching_locked(self, prefix: bytes, glob: bytes | None) -> Iterator[tuple[bytes, _Item]]:
        matches = glob_regex(b"*" if glob is None else glob).fullmatch
        for key, item in self._items.items():
            if key.startswith(prefix) and matches(key) and not self._expired(item):
                yield key, item

    def _expired(self, item: _Item) -> bool:
        return item.expires_at_ms is not None and item.expires_at_ms <= self._clock.now_ms()

    def _holds_locked(self, name: bytes, token: int) -> bool:
        held = self._held.get(name)
        return held is not None and held.token == token and held.until_ms > self._clock.now_ms()


def _counter(value: bytes) -> int:
    # More than 20 digits do not fit 64 bits. Of 4,301 digits int() would raise another error.
    if len(value) > 20 or not _COUNTER.fullmatch(value):
        raise DataError("the value is not a counter")
    return int(value)


def glob_regex(glob: bytes) -> re.Pattern[bytes]:
    """The regular expression that means the same as a pattern of keys; use ``fullmatch``."""
    return re.compile(_PART.sub(_translated, glob), re.DOTALL)


def _translated(part: re.Match[bytes]) -> bytes:
    star, _, negated, members, literal = part.groups()
    if literal is not None:
        return re.escape(literal)
    if members is None:
        return b".*" if star else b"."
    inside = b""
    for low, high in _MEMBER.findall(members):
        ends = sorted((low[-1:], high or low[-1:]))
        inside += b"-".join(map(re.escape, ends))
    if not inside:
        return b"." if negated else b"(?!)"
    return b"[" + bytes(negated) + inside + b"]"
