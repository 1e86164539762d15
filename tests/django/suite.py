"""Django's suite over the backend in the settings: run by Django's runner, not by pytest.

No alias is left out, the culling ones included.
"""

from cache import tests as django_cache_tests
from cache.tests import BaseCacheTests, caches_setting_for_tests
from django.conf import settings
from django.core.cache import cache, caches
from django.test import TestCase, override_settings
from sessions_tests.tests import *  # noqa: F403

from tests.django.behaviour import Behaviour

BASE = settings.CACHES["default"]
OTHER = {**BASE, "LOCATION": settings.OTHER_LOCATION}
# The star import brings Django's classes for other session engines; only ours are wanted.
for _name in [name for name in globals() if name.endswith("Tests") and name != "BaseCacheTests"]:
    if _name not in {"CacheSessionTests", "CacheDBSessionTests", "CacheDBSessionWithTimeZoneTests"}:
        del globals()[_name]
del BaseCacheTests


@override_settings(CACHES=caches_setting_for_tests(base=BASE))
class BackendTests(Behaviour, django_cache_tests.BaseCacheTests, TestCase):
    @override_settings(CACHES={"default": BASE, "other": OTHER})
    def test_multiple_caches(self) -> None:
        cache.set("value", 42)
        assert caches["default"].get("value") == 42
        assert caches["other"].get("value") is None
