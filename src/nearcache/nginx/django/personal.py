"""What makes a response somebody's own: reasons not to share it, from a request and its response.

Django itself keeps the evidence until the response is sent: flags of the session, of the CSRF
token and of messages; cookies; headers. ``reasons`` reads it when the view is done. That is
early enough to keep such a response out of all shared caches, and late enough, since what
Django's own middleware does afterwards (Set-Cookie, ``Vary: Cookie``) follows from the same flags.

What leaves no trace is not seen: a view that differs by an address, by ``Accept-Language``, or by
``request.META["HTTP_COOKIE"]``, and cookies that a middleware read before the view: Django's own
read some for every request. That LocaleMiddleware takes the language from one is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from django.conf import settings
from django.conf.urls.i18n import is_language_prefix_patterns_used
from django.http.request import HttpRequest
from django.http.response import FileResponse, HttpResponseBase
from django.utils.functional import LazyObject, empty
from django.utils.translation import get_language_from_path

from nearcache.nginx.django.witness import note, words_of

CSRF_FLAG = "CSRF_COOKIE_NEEDS_UPDATE"  # in META after every get_token()
UNSHARED = ("private", "no-store", "no-cache")
SPLITS = ("*", "cookie", "authorization")


class Reason(NamedTuple):
    what: str  # for people
    kind: str  # whose place the witness may have seen


class WatchedCookies(dict[str, str]):
    """``request.COOKIES`` that knows if the view looked at it."""

    read = False


def _noted(name: str) -> Callable[..., Any]:
    plain = getattr(dict, name)

    def method(self: WatchedCookies, *arguments: Any) -> Any:
        self.read = True
        note("cookies")
        return plain(self, *arguments)

    return method


for _name in ("__contains__", "__eq__", "__getitem__", "__iter__", "__len__", "__or__", "__repr__",
              "__reversed__", "__ror__", "copy", "get", "items", "keys", "pop", "popitem",
              "setdefault", "values"):  # fmt: skip
    setattr(WatchedCookies, _name, _noted(_name))


def watch_cookies(request: HttpRequest) -> None:
    request.COOKIES = WatchedCookies(request.COOKIES)


def reasons(request: HttpRequest, response: HttpResponseBase) -> tuple[Reason, ...]:
    """Why this response must not be shared; empty if nothing speaks against it."""
    of_request = (reason for look in OF_REQUESTS for reason in look(request))
    of_response = (reason for look in OF_RESPONSES for reason in look(response))
    return (*of_request, *of_response)


def _cookies_set(response: HttpResponseBase) -> Iterator[Reason]:
    for name in response.cookies:
        yield Reason(f"the cookie {name} is set", f"cookie {name}")


def _cookies_read(request: HttpRequest) -> Iterator[Reason]:
    if isinstance(request.COOKIES, WatchedCookies) and request.COOKIES.read:
        yield Reason("request.COOKIES was read", "cookies")


def _session(request: HttpRequest) -> Iterator[Reason]:
    session = getattr(request, "session", None)
    if getattr(session, "modified", False):
        yield Reason("the session was changed", "session changed")
    elif getattr(session, "accessed", False):
        yield Reason("request.session or request.user was read", "session")
    elif session is not None and settings.SESSION_SAVE_EVERY_REQUEST and not session.is_empty():
        yield Reason("SESSION_SAVE_EVERY_REQUEST sends the session's cookie", "setting")


def _user(request: HttpRequest) -> Iterator[Reason]:
    """A user who is not the session's: of a token, a header, a cookie of its own."""
    user = request.__dict__.get("user")
    if isinstance(user, LazyObject):
        # Django's own reads the session, which is a reason already; others are read or not.
        was_read = user.__dict__.get("_wrapped", empty) is not empty
        if was_read and not getattr(getattr(request, "session", None), "accessed", False):
            yield Reason("request.user was read", "user")
    elif getattr(user, "is_authenticated", False):
        yield Reason("request.user is somebody", "user")


def _authorization(request: HttpRequest) -> Iterator[Reason]:
    """``public`` would allow what RFC 9111, 3.5 otherwise forbids: to share the answer."""
    if "HTTP_AUTHORIZATION" in request.META:
        yield Reason("the request has Authorization", "authorization")


def _tokens(request: HttpRequest) -> Iterator[Reason]:
    if request.META.get(CSRF_FLAG):
        yield Reason("a CSRF token was made", "csrf")
    if getattr(request, "_csp_nonce", None):  # Django's and django-csp's: true once it was used
        yield Reason("a CSP nonce was made", "nonce")


def _messages(request: HttpRequest) -> Iterator[Reason]:
    messages = getattr(request, "_messages", None)
    if getattr(messages, "added_new", False):
        yield Reason("a message was added", "messages added")
    if getattr(messages, "used", False):
        yield Reason("messages were read", "messages read")


def _language(request: HttpRequest) -> Iterator[Reason]:
    """LocaleMiddleware goes by a cookie first, and names only Accept-Language in Vary."""
    name = settings.LANGUAGE_COOKIE_NAME
    was_sent = dict.__contains__(request.COOKIES, name)  # nobody has read it for this
    if was_sent and hasattr(request, "LANGUAGE_CODE") and not _is_language_of_path(request):
        yield Reason(f"the language is that of the cookie {name}", "language")


def _is_language_of_path(request: HttpRequest) -> bool:
    """With ``i18n_patterns`` the path decides, as LocaleMiddleware has it."""
    urlconf = getattr(request, "urlconf", settings.ROOT_URLCONF)
    used, default_has_prefix = is_language_prefix_patterns_used(urlconf)
    in_path = get_language_from_path(request.path_info)
    return used and bool(in_path or not default_has_prefix)


def _own_words(response: HttpResponseBase) -> Iterator[Reason]:
    if "Cache-Control" in response:
        said = {word.partition("=")[0] for word in words_of(response["Cache-Control"])}
        for word in filter(said.__contains__, UNSHARED):
            yield Reason(f"the view says Cache-Control: {word}", f"cache-control {word}")
    if "Vary" in response:
        for word in filter(words_of(response["Vary"]).__contains__, SPLITS):
            yield Reason(f"the view says Vary: {word.title()}", f"vary {word}")


def _stream(response: HttpResponseBase) -> Iterator[Reason]:
    """It is written after the headers: nobody knows yet what it will read. A file reads nothing."""
    if response.streaming and not isinstance(response, FileResponse):
        yield Reason("it is a stream, which may read the session yet", "stream")


OF_REQUESTS = (
    _session, _user, _authorization, _tokens, _messages, _cookies_read, _language,
)  # fmt: skip
OF_RESPONSES = (_cookies_set, _own_words, _stream)
