"""Django's cache contract over any engine and codec.

Keys are made and checked by Django's own code, so key functions, prefixes, versions and the
warnings about awkward keys are Django's to the letter. Values go through the codec, and one
that cannot be read back is a miss that is counted. Timeouts become deadlines in ms.

Where Django's base class would do several steps, the engine does one: ``add``, ``incr`` and
``touch`` are atomic among all processes and keep the deadline.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, ClassVar

from django.core.cache.backends.base import DEFAULT_TIMEOUT
from django.core.exceptions import ImproperlyConfigured

from nearcache.codec import Codec, Undecodable, make_codec
from nearcache.engine import Engine
from nearcache.errors import DataError, OptionError
from nearcache.metrics import Counters
from nearcache.options import CacheOptions
from nearcache.process import once
from nearcache.stampede import StampedeProof
from nearcache.twins import AsyncTwins

_INT64 = range(-(2**63), 2**63)


Written = tuple[tuple[str, Any], ...]


def _parse(options_class: Any, written: Written) -> Any:
    """Django makes a backend for each thread and each asyncio task: settings are parsed once."""
    try:
        return _parse_once(options_class, written)
    except TypeError:  # a value that cannot be hashed; its parser will say what is wrong
        return options_class.parse(dict(written))


@lru_cache(maxsize=256)
def _parse_once(options_class: Any, written: Written) -> Any:
    return options_class.parse(dict(written))


class SettingsError(OptionError, ImproperlyConfigured):
    """An OptionError that Django knows how to report."""


class Configured(AsyncTwins, StampedeProof):
    """What a backend knows from its settings. Constructing one is cheap and opens nothing."""

    options_class: ClassVar[type[CacheOptions]]

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        super().__init__(params)
        given = params.get("OPTIONS") or {}
        written = (("LOCATION", location or "default"), *given.items())
        try:
            self.options: CacheOptions = _parse(self.options_class, written)
        except OptionError as error:
            raise SettingsError(error.backend, error.option, error.problem) from error
        self.flight_wait_s = self.options.single_flight_s
        self.bounded = bool({"MAX_ENTRIES"} & given.keys() or {"max_entries"} & params.keys())

    def open_engine(self) -> Engine:
        """The engine of this process for these options: the same object every time."""
        raise NotImplementedError

    @property
    def engine(self) -> Engine:
        return self.open_engine()

    @property
    def codec(self) -> Codec:
        chosen = self.options
        return once(
            ("codec", chosen.serializer, chosen.compressor, chosen.compress_min_bytes),
            lambda: make_codec(chosen.serializer, chosen.compressor, chosen.compress_min_bytes),
        )

    @property
    def native_codec(self) -> bool:
        """Whether the native module writes what :attr:`codec` would."""
        return self.options.serializer == "auto" and self.options.compressor == "none"

    @property
    def counters(self) -> Counters:
        return once((type(self), "counters", self.options.location), Counters)

    def _make_room(self, raw_key: bytes) -> None:
        """Django's MAX_ENTRIES, for who asked for it; memory is bounded by the engine anyway."""
        if not self.bounded:
            return
        items = len(self.engine)
        if items < self._max_entries or self.engine.contains(raw_key):
            return
        if self._cull_frequency == 0:
            self.engine.clear()
        else:
            self.engine.cull(items // self._cull_frequency)


class EngineCache(Configured):
    """A Django cache over :meth:`open_engine`."""

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        raw = self.engine.get(self._raw_key(key, version))
        return default if raw is None else self._decoded(raw, default)

    def set(
        self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> None:
        self._stored(key, value, timeout, version)

    def add(
        self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> bool:
        raw_key, raw = self._raw_key(key, version), self.codec.encode(value)
        self._make_room(raw_key)
        return self.engine.add(raw_key, raw, self._expires_at_ms(timeout))

    def touch(self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        return self.engine.touch(self._raw_key(key, version), self._expires_at_ms(timeout))

    def delete(self, key: Any, version: int | None = None) -> bool:
        return self.engine.delete(self._raw_key(key, version))

    def has_key(self, key: Any, version: int | None = None) -> bool:
        return self.engine.contains(self._raw_key(key, version))

    def incr(self, key: Any, delta: Any = 1, version: int | None = None) -> Any:
        if type(delta) is not int or delta not in _INT64:
            return self._incr_object(key, delta, version)
        try:
            total = self.engine.incr(self._raw_key(key, version), delta)
        except DataError:
            return self._incr_object(key, delta, version)
        if total is None:
            raise ValueError(f"Key '{key}' not found")
        return total

    def decr(self, key: Any, delta: Any = 1, version: int | None = None) -> Any:
        return self.incr(key, -delta, version)

    def get_many(self, keys: Iterable[Any], version: int | None = None) -> dict[Any, Any]:
        given = list(keys)
        raws = self.engine.get_many([self._raw_key(key, version) for key in given])
        missing = self._missing_key
        found = (
            (key, self._decoded(raw, missing))
            for key, raw in zip(given, raws, strict=True)
            if raw is not None
        )
        return {key: value for key, value in found if value is not missing}

    def set_many(
        self,
        data: dict[Any, Any],
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
    ) -> list[Any]:
        if self.bounded:
            return [key for key in data if not self._stored(key, data[key], timeout, version)]
        encode = self.codec.encode
        items = [(self._raw_key(key, version), encode(value)) for key, value in data.items()]
        refused = self.engine.set_many(items, self._expires_at_ms(timeout))
        self.counters.refused += len(refused)
        names = list(data)
        return [names[at] for at in refused]

    def delete_many(self, keys: Iterable[Any], version: int | None = None) -> None:
        self.engine.delete_many([self._raw_key(key, version) for key in keys])

    def _stored(self, key: Any, value: Any, timeout: Any, version: int | None) -> bool:
        raw_key, raw = self._raw_key(key, version), self.codec.encode(value)
        self._make_room(raw_key)
        stored = self.engine.set(raw_key, raw, self._expires_at_ms(timeout))
        self.counters.refused += not stored
        return stored

    def _decoded(self, raw: bytes, default: Any) -> Any:
        try:
            return self.codec.decode(raw)
        except Undecodable:
            self.counters.undecodable += 1
            return default
