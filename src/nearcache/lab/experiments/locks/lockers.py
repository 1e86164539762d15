"""The locks that are compared, each as a decorator: one class per arm.

A locker is opened in the process that uses it. ``decorate`` makes all calls of a function
take turns under one name, wherever they come from; ``by_arguments`` is what a decorator
does when nobody names the lock, for those that have an answer to that.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from nearcache.lab.base.directories import mount_of
from nearcache.lab.proofs.proof import TreatmentNotApplied

Function = Callable[..., Any]
Options = Mapping[str, Any]


class Locker(ABC):
    """One way to let only one in."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @abstractmethod
    def decorate(self, function: Function, name: str) -> Function:
        """``function``, one call at a time among all that use ``name``."""

    def by_arguments(self, function: Function) -> Function | None:
        """``function`` as the decorator does it by itself; None if it has no view on that."""
        return None

    @abstractmethod
    def proof(self) -> dict[str, str]:
        """What it is, from live objects."""


class NoLock(Locker):
    """The bare function: what everything is measured against, and the proof of the proof."""

    def decorate(self, function: Function, name: str) -> Function:
        return function

    def proof(self) -> dict[str, str]:
        return {"lock": "none"}


class WithBlock(Locker):
    """``with lock(name):`` around the call, the name given."""

    @abstractmethod
    def lock(self, name: str) -> AbstractContextManager[Any]: ...

    def decorate(self, function: Function, name: str) -> Function:
        @functools.wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            with self.lock(name):
                return function(*args, **kwargs)

        return inner


class SeedDecorator(Locker):
    """Seed 002's decorator as it was published: everything is a default."""

    def decorate(self, function: Function, name: str) -> Function:
        return lock_decorator(key_maker=lambda *_args, **_kwargs: name)(function)

    def by_arguments(self, function: Function) -> Function:
        return lock_decorator()(function)

    def proof(self) -> dict[str, str]:
        return prove_redis_lock(default_cache().lock("proof"), sleep_s=0.1, timeout_s=None)


def lock_decorator(key_maker: Callable[..., str] | None = None) -> Callable[[Function], Function]:
    """As in the article: the arguments name the lock, the function does not."""
    from django.utils.encoding import force_bytes

    cache = default_cache()

    def decorator(function: Function) -> Function:
        @functools.wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            key = key_maker(*args, **kwargs) if key_maker else str(args) + str(kwargs)
            lock_key = hashlib.md5(force_bytes(key)).hexdigest()  # noqa: S324 - as published
            with cache.lock(lock_key):
                return function(*args, **kwargs)

        return inner

    return decorator


class TunedRedisLock(WithBlock):
    """The same lock of redis-py, asked more often, and free again if its holder dies."""

    def lock(self, name: str) -> AbstractContextManager[Any]:
        found: AbstractContextManager[Any] = default_cache().lock(
            name, timeout=self.options["timeout_s"], sleep=self.options["sleep_s"]
        )
        return found

    def proof(self) -> dict[str, str]:
        return prove_redis_lock(
            self.lock("proof"), self.options["sleep_s"], self.options["timeout_s"]
        )


class Nearcache(Locker):
    """``nearcache.locked``, over whatever alias ``default`` is."""

    def decorate(self, function: Function, name: str) -> Function:
        from nearcache.locked import locked

        return locked(name, timeout=self.options["timeout_s"])(function)

    def by_arguments(self, function: Function) -> Function:
        from nearcache.locked import locked

        return locked(timeout=self.options["timeout_s"])(function)

    def proof(self) -> dict[str, str]:
        with default_cache().lock("proof", timeout=self.options["timeout_s"]) as lock:
            engine = f"{type(lock.engine).__module__}.{type(lock.engine).__qualname__}"
            return {
                "lock": f"{type(lock).__module__}.{type(lock).__qualname__}",
                "engine": engine,
                "fencing token": "yes" if lock.token else "no",
            }


class SpinOnAdd(WithBlock):
    """``cache.add`` until it succeeds, ``cache.delete`` at the end: the recipe of many sites."""

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        cache = default_cache()
        token = uuid.uuid4().hex
        while not cache.add(name, token, self.options["timeout_s"]):
            time.sleep(self.options["sleep_s"])
        try:
            yield
        finally:
            # Not atomic, as the recipe is: between the two lines it may expire and be another's.
            if cache.get(name) == token:
                cache.delete(name)

    def proof(self) -> dict[str, str]:
        from django.core.cache import caches

        backend = type(caches["default"])
        return {"lock": f"add of {backend.__module__}.{backend.__qualname__}"}


class FileLock(WithBlock):
    """``flock`` on a file, opened anew for each call.

    Not ``fcntl.lockf``: its locks belong to the process, and let in two of its threads.
    """

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        path = f"{self.options['directory']}/{name.replace(':', '_')}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)  # which lets go

    def proof(self) -> dict[str, str]:
        return {"lock": "flock", "file on": str(mount_of(Path(self.options["directory"])))}


class AdvisoryLock(WithBlock):
    """PostgreSQL's session lock, on a connection of each thread that stays open."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._local = threading.local()

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        connection = self._connection()
        key = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), signed=True)
        connection.execute("SELECT pg_advisory_lock(%s)", (key,))
        try:
            yield
        finally:
            connection.execute("SELECT pg_advisory_unlock(%s)", (key,))

    def proof(self) -> dict[str, str]:
        version = self._connection().execute("SHOW server_version").fetchone()[0]
        return {"lock": f"pg_advisory_lock of PostgreSQL {version}"}

    def _connection(self) -> Any:
        if not hasattr(self._local, "connection"):
            import psycopg

            self._local.connection = psycopg.connect(self.options["postgres"], autocommit=True)
        return self._local.connection


LOCKERS: dict[str, type[Locker]] = {
    "none": NoLock,
    "seed": SeedDecorator,
    "tuned": TunedRedisLock,
    "nearcache": Nearcache,
    "add": SpinOnAdd,
    "flock": FileLock,
    "advisory": AdvisoryLock,
}


def open_locker(options: Options) -> Locker:
    return LOCKERS[options["locker"]](options)


def default_cache() -> Any:
    """Django's proxy, whose backends may have more methods than its type knows."""
    from django.core.cache import cache

    return cache


def prove_redis_lock(lock: Any, sleep_s: float, timeout_s: float | None) -> dict[str, str]:
    """What a lock of redis-py is set to. Raises TreatmentNotApplied if not as ordered."""
    if lock.sleep != sleep_s or lock.timeout != timeout_s or lock.blocking_timeout is not None:
        raise TreatmentNotApplied(
            f"the lock polls every {lock.sleep} s with a timeout of {lock.timeout}, "
            f"not every {sleep_s} s with {timeout_s}"
        )
    return {
        "lock": f"{type(lock).__module__}.{type(lock).__qualname__}",
        "asks again every": f"{lock.sleep:g} s",
        "timeout": "none: held for ever" if lock.timeout is None else f"{lock.timeout:g} s",
        "waits at most": "for ever",
    }
