"""What ``get_or_set`` computed is returned, also if the connection is lost while it is stored."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from nearcache.backends import RedisCache
from nearcache.errors import ServerNotReady
from nearcache.memoize import memoize
from tests.redis.proxies import proxy
from tests.redis.servers import Server, running


@pytest.fixture
def own(redis_directory: Path) -> Any:
    with running(redis_directory) as server:
        yield server


def cache_at(location: str, **options: Any) -> RedisCache:
    return RedisCache(location, {"OPTIONS": {"breaker_failures": 0, **options}})


@pytest.mark.parametrize("stale", [None, 60])
@pytest.mark.parametrize("on_error", ["raise", "miss"])
@pytest.mark.parametrize("awaited", [False, True])
def test_it_is_returned_and_counted(
    own: Server, caplog: Any, on_error: str, stale: Any, awaited: bool
) -> None:
    with proxy(own) as between:
        url = f"redis://127.0.0.1:{between.address.port}/0"
        cache = cache_at(url, on_error=on_error, read_timeout=20.0)
        storing = (b"\r\nNX\r\n", b"EVAL")

        def make() -> str:
            between.cut = lambda commands: (
                "before"
                if b"computed" in commands and any(w in commands for w in storing)
                else None
            )
            return "computed"

        with caplog.at_level(logging.WARNING):
            if awaited:

                async def main() -> Any:
                    return await cache.aget_or_set("k", make, 100, stale=stale)

                found = asyncio.run(main())
            else:
                found = cache.get_or_set("k", make, 100, stale=stale)
        assert found == "computed"
        counted = cache.counters.unstored + cache._outage.forgiven
        assert counted == 1
        assert len(caplog.records) >= 1
        cache._topology.close()


def test_a_server_that_is_full_says_so(own: Server) -> None:
    with own.client() as admin:
        admin.config_set("maxmemory", 1)
        with pytest.raises(ServerNotReady, match="memory is full"):
            cache_at(f"unix://{own.path}").get_or_set("k", lambda: "computed", 100)


def test_memoize_returns_it_as_well(own: Server) -> None:
    with proxy(own) as between:
        entry = {
            "BACKEND": "nearcache.backends.RedisCache",
            "LOCATION": f"redis://127.0.0.1:{between.address.port}/0",
            "OPTIONS": {"breaker_failures": 0, "read_timeout": 20.0},
        }
        between.cut = lambda commands: "before" if b"a value" in commands else None

        @memoize(timeout=100)
        def function() -> str:
            return "a value"

        with override_settings(CACHES={"default": entry}):
            assert function() == "a value"
            assert function.refresh() == "a value"
