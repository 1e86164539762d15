"""A WSGI application that has used both caches when it was imported, locks and computations too.

Each request does every kind of call, and answers what was wrong with a reply, or who it was.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import django
from django.conf import settings
from django.core.cache import caches

from nearcache.memoize import memoize
from tests.forks.work import check_everything
from tests.raw_fork import rest

settings.configure(
    CACHES=json.loads(os.environ["TRIAL_SITE"])["caches"],
    USE_TZ=True,
    SECRET_KEY="for tests only",
)
django.setup()

HELD = [caches[alias] for alias in settings.CACHES]
_numbers = itertools.count()


@memoize(timeout=600, alias="redis")
def of_redis(who: str) -> str:
    return f"redis of {who}"


@memoize(timeout=600, alias="shm")
def of_shm(who: str) -> str:
    return f"shm of {who}"


def check(who: str, rounds: int) -> None:
    for cache in [*HELD, *map(caches.__getitem__, settings.CACHES)]:
        check_everything(cache, f"{who} {next(_numbers)}", rounds)
    assert (of_redis(who), of_shm(who)) == (f"redis of {who}", f"shm of {who}")
    assert of_redis("all") == "redis of all"


def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    told = {"pid": os.getpid(), "wrong": ""}
    try:
        check(f"{os.getpid()} {threading.get_ident()}", 10)
    except Exception:  # noqa: BLE001 - the test shows it
        told["wrong"] = traceback.format_exc()
    body = json.dumps(told).encode()
    start("200 OK", [("Content-Length", str(len(body)))])
    return [body]


check(f"import {os.getpid()}", 10)
if "uwsgi" in sys.modules:
    rest()  # it forks now, unless it is lazy
