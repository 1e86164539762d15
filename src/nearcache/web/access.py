"""Who may come in, and what a request must be like before a view sees it.

Hits write to caches and to the samples, so the pages are for staff: users with
``is_staff``, or everybody while ``DEBUG`` is on, or whoever comes if the setting says so.

A GET writes to no cache of the user's, and ``/reset`` takes POST alone: links, prefetching
browsers and crawlers send GET. A hit or a POST that a browser sends for another site's page is
refused by what browsers say of it (``Sec-Fetch-Site``, or else ``Origin``); Django's token is not
asked for, or curl could not do it in a project. A client that is no browser sends neither, and
carries no session that somebody else could use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from nearcache.errors import NearcacheError
from nearcache.web.options import web_options

View = Callable[..., HttpResponse]
STAFF_ONLY = (
    "For staff: log in as a user with is_staff, for example at the admin's login page, or set "
    'NEARCACHE_WEB = {"ACCESS": "anyone"} on a host that nobody else reaches.'
)


def entrance(*methods: str, counts: bool = False) -> Callable[[View], View]:
    """A view for these methods and for those who may; what is wrong with the settings is said.

    One that ``counts`` takes no GET for a page of another site, either.
    """

    def decorate(view: View) -> View:
        @wraps(view)
        def entered(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            request.get_host()  # refuses names that are not ours, as CommonMiddleware would
            answer = _refusal(request, methods, counts)
            if answer is None:
                try:
                    answer = _staff_only(request) or view(request, *args, **kwargs)
                except NearcacheError as error:
                    answer = text(f"nearcache.web: {error}", 500)
            answer.headers["Cache-Control"] = "no-store"
            answer.headers["X-Content-Type-Options"] = "nosniff"
            # CommonMiddleware may not be there; without it a server would send chunks.
            answer.headers["Content-Length"] = str(len(answer.content))
            if request.method == "HEAD":
                answer.content = b""
            return answer

        return entered

    return decorate


def text(body: str, status: int = 200) -> HttpResponse:
    return HttpResponse(f"{body}\n", status=status, content_type="text/plain; charset=utf-8")


def _refusal(request: HttpRequest, methods: Sequence[str], counts: bool) -> HttpResponse | None:
    allowed = ["GET", "HEAD", *methods[1:]] if methods[0] == "GET" else list(methods)
    if request.method not in allowed:
        named = " and ".join(methods)
        answer = text(f"{named} only; for example: curl -X {methods[-1]} {request.path}", 405)
        answer.headers["Allow"] = ", ".join(allowed)
        return answer
    if (counts or request.method == "POST") and _is_foreign(request):
        return text("a page of another site sent this; nothing was done", 403)
    return None


def _is_foreign(request: HttpRequest) -> bool:
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = request.headers.get("Origin")
    return origin is not None and urlsplit(origin).netloc != request.get_host()


def _staff_only(request: HttpRequest) -> HttpResponse | None:
    user = getattr(request, "user", None)
    is_staff = user is not None and user.is_active and user.is_staff
    if is_staff or settings.DEBUG or web_options().access == "anyone":
        return None
    return text(STAFF_ONLY, 403)
