"""``SESSION_ENGINE = "nearcache.sessions"``: nobody is logged out because the cache is away.

Django's ``sessions.backends.cache`` takes every exception of the cache for an unknown session: it
answers 200 as if nobody were logged in, and deletes the cookie. Here an outage stays an outage:

    MIDDLEWARE = [..., "nearcache.sessions.SessionMiddleware", ...]   # instead of Django's
    NEARCACHE_SESSIONS = {"WHILE_AWAY": "503", "RETRY_AFTER": 5}

    503    a page that needs the session is answered 503 with Retry-After. Pages that do not touch
           the session work
    keep   a page that only reads the session is answered as for an unknown visitor, who keeps the
           cookie

In both, a session that could not be read is never written. And a login, a logout or a change that
could not be stored is answered 503, also because it is too large: the visitor is not told that
something was done which was not. The log says why. Under Django's own middleware the 503 is a 500.
Keys and values are those of Django's engine, so a site may switch from one engine to the other.

Not here: sessions that outlive the cache. A server that restarts empty has lost them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from django.conf import settings
from django.contrib.sessions.backends.base import VALID_KEY_CHARS, CreateError, UpdateError
from django.contrib.sessions.backends.cache import SessionStore as DjangoStore
from django.contrib.sessions.middleware import SessionMiddleware as DjangoMiddleware
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.http import HttpRequest, HttpResponse

from nearcache.base.interrupts import is_interrupt
from nearcache.base.options import Options, one_of, option, whole
from nearcache.base.sans_io import Flow, call, twins
from nearcache.errors import SessionsAway

logger = logging.getLogger("nearcache.sessions")

NOT_AN_OUTAGE = (CreateError, UpdateError)
LONGEST_KEY = 64  # Django's have 32


@dataclass(frozen=True, kw_only=True)
class SessionOptions(Options):
    """``NEARCACHE_SESSIONS``."""

    backend: ClassVar[str] = "NEARCACHE_SESSIONS"

    while_away: str = option(
        "WHILE_AWAY",
        "What a page that reads the session gets while the cache is away: `503`, or `keep`, an"
        " empty session that leaves the cookie alone.",
        one_of("503", "keep"),
        default="503",
    )
    retry_after_s: int = option(
        "RETRY_AFTER", "Seconds, in the header of the 503.", whole(0), default=5
    )


@cache
def session_options() -> SessionOptions:
    """The options of the settings. Raises OptionError."""
    return SessionOptions.parse(getattr(settings, "NEARCACHE_SESSIONS", {}))


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "NEARCACHE_SESSIONS":
        session_options.cache_clear()


setting_changed.connect(_forget)


_logged: set[type[Exception]] = set()
"""Kinds of failures that were logged since a cache of sessions last did what it was asked."""


class SessionStore(DjangoStore):
    """Django's cache sessions, but an outage is told from a session that is not there."""

    # From Django's store; the cache is that of SESSION_CACHE_ALIAS.
    _cache: Any
    _get_session: Any

    engine = clock = None  # the flows here ask the cache, and Django's store

    def __init__(self, session_key: str | None = None) -> None:
        super().__init__(session_key)
        self.away: SessionsAway | None = None  # the last failure of this request
        self._unread = False  # if True, the stored session is not known, and must not be replaced
        self._demand_a_cache_that_says_so()

    def _load(self) -> Flow[dict[str, Any]]:
        if not is_possible(self._session_key):
            return self._found(None)
        try:
            with self._telling():
                return self._found((yield call(self._cache, "get", self.cache_key)))
        except SessionsAway:
            return self._unknown()

    load, aload = twins(_load)

    def _save(self, must_create: bool = False) -> Flow[None]:
        if not self._may_save():
            return
        with self._telling():
            if must_create or self.session_key is None:
                yield call(super(), "save", must_create)
            else:
                yield from self._replace()

    save, asave = twins(_save)

    def _exists(self, session_key: str) -> Flow[bool]:
        with self._telling():
            return bool((yield call(super(), "exists", session_key)))

    exists, aexists = twins(_exists)

    def _delete(self, session_key: str | None = None) -> Flow[None]:
        with self._telling():
            yield call(super(), "delete", session_key)

    delete, adelete = twins(_delete)

    def _flush(self) -> Flow[None]:
        """Deletes first, unlike Django: a session that could not be deleted stays the visitor's."""
        yield call(self, "delete")
        yield call(super(), "flush")
        self._unread = False

    flush, aflush = twins(_flush)

    def _cycle_key(self) -> Flow[None]:
        yield call(self, "keys")  # reads the session, unless it was read before
        self._demand_read()
        yield call(super(), "cycle_key")

    cycle_key, acycle_key = twins(_cycle_key)

    # -- the steps ---------------------------------------------------------------------------

    def _found(self, found: dict[str, Any] | None) -> dict[str, Any]:
        if found is not None:
            return found
        self._session_key = None  # as Django does: there is no such session
        return {}

    def _unknown(self) -> dict[str, Any]:
        """The session of a visitor whose session cannot be read now. The key stays."""
        if session_options().while_away == "503":
            assert self.away
            raise self.away
        self._unread = True
        return {}

    def _may_save(self) -> bool:
        """False if nothing is to be saved: the session was not read, and was not changed either.

        Django asks for that with SESSION_SAVE_EVERY_REQUEST. A changed one raises SessionsAway.
        """
        if self._unread and not self.modified:
            return False
        self._demand_read()
        return True

    def _replace(self) -> Flow[None]:
        """Django's way, but by ``set_many``, which tells what the cache did not store."""
        key, age_s = self.cache_key, (yield call(self, "get_expiry_age"))
        before = yield call(self._cache, "get", key)
        if before is None:
            raise UpdateError
        # `get_expiry_age` has read the session, so nothing is waited for here.
        if (yield call(self._cache, "set_many", {key: self._get_session()}, age_s)):
            # The stored session may be gone now. It is the visitor's, so it is put back.
            yield call(self._cache, "add", key, before, age_s)
            raise self._failed("did not store it: too large, or too busy", SessionsAway)

    def _demand_read(self) -> None:
        if self._unread:
            raise self.away or SessionsAway("the session could not be read")

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (SessionsAway, *NOT_AN_OUTAGE):
            raise
        except Exception as error:
            if is_interrupt(error):
                raise
            kind = type(error)
            raise self._failed(f"failed: {kind.__name__}: {error}", kind, error) from error
        else:
            _logged.clear()

    def _failed(
        self, said: str, kind: type[Exception], error: Exception | None = None
    ) -> SessionsAway:
        cache = f"the cache {settings.SESSION_CACHE_ALIAS!r}, asked for a session,"
        self.away = SessionsAway(f"{cache} {said}; nobody is logged out, try again")
        if kind not in _logged:
            _logged.add(kind)
            logger.warning("%s", self.away, exc_info=error)
        return self.away

    def _demand_a_cache_that_says_so(self) -> None:
        if _forgives(self._cache):
            raise ImproperlyConfigured(
                f"the cache {settings.SESSION_CACHE_ALIAS!r} answers an outage with misses, so "
                'sessions would seem gone; set SESSION_CACHE_ALIAS to one with on_error="raise"'
            )


