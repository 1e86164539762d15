"""A site with a login: pages that read the session, change it, end it, and one that does not."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import path


def who(request: HttpRequest) -> HttpResponse:
    return HttpResponse(request.session.get("user", "nobody"))


async def awho(request: HttpRequest) -> HttpResponse:
    return HttpResponse(await request.session.aget("user", "nobody"))


def login(request: HttpRequest) -> HttpResponse:
    request.session.cycle_key()
    request.session["user"] = request.GET["user"]
    return HttpResponse("in")


def change(request: HttpRequest) -> HttpResponse:
    request.session["basket"] = request.GET["basket"]
    return HttpResponse("changed")


async def achange(request: HttpRequest) -> HttpResponse:
    await request.session.aset("basket", request.GET["basket"])
    return HttpResponse("changed")


LARGE = "x" * 900_000  # for a cache of 1 MB


def fill(request: HttpRequest) -> HttpResponse:
    request.session["basket"] = LARGE
    return HttpResponse("filled")


async def afill(request: HttpRequest) -> HttpResponse:
    await request.session.aset("basket", LARGE)
    return HttpResponse("filled")


def strange(request: HttpRequest) -> HttpResponse:
    request.session["basket"] = lambda: None
    return HttpResponse("changed")


def basket(request: HttpRequest) -> HttpResponse:
    return HttpResponse(request.session.get("basket", "empty"))


def logout(request: HttpRequest) -> HttpResponse:
    request.session.flush()
    return HttpResponse("out")


def plain(_: HttpRequest) -> HttpResponse:
    return HttpResponse("plain")


PAGES = (who, awho, login, change, achange, basket, fill, afill, strange, logout, plain)
urlpatterns = [path(page.__name__, page) for page in PAGES]
