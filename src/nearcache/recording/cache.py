"""``RecordingCache``: a cache around another, which notes a share of the calls.

Every method of Django's, sync and async, is passed on as it was called; whatever else the
wrapped backend has is reached through it and not noted. A call whose key is not in the
sample costs one check and one call more. ``nearcache lab record cost`` measures both.

What a caller gets is what the wrapped cache answered, errors included.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from typing import Any

from django.conf import settings
from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache
from django.utils.module_loading import import_string

from nearcache.base.per_process import once
from nearcache.django_cache.adapter import settings_error
from nearcache.django_cache.settings_entry import check_entry
from nearcache.errors import OptionError
from nearcache.recording.calls import MANY, NOTHING, PLACES, Arguments, Call
from nearcache.recording.options import RecordingOptions
from nearcache.recording.recorder import Recorder, RecorderOptions


class RecordingCache(BaseCache):
    """Another cache, a share of whose calls is noted. See :class:`RecordingOptions`."""

    inner: Any
    recorder: Recorder

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        # Not BaseCache's: every attribute but these two is the wrapped cache's.
        chosen = _chosen(location, params)
        entry = dict(chosen.of)
        name = entry.pop("BACKEND")
        self.__dict__["inner"] = import_string(name)(entry.pop("LOCATION", ""), entry)
        self.__dict__["recorder"] = _recorder(chosen, name)

    @property  # type: ignore[misc] # written by nobody
    def __class__(self) -> Any:
        """For ``isinstance``: who asks what a cache can do gets the wrapped one's answer."""
        return type(self.__dict__["inner"])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["inner"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["inner"], name, value)

    def __contains__(self, key: Any) -> bool:
        return bool(self.has_key(key))

    def begin(
        self, arguments: Arguments, first: Any, keys: Collection[Any], of: int, is_async: bool
    ) -> Call | None:
        """The account of a call that is in the sample; None if recording itself fails."""
        try:
            return Call(
                self.recorder,
                arguments,
                keys,
                of,
                own_version=self.inner.version,
                ttl_ms=self._ttl_ms(arguments),
                values=_values(arguments, first),
                is_async=is_async,
            )
        except Exception as error:  # noqa: BLE001 - recording must not break the cache
            self.recorder.forgive(error)
            return None

    def _ttl_ms(self, arguments: Arguments) -> int | None:
        if "timeout" not in PLACES[arguments.operation]:
            return 0
        timeout = arguments.value_of("timeout", DEFAULT_TIMEOUT)
        if timeout is DEFAULT_TIMEOUT:
            timeout = self.inner.default_timeout
        return None if timeout is None else max(1, int(timeout * 1000))


def _values(arguments: Arguments, first: Any) -> Any:
    """What a call writes, by key."""
    if arguments.operation == "set_many":
        return first
    value = arguments.value_of("value", NOTHING)
    return {} if value is NOTHING else {first: value}


def _chosen(location: str, params: dict[str, Any]) -> RecordingOptions:
    try:
        check_entry(RecordingOptions, params)
        chosen = RecordingOptions.parse({"LOCATION": location, **(params.get("OPTIONS") or {})})
        for name, problem in (
            ("LOCATION", "" if chosen.location else "is missing: the file to record into"),
            ("of", "" if chosen.of else "is missing: the entry of the cache to record"),
            ("salt", "" if chosen.salt or settings.SECRET_KEY else "is needed without SECRET_KEY"),
        ):
            if problem:
                raise OptionError(RecordingOptions.backend, name, problem)
    except OptionError as error:
        raise settings_error(error) from error
    return chosen


def _recorder(chosen: RecordingOptions, backend: str) -> Recorder:
    """This process's recorder: Django makes a cache object for every thread and task."""
    salt = bytes(chosen.salt[0]) if chosen.salt else str(settings.SECRET_KEY).encode()
    options = RecorderOptions(
        path=chosen.location,
        share=chosen.share,
        max_bytes=chosen.size_bytes,
        # Not SECRET_KEY itself, so that nothing kept here is good for anything else.
        salt=hashlib.blake2b(salt, digest_size=32, person=b"nearcache-salt").digest(),
        prefixes=chosen.prefixes,
        backend=backend,
    )
    return once(("recorder", options), lambda: Recorder(options))


# -- the methods ---------------------------------------------------------------------------

Method = Callable[..., Any]


