"""``@cacheable``: a view says that nginx may keep its answer, and for how long.

    from nearcache.nginx import cacheable

    @cacheable(max_age=3600, when=lambda request: len(request.GET.get("q", "")) <= 9)
    def autocomplete(request): ...

What nginx reads, first to last: ``X-Accel-Expires``; ``s-maxage``, ``max-age`` and ``private``,
``no-store``, ``no-cache`` of ``Cache-Control``; ``Expires``; and if none of them says
anything ``*_cache_valid`` of its configuration. So an answer to be kept gets
``Cache-Control: public, max-age=N``, which browsers and other caches understand as well. One that
is not worth keeping must say so, or ``*_cache_valid`` keeps it: ``X-Accel-Expires: 0``, which is
for nginx alone.

Somebody's own answer (personal.py) is never made public, whatever the decorator was told: it gets
``Cache-Control: private`` and ``X-Accel-Expires: 0``. ``Cookie`` is never taken out of ``Vary``:
where Django puts it in, something depended on it.

Not here: storing anything in Django, or purging (site_purge.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial, wraps
from http.cookies import SimpleCookie
from inspect import isawaitable
from typing import Any, TypeVar
from weakref import ref

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponsePermanentRedirect
from django.http.response import HttpResponseBase
from django.utils.cache import patch_cache_control

from nearcache.errors import NginxError
from nearcache.nginx.django.arguments import (
    Canonical,
    arguments_of,
    canonical_of,
    show_only,
    url_of,
)
from nearcache.nginx.django.personal import Reason, reasons, watch_cookies
from nearcache.nginx.django.witness import note

View = TypeVar("View", bound=Callable[..., Any])
SAFE = ("GET", "HEAD")
# What a configuration of `nearcache nginx config` keeps. 304 renews what a browser has; a 404 that
# is raised passes no decorator, and has a time of its own in nginx.
STATUSES = (200, 301, 304, 308)
HEADER = "X-Nearcache-Uncacheable"
MOST_HEADER_CHARS = 1000
HOW = "write seconds, as in @cacheable(max_age=3600)"


@dataclass(frozen=True)
class Rule:
    max_age_s: int
    browser_s: int | None
    when: Callable[[HttpRequest], object] | None
    canonical: Canonical | None
    redirect: bool


def cacheable(
    max_age: int | timedelta,
    *,
    when: Callable[[HttpRequest], object] | None = None,
    key: str | Callable[[HttpRequest], Any] | None = None,
    redirect: bool = False,
    browser_max_age: int | timedelta | None = None,
) -> Callable[[View], View]:
    """Let nginx keep what a view answers to GET and HEAD, unless it is somebody's own.

    For views, sync and async; for classes with ``@method_decorator(cacheable(...), name="get")``.

    Args:
        max_age: seconds that nginx may keep it.
        when: called with the request, before the view; if false, the answer is not kept.
        key: the arguments that the answer depends on: rules as of ``nearcache nginx config
            --normalize`` (``"keep=q|page,lower,strip"``), or a function from the request to a
            mapping of them. The view (and ``when``) sees these and no others. An answer to another
            spelling of the URL is not kept.
        redirect: send other spellings to the one of ``key``, with a redirect that is kept.
        browser_max_age: seconds that browsers may keep it, if not as long: a purge does not
            reach them.

    Raises:
        NginxError: at decoration: an argument is wrong. At a request: what is decorated is no
            view, or ``key`` gave no mapping.
    """
    if redirect and key is None:
        raise NginxError("@cacheable: redirect=True needs key=, which says what to redirect to")
    if when is not None and not callable(when):
        raise NginxError(
            f"@cacheable: when={when!r} is no function; write when=lambda request: ..."
        )
    browser = browser_max_age
    rule = Rule(
        max_age_s=_seconds("max_age", max_age, least=1),
        browser_s=None if browser is None else _seconds("browser_max_age", browser, least=0),
        when=when,
        canonical=canonical_of(key) if key is not None else None,
        redirect=redirect,
    )
    return partial(_decorate, rule)


def _seconds(name: str, value: object, least: int) -> int:
    if isinstance(value, timedelta):
        value = int(value.total_seconds())
    if isinstance(value, bool) or not isinstance(value, int):
        raise NginxError(f"@cacheable: {name}={value!r} is no whole number; {HOW}")
    if value < least:
        raise NginxError(f"@cacheable: {name}={value} is below {least}; {HOW}, or leave it out")
    return value


def _decorate(rule: Rule, view: View) -> View:
    if isinstance(view, type) or not callable(view):
        raise NginxError(
            f"@cacheable: {view!r} is no function; for a class write "
            '@method_decorator(cacheable(...), name="dispatch")'
        )

    @wraps(view)
    def answer(request: Any, *args: Any, **kwargs: Any) -> Any:
        visit = Visit(rule, _django_request(request))
        if visit.redirect is not None:
            return _ready(visit.redirect) if _is_async(view) else visit.redirect
        response = view(request, *args, **kwargs)
        return visit.awaited(response) if isawaitable(response) else visit.done(response)

    if iscoroutinefunction(view):
        markcoroutinefunction(answer)
    return answer  # type: ignore[return-value]


def _django_request(request: Any) -> HttpRequest:
    """The REST framework hands its views a wrapper."""
    found = request if isinstance(request, HttpRequest) else getattr(request, "_request", None)
    if not isinstance(found, HttpRequest):
        raise NginxError(
            f"@cacheable got {type(request).__name__} where a view gets its request; methods of "
            "classes take @method_decorator(cacheable(...))"
        )
    return found


def _is_async(view: Any) -> bool:
    """Also ``dispatch`` of a class with async methods, which is no coroutine function itself."""
    owner = getattr(getattr(view, "func", None), "__self__", None)
    return iscoroutinefunction(view) or bool(getattr(owner, "view_is_async", False))


async def _ready(response: HttpResponseBase) -> HttpResponseBase:
    return response


class Visit:
    """One request to a decorated view."""

    def __init__(self, rule: Rule, request: HttpRequest) -> None:
        self.rule = rule
        self.request = request
        self.refused: Reason | None = None  # why the answer is not worth keeping
        self.redirect: HttpResponseBase | None = None
        if request.method in SAFE:
            watch_cookies(request)
            self._choose_arguments()
            if self.redirect is None and rule.when and not rule.when(request):
                self.refused = self.refused or Reason("when= says no", "when")

    def _choose_arguments(self) -> None:
        if self.rule.canonical is None:
            return
        given, wanted = arguments_of(self.request), self.rule.canonical(self.request)
        show_only(self.request, wanted)
        if given == wanted:
            return
        self.refused = Reason(f"the one spelling is {url_of(self.request)}", "key")
        # A function which respells its own spelling would redirect for ever.
        if self.rule.redirect and self.rule.canonical(self.request) == wanted:
            self.refused = None
            self.redirect = self.done(HttpResponsePermanentRedirect(url_of(self.request)))

    async def awaited(self, response: Any) -> HttpResponseBase:
        return self.done(await response)

    def done(self, response: HttpResponseBase) -> HttpResponseBase:
        # What is no response Django complains about itself, better.
        if self.request.method not in SAFE or not isinstance(response, HttpResponseBase):
            return response
        if getattr(response, "is_rendered", True):
            self._judge(response)
        else:  # the template may still read the session, or make a token
            response.add_post_render_callback(self._judge)  # type: ignore[attr-defined]
        return response

    def _judge(self, response: HttpResponseBase) -> None:
        against = reasons(self.request, response)
        if against:
            make_private(response, against)
        elif self.refused:
            response.headers["X-Accel-Expires"] = "0"
            tell(response, (self.refused,))
        elif response.status_code in STATUSES:
            patch_cache_control(response, public=True, **self._ages())
            response.cookies = LateCookies(response)

    def _ages(self) -> dict[str, int]:
        if self.rule.browser_s is None:
            return {"max_age": self.rule.max_age_s}
        return {"max_age": self.rule.browser_s, "s_maxage": self.rule.max_age_s}


class LateCookies(SimpleCookie):
    """A cookie that some middleware sets on the way out makes the response private after all."""

    def __init__(self, response: HttpResponseBase) -> None:
        super().__init__()
        self._response = ref(response)  # no cycle, or bodies would wait for the collector

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        note(f"cookie {name}")
        response = self._response()
        if response is not None:
            reason = Reason(f"the cookie {name} is set after the view", f"cookie {name}")
            make_private(response, (reason,))

    def __reduce__(self) -> Any:
        """Django's cache pickles responses: as plain cookies."""
        return SimpleCookie, (), None, None, iter(list(self.items()))


def make_private(response: HttpResponseBase, against: tuple[Reason, ...]) -> None:
    patch_cache_control(response, private=True)
    response.headers["X-Accel-Expires"] = "0"
    tell(response, against)


def tell(response: HttpResponseBase, against: tuple[Reason, ...]) -> None:
    """For the middleware that names lines, and in development without it for whoever looks."""
    response.nearcache_uncacheable = against  # type: ignore[attr-defined]
    if settings.DEBUG:
        response.headers[HEADER] = header_text([reason.what for reason in against])


def header_text(said: list[str]) -> str:
    """What may stand in a header: one line, ASCII, not endless."""
    text = "; ".join(said).encode("ascii", "backslashreplace").decode()
    return "".join(c if c.isprintable() else "?" for c in text)[:MOST_HEADER_CHARS]
