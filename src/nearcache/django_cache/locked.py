"""``@locked``: one call at a time, on this host or in the whole fleet.

    @locked                                   # one at a time per function and arguments
    def rebuild(report_id): ...

    @locked(timeout=60, wait=0)               # somebody else is at it: LockNotAcquired
    async def import_feed(feed): ...

    @locked(key="nightly")                    # one name for several functions
    @locked(key=lambda request, part: part)   # one at a time per function and part

Which calls exclude each other:

    key=None        those of the same function with the same arguments, however they are
                    passed (:mod:`nearcache.base.function_keys`). Requests are the same if method,
                    path and query are. ``self`` counts if it is an instance of a model,
                    which stands for a row, and else does not
    key=function    those of the same function for which it returns the same text; it is
                    given the arguments of the call
    key="text"      all that use this text, ``cache.lock("text")`` included

The lock is ``caches[alias].lock``: among the processes of this host with SharedMemoryCache,
of all hosts with RedisCache. What waits, what renews and what is lost is told in
:mod:`nearcache.coordination.locks`; :func:`current_lock` gives the function its lock, for the
fencing token and for ``check()``. What the function returns is not kept: the next call runs again,
and has to look itself whether there is something left to do.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar, overload
from urllib.parse import parse_qsl

from asgiref.sync import iscoroutinefunction
from django.core.cache import caches

from nearcache.base.function_keys import (
    HASH_BYTES,
    NAME_MAX_CHARS,
    call_key,
    canonical,
    function_name,
)
from nearcache.coordination.locks import Lock

P = ParamSpec("P")
R = TypeVar("R")
Key = str | Callable[..., str] | None
Namer = Callable[[tuple[Any, ...], dict[str, Any]], str]
Locker = Callable[[tuple[Any, ...], dict[str, Any]], Lock]

PLAIN_MAX_CHARS = 60

_current: ContextVar[Lock | None] = ContextVar("nearcache_current_lock", default=None)


@overload
def locked(function: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def locked(
    name: str | None = None,
    /,
    alias: str = "default",
    timeout: float | None = 30,
    wait: float | None = None,
    *,
    key: Key = None,
    reentrant: bool = False,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def locked(
    given: Any = None,
    /,
    alias: str = "default",
    timeout: float | None = 30,
    wait: float | None = None,
    *,
    key: Key = None,
    reentrant: bool = False,
) -> Any:
    """Lets one call in at a time; see the head of this module.

    A function that makes keys is given as ``key=``; text may also come first. ``timeout``:
    seconds until the lock is free if its holder dies; while it lives they are renewed.
    ``wait``: seconds to wait for the lock; None for as long as it takes, 0 not at all.
    ``reentrant``: the thread or task that is inside may call again.

    TypeError: for generators, at once (their body runs when the lock is long released); for
    arguments without a stable identity, at the call. LockNotAcquired: not within ``wait``.
    LockLost: the function ran, and was not alone all the time. And what the cache raises.
    """
    if isinstance(given, str):
        given, key = None, given

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        name_of = _namer(_lockable(function), key)

        def locker(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Lock:
            return _lock_of(alias)(
                name_of(args, kwargs), timeout=timeout, wait=wait, reentrant=reentrant
            )

        wrapped: Callable[P, R] = _wrapped(function, locker)
        return wrapped

    return decorate if given is None else decorate(given)


def current_lock() -> Lock:
    """The lock of the innermost ``@locked`` function that is running here; RuntimeError outside.

    ``current_lock().token`` is its fencing token, ``current_lock().check()`` raises LockLost.
    """
    lock = _current.get()
    if lock is None:
        raise RuntimeError("no @locked function is running here")
    return lock


def _lockable(function: Any) -> Any:
    if not callable(function):
        what = type(function).__name__
        raise TypeError(f"@locked cannot lock a {what}; put it below @{what}, next to def")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"{function.__qualname__} is a generator: its body would run after the lock is"
            " released; lock where it is read to the end"
        )
    return function


def _lock_of(alias: str) -> Callable[..., Lock]:
    cache: Any = caches[alias]
    try:
        method: Callable[..., Lock] = cache.lock
    except AttributeError as error:
        raise TypeError(
            f"CACHES[{alias!r}] has no locks; make it a SharedMemoryCache or a RedisCache of"
            " nearcache.backends"
        ) from error
    return method


def _wrapped(function: Any, locker: Locker) -> Any:
    if not iscoroutinefunction(function):

        @functools.wraps(function)
        def alone(*args: Any, **kwargs: Any) -> Any:
            with locker(args, kwargs) as lock:
                outer = _current.set(lock)
                try:
                    return function(*args, **kwargs)
                finally:
                    _current.reset(outer)

        return alone

    @functools.wraps(function)
    async def aalone(*args: Any, **kwargs: Any) -> Any:
        async with locker(args, kwargs) as lock:
            outer = _current.set(lock)
            try:
                return await function(*args, **kwargs)
            finally:
                _current.reset(outer)

    return aalone


# ---- names


def _namer(function: Any, key: Any) -> Namer:
    """How the lock of a call is named; TypeError if it cannot be."""
    if isinstance(key, str):
        return lambda *_: key
    function = _inside(function)
    name = function_name(function)
    if key is None:
        own_self = _is_method(function)
        return lambda args, kwargs: _name_of_call(function, own_self, args, kwargs)
    if callable(key):
        return lambda args, kwargs: _within(name, key(*args, **kwargs))
    raise TypeError(f"{name}: key is {key!r}; write text, or a function that returns it")


def _inside(function: Any) -> Any:
    # Django's method_decorator makes a partial of a bound method, and says that it is the
    # method: its signature then has a ``self`` that nobody passes.
    while isinstance(function, functools.partial) and not function.args and not function.keywords:
        function = function.func
    return function


def _name_of_call(
    function: Any, own_self: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> str:
    # The object that a method belongs to is another one in every process, if it is no row.
    ignore = ("self",) if own_self and args and not hasattr(args[0], "_meta") else ()
    known = [_identity(each) for each in args]
    named = {each: _identity(value) for each, value in kwargs.items()}
    # Locks of one name exclude too much rather than too little.
    return call_key(function, known, named, ignore=ignore, captured=False)


def _identity(argument: Any) -> Any:
    """What an argument stands for: of a request, its method, path and query; else itself."""
    # By its looks: requests of other frameworks on Django's (DRF) are none of Django's class.
    if not all(hasattr(argument, each) for each in ("method", "path", "META", "COOKIES")):
        return argument
    query = parse_qsl(argument.META.get("QUERY_STRING", ""), keep_blank_values=True)
    return "request", argument.method, argument.path, sorted(query)


def _within(name: str, text: Any) -> str:
    """A name among those of one function; readable if it can be."""
    if not isinstance(text, str):
        raise TypeError(f"{name}: key= returned {text!r}; it must return text")
    # Django warns of other characters, as Memcached refuses them.
    plain = text.isascii() and text.isprintable() and " " not in text
    if plain and len(text) <= PLAIN_MAX_CHARS and len(name) <= NAME_MAX_CHARS:
        return f"{name}:{text}"
    digest = hashlib.blake2b(canonical((name, text)), digest_size=HASH_BYTES)
    return f"{name[:NAME_MAX_CHARS]}:{digest.hexdigest()}"


def _is_method(function: Any) -> bool:
    if inspect.ismethod(function):
        return False
    owner = inspect.unwrap(function).__qualname__.rpartition(".")[0]
    parameters = iter(inspect.signature(function).parameters)
    return bool(owner) and not owner.endswith("<locals>") and next(parameters, "") == "self"
