"""The project's cache over either backend, and its tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import caches
from django.core.management import call_command
from django.test import override_settings

from tests.backends.conftest import PATIENT


@pytest.fixture(scope="session", autouse=True)
def tables() -> None:
    call_command("migrate", verbosity=0)


def settings_of(kind: str, path: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    if kind == "redis":
        where = f"unix://{request.getfixturevalue('redis_server').path}"
        backend, options = "nearcache.backends.RedisCache", dict[str, Any](PATIENT)
    else:
        where, backend = str(path / "cache"), "nearcache.backends.SharedMemoryCache"
        options = {"size": "4MB"}
    return {"BACKEND": backend, "LOCATION": where, "OPTIONS": options}


@pytest.fixture(params=["redis", "shm"])
def cache(request: pytest.FixtureRequest, private_path: Path) -> Iterator[Any]:
    """The default cache of the project, empty."""
    with override_settings(CACHES={"default": settings_of(request.param, private_path, request)}):
        caches["default"].clear()
        yield caches["default"]


@pytest.fixture
def settings_for(cache: Any) -> Any:
    """The caches of the project, and one more on the same store."""
    from django.conf import settings

    def more(alias: str) -> dict[str, Any]:
        default = settings.CACHES["default"]
        return {"default": default, alias: {**default, "KEY_PREFIX": alias}}

    return more
