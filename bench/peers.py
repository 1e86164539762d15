"""The caches under comparison and the values they hold."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SMALL = {  # seed 004's object
    "from": "359123456789",
    "address": "6afce9f7-acff-49c5-9fbe-14e238f73190",
    "hour": "12:30",
    "weight": 5,
    "type": 1,
}
FLOATS = [random.Random(1).random() for _ in range(1000)]  # the list of seeds 000 and 003


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    """A private directory on tmpfs, gone afterwards."""
    root = "/dev/shm" if os.path.isdir("/dev/shm") else None
    path = Path(tempfile.mkdtemp(prefix="nearcache-bench-", dir=root))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def configure(where: Path, more: dict[str, dict[str, Any]]) -> None:
    """Sets Django up with one alias per peer, and those given."""
    import django
    from django.conf import settings

    settings.configure(
        CACHES={
            "default": shared_memory(where / "ours"),
            # Every read copied and decoded, as after a write of another process.
            "fresh": shared_memory(where / "fresh", near_items=0),
            "locmem": {
                "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
                # Its default of 300 entries would turn gets into misses.
                "OPTIONS": {"MAX_ENTRIES": 10_000_000},
            },
            "disk": {
                "BACKEND": "diskcache.DjangoCache",
                "LOCATION": str(where / "disk"),
                "OPTIONS": {"MAX_ENTRIES": 10_000_000},
            },
            **more,
        }
    )
    django.setup()


def shared_memory(base: Path, size: str = "64MB", **options: Any) -> dict[str, Any]:
    """A ``CACHES`` entry for SharedMemoryCache."""
    return {
        "BACKEND": "nearcache.backends.SharedMemoryCache",
        "LOCATION": str(base),
        "OPTIONS": {"size": size, **options},
    }
