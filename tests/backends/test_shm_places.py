"""Where a cache file may be: in a directory that others read, one deeper."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.cache import CacheHandler

from nearcache.errors import RegionError


def cache_at(path: Path, **options: str) -> object:
    backend = "nearcache.backends.SharedMemoryCache"
    entry = {"BACKEND": backend, "LOCATION": str(path), "OPTIONS": options}
    return CacheHandler({"default": entry})["default"]


@pytest.mark.parametrize("options", [{}, {"size": "1MB"}], ids=["default size", "1 MB"])
@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_below_a_directory_that_others_read_a_private_one_is_made(
    tmp_path: Path, mode: int, options: dict[str, str]
) -> None:
    """systemd's RuntimeDirectory is 0755, a Kubernetes emptyDir 0777."""
    runtime = tmp_path / "mysite"
    runtime.mkdir()
    runtime.chmod(mode)
    cache = cache_at(runtime / "private" / "cache", **options)
    cache.set("a", 1)  # type: ignore[attr-defined]
    assert cache.get("a") == 1  # type: ignore[attr-defined]
    assert (runtime / "private").stat().st_mode & 0o777 == 0o700
    assert runtime.stat().st_mode & 0o777 == mode


def test_a_directory_that_is_there_and_open_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(RegionError):
        cache_at(tmp_path / "cache").set("a", 1)  # type: ignore[attr-defined]
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_only_one_directory_is_made(tmp_path: Path) -> None:
    with pytest.raises(RegionError):
        cache_at(tmp_path / "mistyped" / "private" / "cache").set("a", 1)  # type: ignore[attr-defined]
    assert not (tmp_path / "mistyped").exists()
