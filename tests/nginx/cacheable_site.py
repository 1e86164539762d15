"""A Django site for the tests of ``@cacheable``: views say who asked, and number their answers.

Lines that make an answer somebody's own end in a comment, by which the tests find their number.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.contrib import auth, messages
from django.contrib.auth.decorators import login_required
from django.http import (
    FileResponse,
    HttpRequest,
    HttpResponse,
    StreamingHttpResponse,
)
from django.middleware.csrf import get_token
from django.shortcuts import render
from django.template.response import TemplateResponse
from django.urls import path
from django.utils.cache import patch_vary_headers
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import cache_control, never_cache
from django.views.decorators.vary import vary_on_cookie, vary_on_headers
from jinja2 import DictLoader

from nearcache.nginx import cacheable

numbers = count(1)
hour = cacheable(max_age=3600)


class Backend:
    """Knows every user, without a database."""

    def get_user(self, user_id: int) -> Any:
        return auth.get_user_model()(pk=user_id, username=f"user{user_id}", password="x")

    async def aget_user(self, user_id: int) -> Any:
        return self.get_user(user_id)


SETTINGS: dict[str, Any] = {
    "DEBUG": False,
    "ROOT_URLCONF": __name__,
    "ALLOWED_HOSTS": ["*"],
    "INSTALLED_APPS": ["django.contrib.contenttypes", "django.contrib.auth"],
    "AUTHENTICATION_BACKENDS": [f"{__name__}.Backend"],
    "SESSION_ENGINE": "django.contrib.sessions.backends.signed_cookies",
    "MESSAGE_STORAGE": "django.contrib.messages.storage.cookie.CookieStorage",
    "MIDDLEWARE": [
        f"{__name__}.visitor_cookie",  # whose line is on the stack of all below
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.locale.LocaleMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    "TEMPLATES": [
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "OPTIONS": {
                "context_processors": [
                    "django.template.context_processors.request",
                    "django.contrib.auth.context_processors.auth",
                ],
                "loaders": [
                    (
                        "django.template.loaders.locmem.Loader",
                        {
                            "form.html": "<form>\n{% csrf_token %}\n</form>",
                            "hello.html": "\n\nhello {{ user.username }}",
                            "plain.html": "plain",
                        },
                    )
                ],
            },
        },
        {
            "BACKEND": "django.template.backends.jinja2.Jinja2",
            "NAME": "jinja",
            "OPTIONS": {
                "loader": DictLoader(
                    {"hello.jinja": "\n\n{# far down #}\n{{ request.user.username }}"}
                )
            },
        },
    ],
}


def visitor_cookie(get_response: Callable[..., Any]) -> Callable[..., Any]:
    """The site's own middleware, through which everything goes; acts at one URL."""

    def after(request: HttpRequest, response: HttpResponse) -> HttpResponse:
        if request.path == "/visitor/":
            response.set_cookie("visitor", "1")  # middleware's cookie
        return response

    def middleware(request: HttpRequest) -> Any:
        if not iscoroutinefunction(get_response):
            return after(request, get_response(request))

        async def awaited() -> HttpResponse:
            return after(request, await get_response(request))

        return awaited()

    if iscoroutinefunction(get_response):
        markcoroutinefunction(middleware)
    return middleware


visitor_cookie.sync_capable = visitor_cookie.async_capable = True  # type: ignore[attr-defined]


def answer(request: HttpRequest, who: object = "") -> HttpResponse:
    return HttpResponse(f"{next(numbers)} {who} {request.GET.urlencode()}")


def plain(request: HttpRequest) -> HttpResponse:
    return answer(request)


async def aplain(request: HttpRequest) -> HttpResponse:
    return answer(request)


def login(request: HttpRequest) -> HttpResponse:
    user = Backend().get_user(int(request.GET["id"]))
    request.session[auth.SESSION_KEY] = str(user.pk)
    request.session[auth.BACKEND_SESSION_KEY] = f"{__name__}.Backend"
    request.session[auth.HASH_SESSION_KEY] = user.get_session_auth_hash()
    return HttpResponse("welcome")


def session(request: HttpRequest) -> HttpResponse:
    return answer(request, request.session.get(auth.SESSION_KEY))  # reads the session


async def asession(request: HttpRequest) -> HttpResponse:
    return answer(request, await request.session.aget(auth.SESSION_KEY))  # reads it, async


def user(request: HttpRequest) -> HttpResponse:
    return answer(request, request.user.get_username())  # reads the user


async def auser(request: HttpRequest) -> HttpResponse:
    return answer(request, (await request.auser()).get_username())  # reads the user, async


def cart(request: HttpRequest) -> HttpResponse:
    request.session["cart"] = 1  # changes the session
    return answer(request)


def theme(request: HttpRequest) -> HttpResponse:
    return answer(request, request.COOKIES.get("theme"))  # reads a cookie


