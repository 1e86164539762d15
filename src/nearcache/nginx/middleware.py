"""For development: which line of code made a response uncacheable.

    MIDDLEWARE = ["nearcache.nginx.middleware.WhyUncacheableMiddleware", ...]   # first

    X-Nearcache-Uncacheable: Vary: Cookie: request.user was read at shop/views.py:12 in detail
    X-Nearcache-Vary: Accept-Language: django.middleware.locale.LocaleMiddleware

The first header has what keeps nginx from sharing a response, the second what makes it keep
one for each value of a request header. The logger ``nearcache.nginx`` gets the same, as a warning
where a view said ``@cacheable``. How lines are found: django/hooks.py, witness.py.

It stands first because only the first sees what all the others did. Without ``DEBUG`` it is not
there: it changes classes of Django, and looks at stacks.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from itertools import takewhile
from typing import Any, cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.core.exceptions import MiddlewareNotUsed
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from nearcache.nginx.django.decorators import HEADER, SAFE, header_text
from nearcache.nginx.django.hooks import install, watch_request
from nearcache.nginx.django.personal import SPLITS, UNSHARED, Reason
from nearcache.nginx.django.witness import Seen, watching, words_of

logger = logging.getLogger("nearcache.nginx")

VARY_HEADER = "X-Nearcache-Vary"
CAUSES = {
    "session": "request.session was read",
    "session changed": "the session was changed",
    "csrf": "a CSRF token was made",
    "messages added": "a message was added",
    "messages read": "messages were read",
}
Get = Callable[[HttpRequest], Any]


class WhyUncacheableMiddleware:
    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Get) -> None:
        if not settings.DEBUG:
            raise MiddlewareNotUsed("it is for development: DEBUG is False")
        _warn_unless_first(type(self))
        install()
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self.is_async:
            return self._awaited(request)
        with watching() as seen:
            watch_request(request)
            response = self.get_response(request)
        return explain(request, response, seen)

    async def _awaited(self, request: HttpRequest) -> HttpResponseBase:
        with watching() as seen:
            watch_request(request)
            response = await self.get_response(request)
        return explain(request, response, seen)


def _warn_unless_first(middleware: type) -> None:
    name = f"{middleware.__module__}.{middleware.__qualname__}"
    before = list(takewhile(lambda each: each != name, settings.MIDDLEWARE))
    if before and name in settings.MIDDLEWARE:
        logger.warning("%s does not see what %s do; put it first", name, ", ".join(before))


def explain(request: HttpRequest, response: HttpResponseBase, seen: Seen) -> HttpResponseBase:
    """Says it in headers and in the log."""
    if request.method not in SAFE:
        return response
    splits = [
        f"{name.title()}: {seen.who_wrote('vary', name) or 'unknown'}" for name in _splits(response)
    ]
    if splits:
        response.headers[VARY_HEADER] = header_text(splits)
    said = list(dict.fromkeys(_why(response, seen)))
    if said:
        response.headers[HEADER] = header_text(said)
        _log(request, response, said)
    return response


def _log(request: HttpRequest, response: HttpResponseBase, said: list[str]) -> None:
    against = _decorators_reasons(response)
    # when= and key= are decisions; anything else is news to who wrote @cacheable.
    news = any(reason.kind not in {"when", "key"} for reason in against)
    level = logging.WARNING if news else logging.INFO
    logger.log(level, "%s %s is not cacheable: %s", request.method, request.path, "; ".join(said),
               extra={"reasons": said})  # fmt: skip


def _splits(response: HttpResponseBase) -> list[str]:
    return sorted(words_of(response.get("Vary", "")) - set(SPLITS))


def _why(response: HttpResponseBase, seen: Seen) -> Iterator[str]:
    decorated = _decorators_reasons(response)
    for reason in decorated:
        what = _what(reason.kind, seen) or reason.what
        yield f"@cacheable: {_with_place(what, _place(reason, seen))}"
    told = {reason.kind for reason in decorated}
    yield from _cookies(response, seen, told)
    yield from _vary(response, seen, told)
    if not decorated:
        yield from _words(response, seen)


def _decorators_reasons(response: HttpResponseBase) -> tuple[Reason, ...]:
    return cast("tuple[Reason, ...]", getattr(response, "nearcache_uncacheable", ()))


def _place(reason: Reason, seen: Seen) -> str:
    header, _, word = reason.kind.partition(" ")
    if header in {"cache-control", "vary"}:
        return seen.who_wrote(header, word)
    return seen.first.get(reason.kind, "")


def _with_place(what: str, place: str) -> str:
    joint = " by " if " around " in place else " at "
    return f"{what}{joint}{place}" if place else what


def _cookies(response: HttpResponseBase, seen: Seen, told: set[str]) -> Iterator[str]:
    for name in response.cookies:
        kind = _kind_of_cookie(name, seen)
        if kind not in told:
            told.add(kind)
            yield f"Set-Cookie: {name}: {_cause(kind, seen)}"


def _kind_of_cookie(name: str, seen: Seen) -> str:
    """Cookies of Django are sent by middleware, on behalf of an earlier line."""
    behind = {
        settings.SESSION_COOKIE_NAME: ("session changed", "session"),
        settings.CSRF_COOKIE_NAME: ("csrf",),
        "messages": ("messages added", "messages read"),
    }
    kinds = [kind for kind in behind.get(name, ()) if kind in seen.first]
    return kinds[0] if kinds else f"cookie {name}"


def _vary(response: HttpResponseBase, seen: Seen, told: set[str]) -> Iterator[str]:
    readers = [kind for kind in ("session", "csrf") if kind in seen.first]
    for word in sorted(words_of(response.get("Vary", "")) & set(SPLITS)):
        place = seen.who_wrote("vary", word)
        # Django's middleware writes Vary for who read the session; a decorator for its view.
        if word == "cookie" and readers and " around " not in place:
            if not told & {*readers, "session changed"}:
                yield f"Vary: Cookie: {_cause(readers[0], seen)}"
        elif f"vary {word}" not in told:
            yield f"Vary: {word.title()}: {place or 'unknown'}"


def _words(response: HttpResponseBase, seen: Seen) -> Iterator[str]:
    """Of Cache-Control, and of nginx's own header. All words of one writer are one reason."""
    said = words_of(response.get("Cache-Control", ""))
    found = [word for word in (*UNSHARED, "max-age=0", "s-maxage=0") if word in said]
    if "max-age=0" in found and any(word.startswith("s-maxage=") for word in said):
        found.remove("max-age=0")  # s-maxage is what nginx goes by
    writers: dict[str, list[str]] = {}
    for word in found:
        writers.setdefault(seen.who_wrote("cache-control", word) or "unknown", []).append(word)
    for place, words in writers.items():
        yield f"Cache-Control: {', '.join(words)}: {place}"
    if response.get("X-Accel-Expires") == "0":
        yield f"X-Accel-Expires: 0: {seen.who_wrote('x-accel-expires', '0') or 'unknown'}"


def _cause(kind: str, seen: Seen) -> str:
    return _with_place(_what(kind, seen) or "set", seen.first.get(kind, ""))


def _what(kind: str, seen: Seen) -> str:
    if kind == "session" and seen.read_user:
        return "request.user was read"
    return CAUSES.get(kind, "") if kind in seen.first else ""