def _noted(
    self: RecordingCache,
    method: Callable[..., Any],
    given: Arguments,
    first: Any,
    keys: Any,
    of: int,
) -> Any:
    call = self.begin(given, first, keys, of, is_async=False)
    if call is None:
        return method(*_first(given, first), *given.by_place, **given.by_name)
    changed = call.arguments
    try:
        answer = method(*_first(given, first), *changed.by_place, **changed.by_name)
    except BaseException as error:
        call.failed(error)
        raise
    call.answered(answer)
    return given.value_of("default") if answer is NOTHING else answer


async def _awaited(
    self: RecordingCache,
    method: Callable[..., Any],
    given: Arguments,
    first: Any,
    keys: Any,
    of: int,
) -> Any:
    call = self.begin(given, first, keys, of, is_async=True)
    if call is None:
        return await method(*_first(given, first), *given.by_place, **given.by_name)
    changed = call.arguments
    try:
        answer = await method(*_first(given, first), *changed.by_place, **changed.by_name)
    except BaseException as error:
        call.failed(error)
        raise
    call.answered(answer)
    return given.value_of("default") if answer is NOTHING else answer


def _first(given: Arguments, first: Any) -> tuple[Any, ...]:
    return () if given.operation == "clear" else (first,)


Pair = tuple[Method, Method]  # to be called, and to be awaited


def _of_one_key(operation: str, name: str, twin: str) -> Pair:
    """Methods that hand on to the wrapped cache's ``name`` and ``twin``."""

    def method(self: RecordingCache, key: Any, *args: Any, **named: Any) -> Any:
        own = self.__dict__
        if not own["recorder"].takes(key):
            return getattr(own["inner"], name)(key, *args, **named)
        given = Arguments(operation, args, named)
        return _noted(self, getattr(own["inner"], name), given, key, (key,), 1)

    async def amethod(self: RecordingCache, key: Any, *args: Any, **named: Any) -> Any:
        own = self.__dict__
        if not own["recorder"].takes(key):
            return await getattr(own["inner"], twin)(key, *args, **named)
        given = Arguments(operation, args, named)
        return await _awaited(self, getattr(own["inner"], twin), given, key, (key,), 1)

    return method, amethod


def _of_many_keys(operation: str, name: str, twin: str) -> Pair:
    def sampled(
        self: RecordingCache, args: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[Arguments, Any, list[Any]]:
        first, *rest = args or (named.pop(MANY[operation]),)
        if not isinstance(first, Collection):
            first = list(first)  # a generator can be walked once
        takes = self.recorder.takes
        return Arguments(operation, tuple(rest), named), first, [key for key in first if takes(key)]

    def method(self: RecordingCache, *args: Any, **named: Any) -> Any:
        given, first, keys = sampled(self, args, named)
        inner = getattr(self.inner, name)
        if not keys:
            return inner(first, *given.by_place, **named)
        return _noted(self, inner, given, first, keys, len(first))

    async def amethod(self: RecordingCache, *args: Any, **named: Any) -> Any:
        given, first, keys = sampled(self, args, named)
        inner = getattr(self.inner, twin)
        if not keys:
            return await inner(first, *given.by_place, **named)
        return await _awaited(self, inner, given, first, keys, len(first))

    return method, amethod


def _clear(self: RecordingCache) -> Any:
    return _noted(self, self.inner.clear, Arguments("clear", (), {}), None, ("",), 0)


async def _aclear(self: RecordingCache) -> Any:
    return await _awaited(self, self.inner.aclear, Arguments("clear", (), {}), None, ("",), 0)


def _passed_on(name: str) -> Method:
    def method(self: RecordingCache, *args: Any, **named: Any) -> Any:
        return getattr(self.inner, name)(*args, **named)

    return method


# nearcache.django_cache.memoize asks a cache of ours by _served, which is its get_or_set with more
# terms.
_ways = [(name, name, f"a{name}") for name in PLACES if name != "clear"]
for _operation, _name, _twin in (*_ways, ("get_or_set", "_served", "_aserved")):
    _make = _of_many_keys if _operation in MANY else _of_one_key
    _pair = _make(_operation, _name, _twin)
    for _called, _made in zip((_name, _twin), _pair, strict=True):
        _made.__name__ = _called
        _made.__qualname__ = f"RecordingCache.{_called}"
        setattr(RecordingCache, _called, _made)
RecordingCache.clear = _clear  # type: ignore[assignment,method-assign]
RecordingCache.aclear = _aclear  # type: ignore[assignment,method-assign]
for _name in (
    "get_backend_timeout", "make_key", "validate_key", "make_and_validate_key", "close", "aclose",
):  # fmt: skip
    setattr(RecordingCache, _name, _passed_on(_name))
