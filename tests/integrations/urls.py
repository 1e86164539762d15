"""A few pages that use what is integrated."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth import authenticate, login, logout
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import include, path
from django_ratelimit.decorators import ratelimit
from rest_framework.decorators import api_view, throttle_classes
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import AnonRateThrottle, UserRateThrottle


class ThreeAMinute(AnonRateThrottle):
    rate = "3/min"


class TwoAMinute(UserRateThrottle):
    rate = "2/min"


@api_view(["GET"])
@throttle_classes([ThreeAMinute])
def throttled(request: Request) -> Response:
    return Response({"well": True})


@api_view(["GET"])
@throttle_classes([TwoAMinute])
def throttled_user(request: Request) -> Response:
    return Response({"well": True})


@ratelimit(key="ip", rate="3/m", block=True)
def limited(request: HttpRequest) -> HttpResponse:
    return HttpResponse("well")


def enter(request: HttpRequest) -> HttpResponse:
    user = authenticate(username=request.GET["user"], password="secret")
    login(request, user)
    return HttpResponse("in")


def leave(request: HttpRequest) -> HttpResponse:
    logout(request)
    return HttpResponse("out")


def who(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"user": request.user.get_username()})


def say(request: HttpRequest) -> HttpResponse:
    messages.warning(request, request.GET["text"], extra_tags="loud")
    return HttpResponse("said")


def hear(request: HttpRequest) -> JsonResponse:
    heard = [[each.message, each.level_tag, each.tags] for each in messages.get_messages(request)]
    return JsonResponse({"heard": heard})


def cached(request: HttpRequest) -> HttpResponse:
    cache.set("a", 1)
    cache.get("a")
    cache.get("missing")
    cache.get_many(["a", "missing"])
    cache.get_or_set("b", lambda: 2)
    cache.delete("a")
    return HttpResponse("<html><body>cached</body></html>")


urlpatterns = [
    path("throttled", throttled),
    path("throttled-user", throttled_user),
    path("limited", limited),
    path("enter", enter),
    path("leave", leave),
    path("who", who),
    path("say", say),
    path("hear", hear),
    path("cached", cached),
    path("__debug__/", include("debug_toolbar.urls")),
]
