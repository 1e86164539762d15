"""The endpoint under a web server: ``/api/song/<id>``, and ``/lab/state`` for the proof.

As in the article: with a cache, the scrubbed dict is looked up first and kept afterwards; and every
answer may be cached by whoever stands in front (``Cache-Control``). Query: ``ttl`` seconds
instead of a day, ``work`` milliseconds of waiting for somebody else, ``v`` to be a URL of its own.

``X-App-Cache`` says whether this process took the answer from its cache. A proxy repeats it
with the answer it has kept, so it is the view's own count of itself, in ``/lab/state``, that
cannot be fooled.

What to be comes from the JSON file that ``NEARCACHE_LAB_ENDPOINT`` names.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path

from nearcache.lab.endpoint.songs import scrubbed

VARIABLE = "NEARCACHE_LAB_ENDPOINT"
A_DAY_S = 86_400
_setup: dict[str, Any] = json.loads(Path(os.environ[VARIABLE]).read_text())
_counting = threading.Lock()
_account = {"computed": 0}


def song(request: HttpRequest, song_id: int) -> JsonResponse:
    ttl_s = int(request.GET.get("ttl", A_DAY_S))
    found, said = None, "off"
    if _setup["cache"]:
        from django.core.cache import cache

        found = cache.get(request.get_full_path())
        said = "hit" if found is not None else "miss"
    if found is None:
        found = _compute(song_id, float(request.GET.get("work", 0)))
        if _setup["cache"]:
            cache.set(request.get_full_path(), found, ttl_s)
    answer = JsonResponse(found)
    answer.headers["Cache-Control"] = f"public, max-age={ttl_s}"
    answer.headers["X-App-Cache"] = said
    return answer


def _compute(song_id: int, work_ms: float) -> dict[str, Any]:
    from django.db import connection

    with _counting:
        _account["computed"] += 1
    if work_ms:
        time.sleep(work_ms / 1000)
    with connection.cursor() as cursor:
        cursor.execute("SELECT blob FROM lookup WHERE song = %s", [song_id])
        return scrubbed(json.loads(cursor.fetchone()[0]))


def state(_: HttpRequest) -> JsonResponse:
    """What this process is, and how often it has computed an answer."""
    from django.core.cache import cache

    kind = type(cache._connections[cache._alias])  # type: ignore[attr-defined]
    told = {
        **_account,
        "pid": os.getpid(),
        "cpus": sorted(os.sched_getaffinity(0)),
        "django": django.get_version(),
        "cache": f"{kind.__module__}.{kind.__qualname__}" if _setup["cache"] else "none",
    }
    answer = JsonResponse(told)
    answer.headers["Cache-Control"] = "no-store"
    answer.headers["X-App"] = f"Django {django.get_version()}"
    return answer


urlpatterns = [path("api/song/<int:song_id>", song), path("lab/state", state)]


def _application() -> Any:
    dummy = {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}
    settings.configure(
        ROOT_URLCONF=__name__,
        ALLOWED_HOSTS=["*"],
        MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
        CACHES={"default": _setup["cache"] or dummy},
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": _setup["database"],
                "CONN_MAX_AGE": None,  # opening it again would be most of what is timed
            }
        },
        USE_TZ=True,
    )
    application = get_wsgi_application()
    if _setup["cpus"]:
        # Here and not before exec: loading may use all of them. Threads made later inherit it.
        os.sched_setaffinity(0, _setup["cpus"])
    return application


application = _application()
