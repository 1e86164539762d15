"""The three ways from Django's contract to bytes: each test here runs over all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nearcache.backends import SharedMemoryCache
from tests.backends.classes import MemoryCache, PlainSharedMemoryCache

BACKENDS = [MemoryCache, PlainSharedMemoryCache, SharedMemoryCache]


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend.__name__)
def make_cache(request: pytest.FixtureRequest, private_path: Path) -> Callable[..., Any]:
    """Makes another object on the same store, as Django does per thread and task."""

    def make(location: str = "cache", options: dict[str, Any] | None = None, **params: Any) -> Any:
        options = {"size": "4MB", **(options or {})}
        return request.param(str(private_path / location), {"OPTIONS": options, **params})

    return make


@pytest.fixture
def cache(make_cache: Callable[..., Any]) -> Any:
    return make_cache()
