"""Django's cache over Redis and Valkey: the methods of :class:`nearcache.backends.RedisCache`.

The hot methods are written out: the native module packs the command, the topology asks, the
native module reads the value, and nothing else happens. Each is there twice, as a call and as
a coroutine, because a shared text (:mod:`nearcache.base.sans_io`) would cost a tenth of a ``get``.
Everything else comes from the adapter and the engine.

With ``on_error="miss"`` an unreachable server is a cache that holds nothing: see
:mod:`nearcache.django_cache.degraded`. Wrong passwords, wrong types and the like always raise: no
waiting mends them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, NoReturn

from django.conf import settings
from django.core.cache.backends.base import DEFAULT_TIMEOUT, default_key_func

from nearcache import _core
from nearcache.base.keys import encode_key
from nearcache.base.sans_io import Flow, ask, call, twins
from nearcache.django_cache.adapter import EngineCache, SettingsError
from nearcache.django_cache.degraded import Forgiving
from nearcache.django_cache.extra_methods import ExtraMethods
from nearcache.django_cache.placement import test_run
from nearcache.django_cache.redis.options import RedisOptions
from nearcache.django_cache.redis.test_runs import keep_apart, keep_apart_at_use
from nearcache.engines.redis.contract import ONCE, READ, Reply
from nearcache.engines.redis.protocol.resp import ErrorReply
from nearcache.errors import EngineUnavailable

Method = Callable[..., Any]
AsyncMethod = Callable[..., Coroutine[Any, Any, Any]]


def forgiving(
    name: str, flow: Callable[..., Flow[Any]]
) -> tuple[Callable[..., Flow[Any]], Method, AsyncMethod]:
    """The flow, its method of that name and its ``a`` twin, which forgive outages."""

    @functools.wraps(flow)
    def forgiven(self: RedisMethods, *args: Any, **kwargs: Any) -> Flow[Any]:
        try:
            result = yield from flow(self, *args, **kwargs)
        except EngineUnavailable as error:
            return self._instead(error, name, *args, **kwargs)
        self._answered(name)
        return result

    forgiven.__name__ = f"_{name}"
    return forgiven, *twins(forgiven)


class RedisMethods(_core.RedisCommands, Forgiving, EngineCache):
    """See the head of this module."""

    options_class = RedisOptions
    options: RedisOptions
    engine: Any = None  # of this process; kept, as every call needs it

    def __init__(self, location: Any, params: dict[str, Any]) -> None:
        super().__init__(location, params)
        self.bounded = False  # by the server's maxmemory, whatever MAX_ENTRIES says
        self.engine = engine = self.options.engine
        self._topology = topology = engine.topology
        self._sharded = topology.sharded
        self._ask = topology.ask
        self._aask = topology.aask
        self._outage = engine.outage
        self._forgives = self.options.forgives(settings)
        self._own_keys = self.key_prefix, self.key_func
        self._namespaced = self.apart
        if self.options.tests == "apart":
            test_run.watch(self)
        if self._namespaced:
            keep_apart(self, self.key_prefix)

    def moved(self) -> None:
        self._namespaced = self.apart
        self.key_prefix, self.key_func = self._own_keys
        if self._namespaced:
            keep_apart_at_use(self, *self._own_keys)

    def open_engine(self) -> Any:
        return self.options.engine

    def _decoded(self, raw: bytes, default: Any) -> Any:
        return self._value(raw, default)  # natively, and counted there

    # -- the hot ones ------------------------------------------------------------------------

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        packed = self._get_command(key, version)
        try:
            reply = self._ask(packed, key_of(packed) if self._sharded else None, READ)
            if isinstance(reply, ErrorReply):
                self._raise(reply, packed)
        except EngineUnavailable as error:
            self._forgive(error)
            return default
        if self._outage.on:
            self._outage.end()
        return self._value(reply, default)

    async def aget(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        packed = self._get_command(key, version)
        try:
            reply = await self._aask(packed, key_of(packed) if self._sharded else None, READ)
            if isinstance(reply, ErrorReply):
                self._raise(reply, packed)
        except EngineUnavailable as error:
            self._forgive(error)
            return default
        if self._outage.on:
            self._outage.end()
        return self._value(reply, default)

    def set(  # type: ignore[override]
        self,
        key: Any,
        value: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        nx: bool = False,
        xx: bool = False,
    ) -> bool:
        """True if stored. ``nx``: only if the key is absent; ``xx``: only if it is there."""
        packed = self._setting(key, value, timeout, version, nx, xx)
        try:
            reply = self._ask(packed, key_of(packed) if self._sharded else None, ONCE)
            if isinstance(reply, ErrorReply):
                self._raise(reply, packed)
        except EngineUnavailable as error:
            self._forgive(error, write=True)
            return False
        if self._outage.drops:
            self._succeeded(not isinstance(reply, int))  # which a deletion replies
        return _stored(reply, nx)

    async def aset(  # type: ignore[override]
        self,
        key: Any,
        value: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        nx: bool = False,
        xx: bool = False,
    ) -> bool:
        """:meth:`set`."""
        packed = self._setting(key, value, timeout, version, nx, xx)
        try:
            reply = await self._aask(packed, key_of(packed) if self._sharded else None, ONCE)
            if isinstance(reply, ErrorReply):
                self._raise(reply, packed)
        except EngineUnavailable as error:
            self._forgive(error, write=True)
            return False
        if self._outage.drops:
            self._succeeded(not isinstance(reply, int))  # which a deletion replies
        return _stored(reply, nx)

    def _setting(
        self, key: Any, value: Any, timeout: Any, version: int | None, nx: bool, xx: bool
    ) -> bytes:
        if not xx:
            return self._set_command(key, value, timeout, version, nx)
        if nx:
            raise ValueError("nx and xx exclude each other")
        lifetime_ms = self._timeout_ms(timeout)
        if lifetime_ms == 0:
            return self._command(b"DEL", key, version)
        life = () if lifetime_ms is None else (b"PX", b"%d" % lifetime_ms)
        return self._command(b"SET", key, version, self.codec.encode(value), b"XX", *life)

    # -- Django's others ---------------------------------------------------------------------

    def _added(
        self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> Flow[bool]:
        packed = self._set_command(key, value, timeout, version, True)
        reply = yield from self._replied(packed, ONCE)
        return _stored(reply, True)

    def _got_many(self, keys: Iterable[Any], version: int | None = None) -> Flow[dict[Any, Any]]:
        if self._sharded:
            return (yield from EngineCache._get_many(self, keys, version))
        given = list(keys)
        packed = self._mget_command(given, version)
        if not packed:
            return {}
        replies = yield from self._replied(packed, READ)
        return self._values(given, replies)

    def _did_set_many(
        self, data: Mapping[Any, Any], timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> Flow[list[Any]]:
        if self._sharded:
            return (yield from EngineCache._set_many(self, dict(data), timeout, version))
        packed, count = self._set_many_command(dict(data), timeout, version)
        if count:
            replies = yield call(self._topology, "ask_many", packed, count, ONCE)
            if ErrorReply in map(type, replies):
                self._raise(next(each for each in replies if type(each) is ErrorReply), packed)
        return []

    def _incr(
        self,
        key: Any,
        delta: Any = 1,
        version: int | None = None,
        ignore_key_check: bool = False,
    ) -> Flow[Any]:
        """The sum of a number and ``delta``; it keeps its deadline.

        Raises ValueError if there is no such key. With ``ignore_key_check`` it then begins at
        0, and never expires.
        """
        if not ignore_key_check:
            return (yield from EngineCache._incr(self, key, delta, version))
        packed = self._command(b"INCRBY", key, version, b"%d" % delta)
        return (yield from self._replied(packed, ONCE))

    def _decr(
        self,
        key: Any,
        delta: Any = 1,
        version: int | None = None,
        ignore_key_check: bool = False,
    ) -> Flow[Any]:
        """:meth:`incr` of what is taken away."""
        return (yield from self._incr(key, -delta, version, ignore_key_check))

    incr, aincr = twins(_incr)
    decr, adecr = twins(_decr)

    def _incr_version(self, key: Any, delta: int = 1, version: int | None = None) -> Flow[int]:
        """Renames the key to another version, atomically but on a cluster; the new version."""
        old: int = self.version if version is None else version
        old_key, new_key = self._raw_key(key, old), self._raw_key(key, old + delta)
        if not (yield ask("move", old_key, new_key)):
            raise ValueError(f"Key '{key}' not found")
        return old + delta

    incr_version, aincr_version = twins(_incr_version)

    _add, add, aadd = forgiving("add", _added)
    _get_many, get_many, aget_many = forgiving("get_many", _got_many)
    _set_many, set_many, aset_many = forgiving("set_many", _did_set_many)
    _delete_many, delete_many, adelete_many = forgiving("delete_many", EngineCache._delete_many)
    _delete, delete, adelete = forgiving("delete", EngineCache._delete)
    _touch, touch, atouch = forgiving("touch", EngineCache._touch)
    _has_key, has_key, ahas_key = forgiving("has_key", EngineCache._has_key)

    # -- those beyond Django's ---------------------------------------------------------------

    _pttl, pttl, apttl = forgiving("pttl", ExtraMethods._pttl)
    _expire, expire, aexpire = forgiving("expire", ExtraMethods._expire)
    _pexpire_at, pexpire_at, apexpire_at = forgiving("pexpire_at", ExtraMethods._pexpire_at)
    _persist, persist, apersist = forgiving("persist", ExtraMethods._persist)
    _keys, keys, akeys = forgiving("keys", ExtraMethods._keys)

    def _deleted_pattern(
        self, pattern: str, version: int | None = None, itersize: int | None = None
    ) -> Flow[int]:
        """Deletes the keys that match; returns how many.

        The whole database is looked at, ``itersize`` keys per step (1000 if not given), on
        every primary. No step keeps the server from others for long.
        """
        space = self._key_space(version)
        count = {"count": itersize} if itersize else {}
        glob, prefix = space.glob(pattern), space.prefix or b""
        gone: int = yield ask("clear_matching", prefix=prefix, glob=glob, **count)
        return gone

    _delete_pattern, delete_pattern, adelete_pattern = forgiving("delete_pattern", _deleted_pattern)

    def _cleared(self) -> Flow[None]:
        """Deletes every key of this KEY_PREFIX, of all versions, and nobody else's.

        It looks at the whole database; with the option ``flush_on_clear`` it is FLUSHDB
        instead. Raises ImproperlyConfigured if the KEY_FUNCTION makes keys that begin with
        nothing of their own.
        """
        if self.options.flush_on_clear and not self._namespaced:
            yield ask("flush")
        else:
            yield ask("clear_matching", prefix=self._common_prefix())

    _clear, clear, aclear = forgiving("clear", _cleared)

    def _flush_all(self) -> Flow[None]:
        """FLUSHDB on every primary: other programs' keys and all locks are gone as well.

        In a test run that is kept apart it deletes the run's own keys, and no others.
        """
        if self._namespaced:
            yield ask("clear_matching", prefix=self._common_prefix())
        else:
            yield ask("flush")

    flush_all, aflush_all = twins(_flush_all)

    def _counted(self) -> Flow[dict[str, int]]:
        counted = yield from ExtraMethods._stats(self)
        return counted | {"forgiven": self._outage.forgiven}

    def _stats(self) -> Flow[dict[str, int]]:
        """Numbers of the server (INFO), of the connections, and of what this process forgave."""
        try:
            return (yield from self._counted())
        except EngineUnavailable as error:
            self._forgive(error)
            return {
                **self._topology.stats(),
                **self.counters.as_dict(),
                "forgiven": self._outage.forgiven,
            }

    stats, astats = twins(_stats)

    @property
    def client(self) -> Any:
        """A redis-py client for everything else, over a bounded pool of this process.

        Its keys are the server's: ``make_key`` makes one of yours. It raises redis-py's errors.
        """
        return self._topology.client()

    @property
    def aclient(self) -> Any:
        """A ``redis.asyncio`` client of the running event loop; see :attr:`client`."""
        return self._topology.aclient()

    # -- the steps ---------------------------------------------------------------------------

    def _replied(self, packed: bytes, safety: int) -> Flow[Reply]:
        key = key_of(packed) if self._sharded else None
        reply = yield call(self._topology, "ask", packed, key, safety)
        if isinstance(reply, ErrorReply):
            self._raise(reply, packed)
        return reply

    def _raise(self, reply: ErrorReply, packed: bytes) -> NoReturn:
        # Imported here: `nearcache.backends` is imported by who uses no Redis.
        from nearcache.engines.redis.protocol.faults import error_of

        self._topology.told(reply)
        raise error_of(reply, packed)

    def _is_as(self, other: Any) -> bool:
        if not isinstance(other, RedisMethods):
            return False
        return other.engine is self.engine and other.key_prefix == self.key_prefix

    def _common_prefix(self) -> bytes:
        """What all keys of this prefix begin with, whatever their version."""
        if self.key_func is default_key_func:
            return encode_key(f"{self.key_prefix}:")
        ones, twos = (self.key_func("", self.key_prefix, version) for version in (1, 2))
        same = 0
        while same < min(len(ones), len(twos)) and ones[same] == twos[same]:
            same += 1
        if not same or not self.key_func("x", self.key_prefix, 1).startswith(ones):
            raise SettingsError(
                type(self).__name__,
                "KEY_FUNCTION",
                "makes keys that do not begin alike, so clear() cannot tell them from other"
                " programs' keys; set the option flush_on_clear if there are none",
            )
        return encode_key(ones[:same])


def key_of(packed: bytes) -> bytes:
    """The second word of a packed command: the key, in all commands that are asked one by one."""
    name = packed.index(b"\r\n", 4) + 2  # behind "*3\r\n$3\r\n"
    length = packed.index(b"$", name + int(packed[packed.index(b"$") + 1 : name - 2])) + 1
    start = packed.index(b"\r\n", length) + 2
    return packed[start : start + int(packed[length : start - 2])]


def _stored(reply: Reply, nx: bool) -> bool:
    if isinstance(reply, int):  # a lifetime of nothing: EXISTS or DEL was sent (see `_core.pyi`)
        return not reply if nx else bool(reply)
    return reply is not None
