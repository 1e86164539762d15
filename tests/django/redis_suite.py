"""Django's suite over RedisCache: one class of tests per cell, for side_by_side.py.

A cell is a backend with options. All of them hold whatever pickles, as the suite stores
functions, classes, models and responses; the other serializers refuse these (``tests/codec``).
Redis does not cull, so the two aliases that do are left out.
"""

import itertools
import json
import os
from typing import Any

from cache import tests as django_cache_tests
from cache.tests import caches_setting_for_tests
from django.core.cache import cache, caches
from django.test import TestCase, override_settings
from sessions_tests import tests as django_session_tests

from tests.django.behaviour import Behaviour

PLACES = json.loads(os.environ["NEARCACHE_TEST_PLACES"])
"""The path of a server, and the URL of a cluster."""

SYNC = "nearcache.backends.RedisCache"
ASYNC = "tests.django.through_async.RedisThroughAsync"
COMPRESSORS = ["none", "zlib", "gzip", "lzma", "lz4", "zstd", "brotli"]

CELLS: dict[str, tuple[str, dict[str, Any]]] = {
    f"{serializer}_{compressor}": (SYNC, {"serializer": serializer, "compressor": compressor})
    for serializer in ("auto", "pickle")
    for compressor in COMPRESSORS
} | {
    "as_django": (SYNC, {"compat": "django"}),
    "as_django_redis": (SYNC, {"compat": "django-redis"}),
    "as_django_redis_zlib": (SYNC, {"compat": "django-redis", "compressor": "zlib"}),
    "resp3": (SYNC, {"protocol": 3}),
    "resp3_python": (SYNC, {"protocol": 3, "parser": "python"}),
    "through_async": (ASYNC, {}),
    "through_async_zstd": (ASYNC, {"serializer": "pickle", "compressor": "zstd"}),
}
SESSION_CELLS = ["auto_none", "pickle_zlib", "through_async"]


class BackendTests(Behaviour, django_cache_tests.BaseCacheTests):
    other: dict[str, Any]

    # Aliases with MAX_ENTRIES: the server evicts, by its own rules.
    test_cull = test_zero_cull = test_cull_delete_when_store_empty = None

    def setUp(self) -> None:
        # Who clears keeps to his own prefix, so what other tests left under others stays.
        cache.flush_all()
        super().setUp()

    def test_multiple_caches(self) -> None:
        mine, other = caches.settings["default"], self.other
        with override_settings(CACHES={"default": mine, "other": other}):
            cache.set("value", 42)
            assert caches["default"].get("value") == 42
            assert caches["other"].get("value") is None


class AsyncBackendTests(BackendTests):
    """Without pickling querysets that nobody has evaluated yet: they would ask the database,
    which Django forbids inside an event loop."""

    test_cache_read_for_model_instance_with_deferred = None
    test_cache_write_for_model_instance_with_deferred = None


def _class(name: str, base: dict[str, Any], other: dict[str, Any]) -> type:
    parent = AsyncBackendTests if base["BACKEND"] == ASYNC else BackendTests
    made = type(name, (parent, TestCase), {"other": other, "__module__": __name__})
    aliases = caches_setting_for_tests(base=base, exclude={"cull", "zero_cull"})
    return override_settings(CACHES=aliases)(made)


# Thirty processes on a busy machine: what is tested here is not how fast it is.
PATIENT = {"SOCKET_TIMEOUT": 60, "SOCKET_CONNECT_TIMEOUT": 60}
_databases = itertools.count()


def _base(backend: str, options: dict[str, Any]) -> dict[str, Any]:
    """Settings of a cache with a database of its own: the classes run at the same time."""
    location = f"unix://{PLACES['path']}?db={next(_databases)}"
    return {"BACKEND": backend, "LOCATION": location, "OPTIONS": PATIENT | options}


def _sessions(kind: str, name: str, base: dict[str, Any]) -> type:
    parent = getattr(django_session_tests, kind)
    made = type(f"{kind}_{name}", (parent,), {"__module__": __name__})
    return override_settings(CACHES={"default": base})(made)


def _classes() -> dict[str, type]:
    made: dict[str, type] = {}
    for name, cell in CELLS.items():
        made[f"Cell_{name}"] = _class(f"Cell_{name}", _base(*cell), _base(*cell))
        for kind in ("CacheSessionTests", "CacheDBSessionTests") if name in SESSION_CELLS else ():
            made[f"{kind}_{name}"] = _sessions(kind, name, _base(*cell))
    if PLACES["cluster"]:
        # A cluster has one database, so the other cache is elsewhere.
        mine = {"BACKEND": SYNC, "LOCATION": PLACES["cluster"], "OPTIONS": PATIENT}
        other = _base(SYNC, {})
        made["Cell_cluster"] = _class("Cell_cluster", mine, other)
    return made


globals().update(_classes())
