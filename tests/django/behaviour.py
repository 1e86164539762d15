"""What LocMemCacheTests of Django adds to BaseCacheTests that is about behaviour."""

from django.core.cache import cache


class Behaviour:
    """For a TestCase whose default cache is the one under test."""

    def test_pickling_may_use_the_cache(self) -> None:
        cache.set("set", Reentrant())
        assert cache.add("add", Reentrant()) is True

    def test_incr_decr_timeout(self) -> None:
        cache.set("value", 1, timeout=cache.default_timeout * 10)
        cache.incr("value")
        cache.decr("value")
        assert cache.ttl("value") > cache.default_timeout * 9


class Reentrant:
    """Uses the cache while it is pickled: a lock held meanwhile would never be free."""

    def __getstate__(self) -> dict[str, int]:
        cache.set("inside", 1)
        return {"inside": cache.get("inside")}
