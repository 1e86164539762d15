"""The ways from Django's contract to bytes: each test here runs over all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nearcache.backends import RedisCache, SharedMemoryCache
from tests.backends.classes import MemoryCache, PlainSharedMemoryCache

BACKENDS = [MemoryCache, PlainSharedMemoryCache, SharedMemoryCache, RedisCache]
LOCAL = BACKENDS[:-1]
PATIENT = {"read_timeout": 60, "connect_timeout": 60}
"""For RedisCache where outages are not the matter: a busy machine may not run a server for a
second, which by default is one."""
OF_MEMORY = {"size", "max_item", "mean_item", "near_items", "near_size"}

local_only = pytest.mark.parametrize(
    "backend", LOCAL, indirect=True, ids=lambda backend: backend.__name__
)
"""About limits and clearing, where Redis is another thing."""


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend.__name__)
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def make_cache(
    backend: Any, private_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Any]]:
    """Makes another object on the same store, as Django does per thread and task."""
    made: list[Any] = []
    databases: dict[str, int] = {}
    # Here, because tests make caches in threads.
    path = request.getfixturevalue("redis_server").path if backend is RedisCache else ""

    def make(location: str = "cache", options: dict[str, Any] | None = None, **params: Any) -> Any:
        options = {"size": "4MB", **(options or {})}
        where = str(private_path / location)
        if backend is RedisCache:  # a location is a database of the server
            where = f"unix://{path}?db={databases.setdefault(location, len(databases))}"
            options = {name: each for name, each in options.items() if name not in OF_MEMORY}
            options |= PATIENT
        made.append(backend(where, {"OPTIONS": options, **params}))
        return made[-1]

    yield make
    if backend is RedisCache:
        for cache in made:
            cache.engine.topology.close()


@pytest.fixture
def cache(make_cache: Callable[..., Any]) -> Any:
    return make_cache()
