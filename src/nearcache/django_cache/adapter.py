"""Django's cache contract over any engine and codec.

Keys are made and checked by Django's own code, so key functions, prefixes, versions and the
warnings about awkward keys are Django's to the letter. Values go through the codec, and one
that cannot be read back is a miss that is counted. Timeouts become deadlines in ms.

Where Django's base class would do several steps, the engine does one: ``add``, ``incr`` and
``touch`` are atomic among all processes and keep the deadline.

Each method is a flow (:mod:`nearcache.base.sans_io`): over an engine that waits for a network, its
``a`` twin awaits the engine's; over any other, it calls straight through. Neither hands work
to a thread, as Django's own ``a*`` methods do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cached_property
from typing import Any, ClassVar

from django.core.cache.backends.base import DEFAULT_TIMEOUT
from django.core.exceptions import ImproperlyConfigured

from nearcache.base.counters import Counters
from nearcache.base.options import CacheOptions
from nearcache.base.per_process import once
from nearcache.base.sans_io import Flow, ask, twins
from nearcache.codec import Codec, codec_for
from nearcache.codec.envelope import with_envelopes
from nearcache.django_cache.get_or_set import StampedeProof
from nearcache.django_cache.placement import test_run
from nearcache.django_cache.settings_entry import check_entry
from nearcache.engines.contract import Engine
from nearcache.errors import DataError, OptionError

_INT64 = range(-(2**63), 2**63)


Written = tuple[tuple[str, Any], ...]


def _parse(options_class: Any, written: Written) -> Any:
    """Django makes a backend for each thread and each asyncio task: settings are parsed once."""
    key = (options_class, written)
    try:
        found = _parsed.get(key)
    except TypeError:  # lists and dicts, which cannot be hashed
        key = (options_class, _frozen(written))
        try:
            found = _parsed.get(key)
        except TypeError:  # something else; its parser will say what is wrong
            return options_class.parse(dict(written))
    if found is None:
        if len(_parsed) >= MOST_PARSED:
            _parsed.clear()
        found = _parsed[key] = options_class.parse(dict(written))
    return found


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return (dict, *((name, _frozen(each)) for name, each in value.items()))
    return (type(value), *map(_frozen, value)) if isinstance(value, list | tuple) else value


MOST_PARSED = 256
_parsed: dict[Any, Any] = {}


class SettingsError(OptionError, ImproperlyConfigured):
    """An OptionError that Django knows how to report."""


def settings_error(error: OptionError) -> SettingsError:
    """The same error for Django; under ``manage.py`` it is one line instead of a traceback."""
    commands: Any = sys.modules.get("django.core.management.base")
    kind: Any = SettingsError
    if commands is not None:  # which a server does not import
        kind = type("SettingsError", (SettingsError, commands.CommandError), {})
    made: SettingsError = kind(error.backend, error.option, error.problem)
    return made


class Configured(StampedeProof):
    """What a backend knows from its settings. Constructing one is cheap and opens nothing."""

    options_class: ClassVar[type[CacheOptions]]

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        try:
            check_entry(self.options_class, params)
        except OptionError as error:
            raise settings_error(error) from error
        super().__init__(params)
        given = params.get("OPTIONS") or {}
        where = location or self.options_class.unnamed_location
        written = (("LOCATION", where), *given.items())
        try:
            self.options: CacheOptions = _parse(self.options_class, written)
        except OptionError as error:
            raise settings_error(error) from error
        self.flight_wait_s = self.options.single_flight_s
        self.bounded = bool({"MAX_ENTRIES"} & given.keys() or {"max_entries"} & params.keys())

    @property
    def apart(self) -> bool:
        """Whether this is a test run's own cache instead of the one that is configured."""
        return self.options.tests == "apart" and test_run.running()

    def open_engine(self) -> Engine:
        """The engine of this process for these options: the same object every time."""
        raise NotImplementedError

    @property
    def engine(self) -> Engine:
        return self.open_engine()

    @cached_property
    def codec(self) -> Codec:
        key = ("codec", self.options.codec_key, self.clock)
        codec: Codec = once(key, lambda: with_envelopes(codec_for(self.options), self.clock))
        return codec

    @property
    def native_codec(self) -> bool:
        """Whether the native module writes and reads what :attr:`codec` would."""
        return self.options.native_codec

    @cached_property
    def counters(self) -> Counters:
        return once((type(self), "counters", self.options.location), Counters)

    def _room_for(self, raw_key: bytes) -> Flow[None]:
        """Django's MAX_ENTRIES, for who asked for it; memory is bounded by the engine anyway."""
        if not self.bounded:
            return
        items = yield ask("__len__")
        if items < self._max_entries or (yield ask("contains", raw_key)):
            return
        if self._cull_frequency == 0:
            yield ask("clear")
        else:
            yield ask("cull", items // self._cull_frequency)

    _make_room, _amake_room = twins(_room_for)


class EngineCache(Configured):
    """A Django cache over :meth:`open_engine`."""

    def _get(self, key: Any, default: Any = None, version: int | None = None) -> Flow[Any]:
        raw = yield ask("get", self._raw_key(key, version))
        return default if raw is None else self._decoded(raw, default)

    get, aget = twins(_get)

    def _set(
        self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> Flow[None]:
        yield from self._stored(key, value, timeout, version)

    set, aset = twins(_set)

    def _add(
        self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> Flow[bool]:
        raw_key, raw = self._raw_key(key, version), self.codec.encode(value)
        yield from self._room_for(raw_key)
        done: bool = yield ask("add", raw_key, raw, self._expires_at_ms(timeout))
        return done

    add, aadd = twins(_add)

    def _touch(
        self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> Flow[bool]:
        return (yield from self._moved(self._raw_key(key, version), self._expires_at_ms(timeout)))

    touch, atouch = twins(_touch)

    def _delete(self, key: Any, version: int | None = None) -> Flow[bool]:
        done: bool = yield ask("delete", self._raw_key(key, version))
        return done

    delete, adelete = twins(_delete)

    def _has_key(self, key: Any, version: int | None = None) -> Flow[bool]:
        done: bool = yield ask("contains", self._raw_key(key, version))
        return done

    has_key, ahas_key = twins(_has_key)

    def _incr(self, key: Any, delta: Any = 1, version: int | None = None) -> Flow[Any]:
        if type(delta) is not int or delta not in _INT64:
            return (yield from self._incr_any(key, delta, version))
        try:
            total = yield ask("incr", self._raw_key(key, version), delta)
        except DataError:
            return (yield from self._incr_any(key, delta, version))
        if total is None:
            raise ValueError(f"Key '{key}' not found")
        return total

    incr, aincr = twins(_incr)

    def _get_many(self, keys: Iterable[Any], version: int | None = None) -> Flow[dict[Any, Any]]:
        given = list(keys)
        raws = yield ask("get_many", [self._raw_key(key, version) for key in given])
        missing = self._missing_key
        found = (
            (key, self._decoded(raw, missing))
            for key, raw in zip(given, raws, strict=True)
            if raw is not None
        )
        return {key: value for key, value in found if value is not missing}

    get_many, aget_many = twins(_get_many)

    def _set_many(
        self,
        data: dict[Any, Any],
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
    ) -> Flow[list[Any]]:
        if self.bounded:
            refused_keys = []
            for key, value in data.items():
                if not (yield from self._stored(key, value, timeout, version)):
                    refused_keys.append(key)
            return refused_keys
        encode = self.codec.encode
        items = [(self._raw_key(key, version), encode(value)) for key, value in data.items()]
        refused = yield ask("set_many", items, self._expires_at_ms(timeout))
        self.counters.refuse(type(self).__name__, len(refused))
        names = list(data)
        return [names[at] for at in refused]

    set_many, aset_many = twins(_set_many)

    def _delete_many(self, keys: Iterable[Any], version: int | None = None) -> Flow[None]:
        yield ask("delete_many", [self._raw_key(key, version) for key in keys])

    delete_many, adelete_many = twins(_delete_many)

    def _stored(self, key: Any, value: Any, timeout: Any, version: int | None) -> Flow[bool]:
        raw_key, raw = self._raw_key(key, version), self.codec.encode(value)
        yield from self._room_for(raw_key)
        stored: bool = yield ask("set", raw_key, raw, self._expires_at_ms(timeout))
        self.counters.refuse(type(self).__name__, not stored)
        return stored
