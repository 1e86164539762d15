"""The contract of engines over a topology: one round trip per method, and per server.

Each method is a flow (:mod:`nearcache.base.sans_io`), so it is there twice: plain, and to be
awaited. Redis differs from what the contract of engines asks for:

Deadlines   are sent as milliseconds left (PX), and never as a point in time: the clocks of hosts
            differ, and a TTL should not.
Versions    do not exist. The token of ``gets`` is the SHA-1 of the value, and ``cas`` compares
            it on the server. So a value that was changed and changed back counts as unchanged.
Refusal     does not happen. A server without room evicts, or says OOM, which is raised.
Culling     is the server's (``maxmemory-policy``): ``cull`` does nothing.
scan        tells keys only. What the server would have to be asked key by key is -1.
clear       deletes key by key, because named locks are keys and must stay. ``flush`` is FLUSHDB.

A key that holds no string is absent to ``get_many``, as MGET has it. To all methods that need the
value it is a :class:`~nearcache.errors.DataError`.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from nearcache.base.clock import Clock, SystemClock
from nearcache.base.degraded_mode import DegradedMode
from nearcache.base.keys import glob_escape
from nearcache.base.per_process import OfProcess, once
from nearcache.base.sans_io import Flow, call, twins
from nearcache.engines.contract import ABSENT, ScanItem
from nearcache.engines.redis.contract import ONCE, READ, SAFE, Reply, Topology
from nearcache.engines.redis.locks.claims import MARK, RedisClaims
from nearcache.engines.redis.locks.locks import RedisLocks
from nearcache.engines.redis.locks.wake_ups import WakeUps
from nearcache.engines.redis.protocol.faults import error_of, no_scripts
from nearcache.engines.redis.protocol.resp import ErrorReply, pack
from nearcache.engines.redis.protocol.scripts import CAS, INCR, Script, Word, unknown
from nearcache.engines.redis.target.target import Target
from nearcache.errors import NotPermitted

SCAN_COUNT = 1000  # what the server looks at per step: under a millisecond, some 100 us
UNLINK_KEYS = 1000  # per command, for the same reason
NODES = 1 << 16  # cursors of scans are `cursor of the server * NODES + number of the server`

INFO_NUMBERS = {
    "used_memory": "memory_bytes",
    "maxmemory": "memory_max_bytes",
    "keyspace_hits": "server_hits",
    "keyspace_misses": "server_misses",
    "evicted_keys": "server_evicted",
    "expired_keys": "server_expired",
    "connected_clients": "server_clients",
}
"""Fields of INFO, and their names in ``stats``. They are summed over all primaries."""


class RedisEngine(RedisLocks, RedisClaims):
    """See :mod:`nearcache.engines.contract`, and the head of this module."""

    native_async = True
    clock: Clock

    def __init__(self, topology: Topology, clock: Clock | None = None, name: str = "Redis") -> None:
        self.topology = topology
        self.clock = clock or SystemClock()
        self.outage = DegradedMode(name)
        self._ahead_ms = {}
        self._bells = OfProcess(functools.partial(WakeUps, topology))

    @property
    def engine(self) -> RedisEngine:
        return self  # flows ask it

    # -- one key -----------------------------------------------------------------------------

    def _get(self, key: bytes) -> Flow[bytes | None]:
        raw: bytes | None = yield from self._one(READ, key, b"GET", key)
        return raw

    get, aget = twins(_get)

    def _gets(self, key: bytes) -> Flow[tuple[bytes, int] | None]:
        # Not READ, here and in expires_at: callers decide by the answer, so it must not come from
        # a replica that lags.
        raw: bytes | None = yield from self._one(SAFE, key, b"GET", key)
        return None if raw is None else (raw, _token(raw))

    gets, agets = twins(_gets)

    def _set(self, key: bytes, value: bytes, expires_at_ms: int | None) -> Flow[bool]:
        yield from self._asked(self._setting(key, value, expires_at_ms), key, ONCE)
        return True

    set, aset = twins(_set)

    def _add(self, key: bytes, value: bytes, expires_at_ms: int | None) -> Flow[bool]:
        left_ms = self._left_ms(expires_at_ms)
        if left_ms == 0:
            return not (yield from self._contains(key))
        life = () if left_ms is None else (b"PX", left_ms)
        done = yield from self._one(ONCE, key, b"SET", key, value, b"NX", *life)
        return done is not None

    add, aadd = twins(_add)

    def _cas(self, key: bytes, value: bytes, version: int, expires_at_ms: int | None) -> Flow[bool]:
        left_ms = self._left_ms(expires_at_ms)
        wanted, life = b"%040x" % version, -1 if left_ms is None else left_ms
        done = yield from self._script(CAS, [key], [wanted, value, life])
        return bool(done)

    cas, acas = twins(_cas)

    def _get_and_set(
        self, key: bytes, value: bytes, expires_at_ms: int | None
    ) -> Flow[bytes | None]:
        left_ms = self._left_ms(expires_at_ms)
        words: tuple[Word, ...] = (b"SET", key, value, b"GET")
        if left_ms is not None:
            words = (*words, b"PX", left_ms) if left_ms else (b"GETDEL", key)
        before: bytes | None = yield from self._one(ONCE, key, *words)
        return before

    get_and_set, aget_and_set = twins(_get_and_set)

    def _incr(self, key: bytes, delta: int) -> Flow[int | None]:
        if self._may_script:
            try:
                total: bytes | None = yield from self._script(INCR, [key], [delta])
            except NotPermitted as error:
                if self.topology.sharded or not no_scripts(error):
                    raise
                self._may_script = False
            else:
                return None if total is None else int(total)
        try:
            return (yield from self._incr_without_script(key, delta))
        except NotPermitted:
            self._may_script = True  # the user may have got the right to scripts meanwhile
            raise

    def _incr_without_script(self, key: bytes, delta: int) -> Flow[int | None]:
        """In a transaction. If the key is absent a list stands there, so that INCRBY makes no key.

        A string refuses LPUSH and LPOP, which then do nothing. The list goes with its only item.
        """
        steps: list[tuple[Word, ...]]
        steps = [(b"LPUSH", key, b""), (b"INCRBY", key, delta), (b"LPOP", key)]
        words: list[tuple[Word, ...]] = [(b"MULTI",), *steps, (b"EXEC",)]
        requests = [(pack(*each), key) for each in words]
        *queued, done = yield call(self.topology, "ask_each", requests, ONCE)
        for reply, (packed, _) in zip(queued, requests, strict=False):
            self._told(reply, packed)
        pushed, total, _ = self._told(done)
        return None if pushed == 1 else int(self._told(total))

    incr, aincr = twins(_incr)

    def _touch(self, key: bytes, expires_at_ms: int | None) -> Flow[bool]:
        left_ms = self._left_ms(expires_at_ms)
        if left_ms is not None:  # 0 deletes the key, and says whether it was there
            return bool((yield from self._one(ONCE, key, b"PEXPIRE", key, left_ms)))
        # PERSIST says only whether there was a deadline to take away.
        words = [(pack(b"PERSIST", key), key), (pack(b"EXISTS", key), key)]
        return bool((yield from self._each(words, ONCE))[1])

    touch, atouch = twins(_touch)

    def _touch_head(self, key: bytes, expires_at_ms: int | None, size: int) -> Flow[bytes | None]:
        """:meth:`touch`, and the first ``size`` bytes of the value; None if there is no such key.

        Only a value that holds a deadline of its own has to be written anew, and its head tells. So
        the common touch stays one round trip.
        """
        left_ms = self._left_ms(expires_at_ms)
        move = (b"PERSIST", key) if left_ms is None else (b"PEXPIRE", key, left_ms)
        head = (b"GETRANGE", key, 0, size - 1)
        # The head is asked for before the move and after it. So a value whose deadline was moved is
        # seen. A value that comes later has the deadline that it is stored with.
        requests = [(pack(*each), key) for each in (head, (b"EXISTS", key), move, head)]
        before, there, moved, after = yield call(self.topology, "ask_each", requests, ONCE)
        if not _sound(there):
            return None
        _sound(moved)
        if _wrong_type(before) or _wrong_type(after):
            return b""
        return bytes(_sound(after)) or bytes(_sound(before))

    touch_head, atouch_head = twins(_touch_head)

    def _expires_at(self, key: bytes) -> Flow[int | None]:
        left_ms: int = yield from self._one(SAFE, key, b"PTTL", key)
        if left_ms < 0:
            return ABSENT if left_ms == -2 else None
        return self.clock.now_ms() + left_ms

    expires_at, aexpires_at = twins(_expires_at)

    def _contains(self, key: bytes) -> Flow[bool]:
        return bool((yield from self._one(READ, key, b"EXISTS", key)))

    contains, acontains = twins(_contains)

    def _delete(self, key: bytes) -> Flow[bool]:
        return bool((yield from self._one(ONCE, key, b"UNLINK", key)))

    delete, adelete = twins(_delete)

    def _move(self, key: bytes, new_key: bytes) -> Flow[bool]:
        """Renames a key, which keeps its deadline; True if it was there.

        This is atomic, but for a cluster: there the two keys are on different servers, so the value
        is copied and then deleted.
        """
        if self.topology.sharded:
            return (yield from self._copy_and_delete(key, new_key))
        reply = yield call(self.topology, "ask", pack(b"RENAME", key, new_key), key, ONCE)
        if isinstance(reply, ErrorReply) and "no such key" in str(reply):
            return False
        _sound(reply)
        return True

    move, amove = twins(_move)

    def _copy_and_delete(self, key: bytes, new_key: bytes) -> Flow[bool]:
        words = [(pack(b"GET", key), key), (pack(b"PTTL", key), key)]
        raw, left_ms = yield from self._each(words, SAFE)
        if raw is None or left_ms == -2:
            return False
        life = (b"PX", max(left_ms, 1)) if left_ms >= 0 else ()
        yield from self._one(ONCE, new_key, b"SET", new_key, raw, *life)
        return (yield from self._delete(key))

    # -- many keys ---------------------------------------------------------------------------

    def _get_many(self, keys: Sequence[bytes]) -> Flow[list[bytes | None]]:
        if not keys:
            return []
        if not self.topology.sharded:
            found: list[bytes | None] = yield from self._one(READ, keys[0], b"MGET", *keys)
            return found
        requests = [(pack(b"GET", key), key) for key in keys]
        replies = yield call(self.topology, "ask_each", requests, READ)
        return [None if _wrong_type(reply) else _sound(reply) for reply in replies]

    get_many, aget_many = twins(_get_many)

    def _set_many(
        self, items: Sequence[tuple[bytes, bytes]], expires_at_ms: int | None
    ) -> Flow[list[int]]:
        setting = self._setting
        requests = [(setting(key, value, expires_at_ms), key) for key, value in items]
        yield from self._each(requests, ONCE)
        return []

    set_many, aset_many = twins(_set_many)

    def _delete_many(self, keys: Sequence[bytes]) -> Flow[int]:
        return sum((yield from self._each(self._unlinks(keys), ONCE)))

    delete_many, adelete_many = twins(_delete_many)

    # -- the whole database ------------------------------------------------------------------

    def _scan(
        self, cursor: int, limit: int, *, prefix: bytes = b"", glob: bytes | None = None
    ) -> Flow[tuple[int, list[ScanItem]]]:
        cursor, keys = yield from self._scan_keys(cursor, limit, prefix, glob)
        return cursor, [(key, -1, ABSENT, -1) for key in keys]

    scan, ascan = twins(_scan)

    def _clear(self) -> Flow[None]:
        """Deletes key by key, because named locks stay; see :meth:`flush`."""
        yield from self._clear_matching()

    clear, aclear = twins(_clear)

    def _flush(self) -> Flow[None]:
        """FLUSHDB: fast, but the keys of other programs and all locks are gone as well."""
        yield from self._on_all(pack(b"FLUSHDB", b"ASYNC"), ONCE)

    flush, aflush = twins(_flush)

    def _clear_matching(
        self, *, prefix: bytes = b"", glob: bytes | None = None, count: int = SCAN_COUNT
    ) -> Flow[int]:
        """``count``: how many keys the server looks at per step."""
        cursor, gone = 0, 0
        if self.topology.sharded:
            while True:
                cursor, keys = yield from self._scan_keys(cursor, count, prefix, glob)
                gone += yield from self._delete_many(keys)
                if cursor == 0:
                    return gone
        keys = []
        # SAFE: a key that is set during the walk may be deleted in any case.
        while True:  # deletes the keys that were found, in the same write as the next step
            scan = _scan_command(cursor, prefix, glob, count), b""
            *counts, page = yield from self._each([*self._unlinks(keys), scan], SAFE)
            gone += sum(counts)
            cursor, keys = _page(page, prefix)
            if cursor == 0:
                return gone + (yield from self._delete_many(keys))

    clear_matching, aclear_matching = twins(_clear_matching)

    def cull(self, items: int) -> int:
        """Nothing: the server evicts by its own ``maxmemory-policy``."""
        return 0

    async def acull(self, items: int) -> int:
        """As little as :meth:`cull`."""
        return 0

    def _len(self) -> Flow[int]:
        return sum((yield from self._on_all(pack(b"DBSIZE"), READ)))

    __len__, alen = twins(_len)

    def _stats(self) -> Flow[dict[str, int]]:
        totals = dict.fromkeys(INFO_NUMBERS.values(), 0)
        for text in (yield from self._on_all(pack(b"INFO"), READ)):
            for name, number in _info(text).items():
                totals[name] += number
        return {"items": (yield from self._len())} | totals | self.topology.stats()

    stats, astats = twins(_stats)

    def _check(self) -> Flow[list[str]]:
        """An empty list if every primary answers; raises if one does not."""
        yield from self._on_all(pack(b"PING"), READ)
        return []

    check, acheck = twins(_check)

    # -- the steps ---------------------------------------------------------------------------

    def _asked(self, packed: bytes, key: bytes | None, safety: int) -> Flow[Reply]:
        return self._told((yield call(self.topology, "ask", packed, key, safety)), packed)

    def _told(self, reply: Reply, packed: bytes = b"") -> Reply:
        """The reply. An error reply is told to the topology, and then raised."""
        if isinstance(reply, ErrorReply):
            self.topology.told(reply)
            raise error_of(reply, packed)
        return reply

    def _one(self, safety: int, key: bytes, *words: Word) -> Flow[Reply]:
        return (yield from self._asked(pack(*words), key, safety))

    def _each(self, requests: Sequence[tuple[bytes, bytes]], safety: int) -> Flow[list[Reply]]:
        if not requests:
            return []
        if len(requests) == 1:  # a single command has the shorter way
            packed, key = requests[0]
            return [(yield from self._asked(packed, key, safety))]
        replies = yield call(self.topology, "ask_each", requests, safety)
        asked = zip(replies, requests, strict=True)
        return [self._told(reply, packed) for reply, (packed, _) in asked]

    def _unlinks(self, keys: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        """Requests that delete these keys."""
        per_command = 1 if self.topology.sharded else UNLINK_KEYS
        chunks = (keys[at : at + per_command] for at in range(0, len(keys), per_command))
        return [(pack(b"UNLINK", *chunk), chunk[0]) for chunk in chunks]

    def _script(
        self,
        script: Script,
        keys: Sequence[bytes],
        arguments: Sequence[Word],
        safety: int = ONCE,
    ) -> Flow[Reply]:
        """A script's reply. After NOSCRIPT, which did nothing, the text is sent."""
        packed = script.by_name(keys, arguments)
        reply = yield call(self.topology, "ask", packed, keys[0], safety)
        if unknown(reply):
            packed = script.in_full(keys, arguments)
            reply = yield call(self.topology, "ask", packed, keys[0], safety)
        return self._told(reply, packed)

    def _on_all(self, packed: bytes, safety: int) -> Flow[list[Reply]]:
        replies = []
        for line in (yield call(self.topology, "primaries")):
            reply = yield call(line, "ask", packed, None, safety)
            replies.append(_sound(reply))
        return replies

    def _scan_keys(
        self, cursor: int, count: int, prefix: bytes, glob: bytes | None
    ) -> Flow[tuple[int, list[bytes]]]:
        """The next cursor and the matching keys among about ``count``."""
        at, number = divmod(cursor, NODES)
        lines = yield call(self.topology, "primaries")
        if number >= len(lines):  # there are fewer servers now than when the scan began
            return 0, []
        command = _scan_command(at, prefix, glob, count)
        # Not READ: a cursor means something only to the server that gave it.
        reply = _sound((yield call(lines[number], "ask", command, None, SAFE)))
        at, keys = _page(reply, prefix)
        if at:
            return at * NODES + number, keys
        return (number + 1 if number + 1 < len(lines) else 0), keys

    def _left_ms(self, expires_at_ms: int | None) -> int | None:
        """Milliseconds to live; 0 if the deadline is over."""
        return None if expires_at_ms is None else max(0, expires_at_ms - self.clock.now_ms())

    def _setting(self, key: bytes, value: bytes, expires_at_ms: int | None) -> bytes:
        left_ms = self._left_ms(expires_at_ms)
        if left_ms is None:
            return pack(b"SET", key, value)
        return pack(b"SET", key, value, b"PX", left_ms) if left_ms else pack(b"UNLINK", key)


