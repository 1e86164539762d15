"""A shared-memory cache of its own for every test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nearcache.backends import SharedMemoryCache


@pytest.fixture
def make_cache(private_path: Path) -> Callable[..., SharedMemoryCache]:
    """Makes another object on the same store, as Django does per thread and task."""

    def make(**params: object) -> SharedMemoryCache:
        options = {"OPTIONS": {"size": "4MB"}}
        return SharedMemoryCache(str(private_path / "cache"), {**options, **params})

    return make


@pytest.fixture
def cache(make_cache: Callable[..., SharedMemoryCache]) -> SharedMemoryCache:
    return make_cache()