def is_possible(key: str | None) -> bool:
    """False for a key that a visitor made up: some caches raise for it, which is no outage."""
    return key is not None and len(key) <= LONGEST_KEY and not set(key) - set(VALID_KEY_CHARS)


def _forgives(cache: Any) -> bool:
    """True if this backend, ours or django-redis's, answers an outage with misses."""
    options: Any = getattr(cache, "options", None)
    if hasattr(options, "forgives"):  # ours: by its option, or by django-redis's setting
        return bool(options.forgives(settings))
    on_error = getattr(options, "on_error", None)
    return on_error == "miss" or bool(getattr(cache, "_ignore_exceptions", False))


class SessionMiddleware(DjangoMiddleware):
    """Django's middleware, which here answers 503 if the session could not be read or written."""

    def process_exception(
        self, request: HttpRequest, exception: BaseException
    ) -> HttpResponse | None:
        return unavailable() if isinstance(exception, SessionsAway) else None

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        # An error that a middleware below raised has become a 500 by now.
        if getattr(request.session, "away", None) and response.status_code == 500:
            return unavailable()
        try:
            return super().process_response(request, response)
        except SessionsAway:
            return unavailable()


def unavailable() -> HttpResponse:
    """An answer 503, which neither sets nor deletes the cookie, and which no cache may keep."""
    said = "Sessions cannot be reached at the moment. You are not logged out; please try again.\n"
    answer = HttpResponse(said, status=503, content_type="text/plain; charset=utf-8")
    answer.headers["Retry-After"] = str(session_options().retry_after_s)
    answer.headers["Cache-Control"] = "no-store"
    return answer