def open_redis(target: Target) -> RedisEngine:
    """The engine of this process for that target, the same object every time.

    It connects to nothing before it is asked something.
    """
    name = f"Redis at {', '.join(map(str, target.addresses))}"
    topology = topology_class(target)  # before `once` and its lock, as it imports
    return once(("redis", target), lambda: RedisEngine(topology(target), name=name))


def topology_class(target: Target) -> Callable[[Target], Topology]:
    """The class of topology for that target."""
    if target.kind == "cluster":
        from nearcache.engines.redis.topology.cluster import Cluster

        return Cluster
    from nearcache.engines.redis.topology.standalone import Standalone

    return Standalone


def _scan_command(cursor: int, prefix: bytes, glob: bytes | None, count: int) -> bytes:
    pattern = glob_escape(prefix) + b"*" if glob is None else glob
    return pack(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", count)


def _page(reply: Reply, prefix: bytes) -> tuple[int, list[bytes]]:
    """The server's next cursor, and the keys with that prefix that are no locks or claims."""
    cursor, keys = reply
    return int(cursor), [key for key in keys if key.startswith(prefix) and MARK not in key]


def _token(raw: bytes) -> int:
    return int.from_bytes(hashlib.sha1(raw, usedforsecurity=False).digest())


def _sound(reply: Reply) -> Reply:
    """The reply. An error reply is raised as an error of ours."""
    if isinstance(reply, ErrorReply):
        raise error_of(reply)
    return reply


def _wrong_type(reply: Reply) -> bool:
    return isinstance(reply, ErrorReply) and reply.code == "WRONGTYPE"


def _info(reply: Any) -> dict[str, int]:
    """The numbers of INFO that ``stats`` tells, by their names there."""
    fields = (line.partition(":") for line in bytes(reply).decode().splitlines())
    return {
        INFO_NUMBERS[name]: int(value)
        for name, _, value in fields
        if name in INFO_NUMBERS and value.isdigit()
    }
