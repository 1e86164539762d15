"""Places in memory, and processes that end with their test however it ends."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """A private directory in memory."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="nearcache-torture-", dir=memory if memory.is_dir() else None
    ) as directory:
        yield Path(directory)
