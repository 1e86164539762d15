"""One page per key, made once and then cached; and who has answered."""

from __future__ import annotations

import os

from django.core.cache import cache
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path

from tests.torture import values

PAGE_BYTES = 4000


def page(request: HttpRequest, key: str) -> HttpResponse:
    body = cache.get(key)
    hit = body is not None
    if body is None:
        sequence = cache.incr("pages made")
        body = values.make(key, os.getpid() & 0xFFFF, sequence, PAGE_BYTES)
        cache.set(key, body, None)
    headers = {"X-Hit": int(hit), "X-Pid": os.getpid(), "Content-Length": len(body)}
    return HttpResponse(body, content_type="application/octet-stream", headers=headers)


def forget(request: HttpRequest, key: str) -> HttpResponse:
    cache.delete(key)
    return HttpResponse(headers={"X-Pid": os.getpid()})


urlpatterns = [path("page/<key>", page), path("forget/<key>", forget)]
# With --preload this runs in the arbiter: its workers inherit an opened cache.
cache.add("pages made", 0, None)
application = get_wsgi_application()
