"""``@memoize``: what a function returns is kept in a cache, under a key made of its arguments.

    @memoize(timeout=300, stale=60)
    def prices(shop, currency="EUR"): ...

    prices(shop)                   from the cache, or computed once for all who ask meanwhile
    prices.invalidate(shop)        forgets one result; True if there was one
    prices.refresh(shop)           computes it anew and keeps that
    prices.key(shop)               the cache key
    prices.uncached(shop)          the function itself

The last four take the arguments of the function. Of a coroutine function the call itself,
``ainvalidate`` and ``arefresh`` are awaited; a plain function has these as well, for async
code. Methods are bound: ``obj.total.invalidate(1)``. Write ``@memoize`` above
``@classmethod`` and ``@staticmethod``.

The key is made by :mod:`nearcache.base.function_keys`. What the function returns is protected as
:mod:`nearcache.django_cache.get_or_set` says; ``None`` is a result like any other, and an exception
is not kept. With a cache of another package (in tests, say) it is that cache's own ``get_or_set``,
without the protection.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any, overload

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.core.cache import caches
from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache

from nearcache.base.function_keys import call_key, captured_names, function_name, value_key
from nearcache.base.sans_io import arun, run
from nearcache.coordination.single_flight import Tasks, Threads
from nearcache.django_cache.get_or_set import GetOrSet, StampedeProof
from nearcache.django_cache.get_or_set_options import Terms

__all__ = ["Memoized", "memoize"]


@overload
def memoize(function: Callable[..., Any], /) -> Memoized: ...


@overload
def memoize(
    timeout: Any = ...,
    *,
    alias: str = ...,
    key: Callable[..., Any] | str | None = ...,
    version: Any = ...,
    ignore: Collection[str] = ...,
    early: bool | float | None = ...,
    stale: float | None = ...,
    stale_on_error: float | None = ...,
    jitter: float | None = ...,
    wait: float | None = ...,
) -> Callable[[Callable[..., Any]], Memoized]: ...


def memoize(
    timeout: Any = DEFAULT_TIMEOUT,
    *,
    alias: str = "default",
    key: Callable[..., Any] | str | None = None,
    version: Any = None,
    ignore: Collection[str] = (),
    early: bool | float | None = None,
    stale: float | None = None,
    stale_on_error: float | None = None,
    jitter: float | None = None,
    wait: float | None = None,
) -> Any:
    """Keeps what a function returns in ``caches[alias]`` for ``timeout`` seconds.

    ``key``: a function of the same arguments that returns what tells calls apart, or a text
    where all calls are one; the function's name is in the key in any case. ``version``: a
    change forgets all results. ``ignore``: names of parameters, and of captured
    variables, that make no difference.
    The others are those of ``get_or_set``; ``early`` is on unless it is said otherwise, or the
    cache writes another backend's format. TypeError: the function has no name of its own; at a
    call: an argument has no stable identity.
    """
    protection = (early, stale, stale_on_error, jitter, wait)

    def decorate(function: Any) -> Memoized:
        return Memoized(function, lifetime, alias, key, version, ignore, protection)

    if callable(timeout) or isinstance(timeout, classmethod | staticmethod):  # a bare @memoize
        function, lifetime = timeout, DEFAULT_TIMEOUT
        return decorate(function)
    lifetime = timeout
    return decorate


class Memoized:
    """A function with a cache in front; see the head of this module."""

    def __init__(
        self,
        function: Any,
        timeout: Any,
        alias: str,
        key: Callable[..., Any] | str | None,
        version: Any,
        ignore: Collection[str],
        protection: tuple[Any, ...],
    ) -> None:
        self._descriptor = function if hasattr(type(function), "__get__") else None
        plain = getattr(function, "__func__", function)
        if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
            raise TypeError(f"{plain!r} is a generator, which can be used once only")
        function_name(plain)  # fails here rather than at the first call
        functools.update_wrapper(self, plain)
        self._function = plain
        self._timeout = timeout
        self._alias = alias
        self._key = key
        self._version = version
        self._ignore = frozenset(ignore)
        self._protection = protection
        self._is_async = iscoroutinefunction(plain)
        unknown = self._ignore - set(inspect.signature(plain).parameters)
        if unknown and (unknown := unknown - captured_names(plain)):
            raise TypeError(f"{plain!r} has no parameter {', '.join(sorted(unknown))} to ignore")
        if self._is_async:
            markcoroutinefunction(self)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """The method of an object, or of a class, with the same helpers."""
        if self._descriptor is None:
            return self
        bound = self._descriptor.__get__(instance, owner)
        subject = getattr(bound, "__self__", None)
        return self if subject is None else BoundMemoized(self, subject)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._is_async:
            return self._acall(args, kwargs)
        cache, key = self._cache, self.key(*args, **kwargs)
        compute = functools.partial(self._function, *args, **kwargs)
        if not isinstance(cache, StampedeProof):
            return cache.get_or_set(key, compute, self._timeout)
        # Nobody increments what is under a key of ours: an int is a result like any other.
        return cache._served(key, compute, self._timeout, None, self._terms(cache), counts=False)

    async def _acall(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        cache, key = self._cache, self.key(*args, **kwargs)
        compute = functools.partial(self._function, *args, **kwargs)
        if not isinstance(cache, StampedeProof):
            missing = object()
            value = await cache.aget(key, missing)
            if value is missing:
                value = await compute()
                await cache.aset(key, value, self._timeout)
            return value
        terms = self._terms(cache)
        return await cache._aserved(key, compute, self._timeout, None, terms, counts=False)

    # -- helpers -----------------------------------------------------------------------------

    @property
    def uncached(self) -> Callable[..., Any]:
        """The function itself."""
        function: Callable[..., Any] = self._function
        return function

    def key(self, *args: Any, **kwargs: Any) -> str:
        """The cache key of a call; TypeError if an argument has no stable identity."""
        if self._key is None:
            return call_key(self._function, args, kwargs, ignore=self._ignore, more=self._version)
        told = self._key if isinstance(self._key, str) else self._key(*args, **kwargs)
        return value_key(self._function, (self._version, told))

    def invalidate(self, *args: Any, **kwargs: Any) -> bool:
        """Forgets the result of that call; True if there was one."""
        return self._cache.delete(self.key(*args, **kwargs))

    async def ainvalidate(self, *args: Any, **kwargs: Any) -> bool:
        """:meth:`invalidate`."""
        return await self._cache.adelete(self.key(*args, **kwargs))

    def refresh(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function now, and keeps what it returns in place of what was known."""
        if self._is_async:
            return self.arefresh(*args, **kwargs)
        cache, key = self._cache, self.key(*args, **kwargs)
        compute = functools.partial(self._function, *args, **kwargs)
        if isinstance(cache, StampedeProof):
            call = self._call(cache, key, compute, Threads)
            return run(cache._set_anew(call), cache.engine, cache.clock)
        value = compute()
        cache.set(key, value, self._timeout)
        return value

    async def arefresh(self, *args: Any, **kwargs: Any) -> Any:
        """:meth:`refresh`, awaited; of a plain function too."""
        cache, key = self._cache, self.key(*args, **kwargs)
        compute = functools.partial(self._function, *args, **kwargs)
        if isinstance(cache, StampedeProof):
            call = self._call(cache, key, compute, Tasks)
            return await arun(cache._set_anew(call), cache.engine, cache.clock)
        value = compute()
        value = await value if inspect.isawaitable(value) else value
        await cache.aset(key, value, self._timeout)
        return value

    # -- shared by the above -----------------------------------------------------------------

    @property
    def _cache(self) -> BaseCache:
        return caches[self._alias]

    def _terms(self, cache: StampedeProof) -> Terms:
        early, *others = self._protection
        if early is None and cache.keeps_envelopes:
            early = getattr(cache.options, "early", 0) or True
        return cache._terms(early, *others)

    def _call(
        self, cache: StampedeProof, key: str, compute: Callable[[], Any], ways: type[Threads]
    ) -> GetOrSet:
        return cache._call(key, compute, self._timeout, None, self._terms(cache), ways, False)


class BoundMemoized:
    """A memoized method of one object."""

    def __init__(self, memoized: Memoized, subject: Any) -> None:
        functools.update_wrapper(self, memoized.uncached)
        self.__self__ = subject
        self._memoized = memoized
        if iscoroutinefunction(memoized.uncached):
            markcoroutinefunction(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._memoized(self.__self__, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name not in {"uncached", "key", "invalidate", "ainvalidate", "refresh", "arefresh"}:
            raise AttributeError(name)
        return functools.partial(getattr(self._memoized, name), self.__self__)