def sets_theme(request: HttpRequest) -> HttpResponse:
    response = answer(request)
    response.set_cookie("theme", "dark")  # sets a cookie
    return response


def form(request: HttpRequest) -> HttpResponse:
    return render(request, "form.html")


def hello(request: HttpRequest) -> TemplateResponse:
    return TemplateResponse(request, "hello.html")


def jinja(request: HttpRequest) -> HttpResponse:
    return render(request, "hello.jinja", using="jinja")


def token(request: HttpRequest) -> HttpResponse:
    return answer(request, get_token(request))  # makes a token


def greets(request: HttpRequest) -> HttpResponse:
    messages.success(request, "saved")  # adds a message
    return answer(request)


def lists_messages(request: HttpRequest) -> HttpResponse:
    return answer(request, [str(m) for m in messages.get_messages(request)])  # reads messages


def stream(request: HttpRequest) -> StreamingHttpResponse:
    def rows() -> Any:
        yield f"{next(numbers)} {request.session.get(auth.SESSION_KEY)}"

    return StreamingHttpResponse(rows())


def file(request: HttpRequest) -> FileResponse:
    return FileResponse(Path(__file__).open("rb"))


def varies(request: HttpRequest) -> HttpResponse:
    response = answer(request)
    patch_vary_headers(response, ["Cookie"])  # varies by hand
    return response


def status(request: HttpRequest, code: int) -> HttpResponse:
    return HttpResponse(str(next(numbers)), status=code)


@method_decorator(hour, name="dispatch")
class Page(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return answer(request)

    post = get


class Method(View):
    @method_decorator(hour)
    def get(self, request: HttpRequest) -> HttpResponse:
        return answer(request)


lower = cacheable(max_age=60, key="keep=q,lower,strip", redirect=True)


@method_decorator(lower, name="dispatch")
class AsyncPage(View):
    async def get(self, request: HttpRequest) -> HttpResponse:
        return answer(request)


def short(request: HttpRequest) -> bool:
    return len(request.GET.get("q", "")) <= 9


urlpatterns = [
    path("login/", login),
    path("autocomplete/", cacheable(max_age=3600, when=short)(plain)),
    path("plain/", hour(plain)),
    path("undecorated/", plain),
    path("async/", hour(aplain)),
    path("page/", Page.as_view()),
    path("method/", Method.as_view()),
    path("async-page/", AsyncPage.as_view()),
    path("template/", hour(lambda request: TemplateResponse(request, "plain.html"))),
    path("file/", hour(file)),
    path("short-in-browsers/", cacheable(max_age=3600, browser_max_age=0)(plain)),
    path("keyed/", cacheable(max_age=60, key="keep=q,lower,strip")(plain)),
    path("redirected/", lower(plain)),
    path(
        "by-function/",
        cacheable(max_age=60, key=lambda request: {"q": request.GET.get("q"), "page": None})(plain),
    ),
    path(
        "never-content/",
        cacheable(max_age=60, key=lambda request: {"q": request.GET["q"] + "!"}, redirect=True)(
            plain
        ),
    ),
    path("no-mapping/", cacheable(max_age=60, key=lambda request: request.GET.get("q"))(plain)),
    path("status/<int:code>/", hour(status)),
    path("own-words/", hour(cache_control(no_store=True)(plain))),
    path("shorter/", hour(cache_control(max_age=5)(plain))),
    path("by-language/", hour(vary_on_headers("Accept-Language")(plain))),
    path("session/", hour(session)),
    path("asession/", hour(asession)),
    path("user/", hour(user)),
    path("auser/", hour(auser)),
    path("cart/", hour(cart)),
    path("theme/", hour(theme)),
    path("theme/undecorated/", theme),
    path("sets-theme/", hour(sets_theme)),
    path("form/", hour(form)),
    path("hello/", hour(hello)),
    path("token/", hour(token)),
    path("greets/", hour(greets)),
    path("messages/", hour(lists_messages)),
    path("stream/", hour(stream)),
    path("varies/", varies),
    path("varies/decorated/", hour(vary_on_cookie(plain))),
    path("never/", never_cache(plain)),
    path("session/undecorated/", session),
    path("user/undecorated/", user),
    path("form/undecorated/", form),
    path("hello/undecorated/", hello),
    path("cart/undecorated/", cart),
    path("sets-theme/undecorated/", sets_theme),
    path("greets/undecorated/", greets),
    path("jinja/", jinja),
    path("members/", login_required(plain, login_url="/login/")),
    path("visitor/", hour(plain)),
]


def line(comment: str) -> int:
    """The number of the line that ends in this comment."""
    (found,) = (
        number
        for number, text in enumerate(linecache.getlines(__file__), 1)
        if text.rstrip().endswith(f"# {comment}")
    )
    return found
