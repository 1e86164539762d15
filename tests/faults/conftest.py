"""What the tests of faults share."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearcache import _core
from tests.faults.beside import SIZE_BYTES, shifted_clock

__all__ = ["shifted_clock"]


@pytest.fixture
def base(private_path: Path) -> Path:
    """Where a store is, without its suffix."""
    return private_path / "cache"


@pytest.fixture
def store(base: Path) -> _core.Store:
    """A small store of this process's own."""
    return _core.Store(str(base), size_bytes=SIZE_BYTES)
