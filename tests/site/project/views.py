"""The views. Each answers who was asked by, what for, and what the cache gave.

``user`` is the header X-User: what a site would learn from its database. ``me`` knows the
user from the session alone.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import time
from typing import Any

from django.conf import settings
from django.core.cache import cache, caches
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template import Context, Template
from django.views.decorators.cache import cache_page
from django.views.decorators.vary import vary_on_headers

from nearcache._core import LAYOUT_VERSION
from nearcache.errors import LockNotAcquired
from nearcache.memoize import memoize
from tests.site.project.alone import alone
from tests.site.project.answers import EVERYBODY, make

COMPUTING_S = 0.002
LIVES_S = 1
PAGES_S = 2
HANGS_S = 120
SITE = settings.SITE


def user_of(request: HttpRequest) -> str:
    return request.headers["X-User"]


def answer(**told: Any) -> HttpResponse:
    return JsonResponse({"pid": os.getpid(), **told})


# -- computing --------------------------------------------------------------------------------


def computed(kind: str, user: str, key: str) -> dict[str, Any]:
    with alone(kind, f"{user}-{key}"):
        time.sleep(COMPUTING_S)
        return make(user, key)


async def acomputed(kind: str, user: str, key: str) -> dict[str, Any]:
    with alone(kind, f"{user}-{key}"):
        await asyncio.sleep(COMPUTING_S)
        return make(user, key)


@memoize(timeout=LIVES_S)
def remembered(user: str, key: str) -> dict[str, Any]:
    return computed("memo", user, key)


@memoize(timeout=LIVES_S)
async def aremembered(user: str, key: str) -> dict[str, Any]:
    return await acomputed("amemo", user, key)


def flown(request: HttpRequest, whose: str, key: str) -> HttpResponse:
    """get_or_set, for one user or for everybody."""
    user = EVERYBODY if whose == EVERYBODY else user_of(request)
    name = f"flown:{user}:{key}"
    value = cache.get_or_set(name, lambda: computed("flight", user, key), LIVES_S)
    return answer(value=value)


async def aflown(request: HttpRequest, whose: str, key: str) -> HttpResponse:
    user = EVERYBODY if whose == EVERYBODY else user_of(request)
    name = f"aflown:{user}:{key}"
    # A function that returns an awaitable: a coroutine function is another matter.
    value = await cache.aget_or_set(name, lambda: acomputed("aflight", user, key), LIVES_S)
    return answer(value=value)


def memo(request: HttpRequest, whose: str, key: str) -> HttpResponse:
    user = EVERYBODY if whose == EVERYBODY else user_of(request)
    return answer(value=remembered(user, key))


async def amemo(request: HttpRequest, whose: str, key: str) -> HttpResponse:
    user = EVERYBODY if whose == EVERYBODY else user_of(request)
    return answer(value=await aremembered(user, key))


# -- pages ------------------------------------------------------------------------------------


@cache_page(PAGES_S)
@vary_on_headers("X-User")
def page(request: HttpRequest, key: str) -> HttpResponse:
    return answer(value=make(user_of(request), key, filler_bytes=4000))


FRAGMENT = Template(
    "{% load cache %}{% cache 2 fragment user key %}{{ make }}{% endcache %}", name="fragment"
)


def fragment(request: HttpRequest, key: str) -> HttpResponse:
    import json

    user = user_of(request)
    made = Context({"user": user, "key": key, "make": lambda: json.dumps(make(user, key))})
    made.autoescape = False
    return answer(value=json.loads(FRAGMENT.render(made)))


# -- values of each user ----------------------------------------------------------------------


def own(request: HttpRequest, key: str) -> HttpResponse:
    """GET it, POST a version of it, DELETE it."""
    user = user_of(request)
    name = f"own:{user}:{key}"
    if request.method == "POST":
        size = int(request.GET.get("bytes", 200))
        cache.set(name, make(user, key, int(request.GET["version"]), size), None)
        return answer()
    if request.method == "DELETE":
        cache.delete(name)
        return answer()
    return answer(value=cache.get(name))


async def aown(request: HttpRequest, key: str) -> HttpResponse:
    user = user_of(request)
    name = f"own:{user}:{key}"
    if request.method == "POST":
        size = int(request.GET.get("bytes", 200))
        await cache.aset(name, make(user, key, int(request.GET["version"]), size), None)
        return answer()
    if request.method == "DELETE":
        await cache.adelete(name)
        return answer()
    return answer(value=await cache.aget(name))


def many(request: HttpRequest) -> HttpResponse:
    """Several values of one user at once."""
    user = user_of(request)
    keys = request.GET.getlist("key")
    found = cache.get_many([f"own:{user}:{key}" for key in keys])
    return answer(values={key: found.get(f"own:{user}:{key}") for key in keys})


async def amany(request: HttpRequest) -> HttpResponse:
    user = user_of(request)
    keys = request.GET.getlist("key")
    found = await cache.aget_many([f"own:{user}:{key}" for key in keys])
    return answer(values={key: found.get(f"own:{user}:{key}") for key in keys})


def count(request: HttpRequest, key: str) -> HttpResponse:
    name = f"count:{user_of(request)}:{key}"
    begun = cache.add(name, 0, None)
    return answer(begun=begun, total=cache.incr(name))


async def acount(request: HttpRequest, key: str) -> HttpResponse:
    name = f"count:{user_of(request)}:{key}"
    begun = await cache.aadd(name, 0, None)
    return answer(begun=begun, total=await cache.aincr(name))


# -- locks ------------------------------------------------------------------------------------


def lock(request: HttpRequest, key: str) -> HttpResponse:
    try:
        with cache.lock(f"job:{key}", timeout=SITE["lock_s"], wait=SITE["wait_s"]) as held:
            with alone("lock", key, held.token):
                time.sleep(COMPUTING_S)
            return answer(lost=held.lost)
    except LockNotAcquired:
        return JsonResponse({"busy": key}, status=409)


async def alock(request: HttpRequest, key: str) -> HttpResponse:
    try:
        async with cache.lock(f"job:{key}", timeout=SITE["lock_s"], wait=SITE["wait_s"]) as held:
            with alone("lock", key, held.token):
                await asyncio.sleep(COMPUTING_S)
            return answer(lost=held.lost)
    except LockNotAcquired:
        return JsonResponse({"busy": key}, status=409)


# -- sessions ---------------------------------------------------------------------------------


def login(request: HttpRequest) -> HttpResponse:
    request.session.flush()
    request.session["user"], request.session["visits"] = user_of(request), 0
    return answer()


def me(request: HttpRequest) -> HttpResponse:
    user = request.session.get("user")
    if user is None:
        return answer(value=None)
    request.session["visits"] += 1
    return answer(value=make(user, "me", request.session["visits"]))


async def ame(request: HttpRequest) -> HttpResponse:
    user = await request.session.aget("user")
    if user is None:
        return answer(value=None)
    visits = await request.session.aget("visits") + 1
    await request.session.aset("visits", visits)
    return answer(value=make(user, "me", visits))


# -- what goes wrong --------------------------------------------------------------------------


def hang(request: HttpRequest, inside: str) -> HttpResponse:
    """Until somebody ends the worker: inside a lock, or while others wait for the value."""
    if inside == "lock":
        held = cache.lock("job:0", timeout=SITE["lock_s"], wait=SITE["wait_s"])
        with held, alone("lock", "0", held.token):
            block()
    if inside == "flight":
        cache.get_or_set(f"flown:{EVERYBODY}:0", block, LIVES_S)
    return answer()


def block() -> None:
    """As a library in C that does not come back: no thread and no greenlet gets on, so that the
    server sees it. A sleep of Python's would not stop the heartbeat of a server with either.
    """
    ctypes.PyDLL(None).sleep(HANGS_S)


def failed(request: HttpRequest) -> HttpResponse:
    """What Django answers with for an exception: its class and all it derives from."""
    return told(sys.exc_info()[1], 500)


def refused(request: HttpRequest, exception: Exception) -> HttpResponse:
    """The same for what Django takes for the visitor's fault."""
    return told(exception, 400)


def told(error: BaseException | None, status: int) -> HttpResponse:
    tree = [each.__name__ for each in type(error).__mro__] if error else []
    return JsonResponse({"error": tree, "text": str(error)[:500]}, status=status)


def stats(request: HttpRequest) -> HttpResponse:
    return answer(stats={alias: caches[alias].stats() for alias in settings.CACHES})


def layout(request: HttpRequest) -> HttpResponse:
    return answer(layout=LAYOUT_VERSION)
