"""What is over is deleted like anything else: whoever waited for a lock may take it for alive."""

from __future__ import annotations

import time
from pathlib import Path

from nearcache import _core


def test_clear_matching_takes_out_what_is_over_and_does_not_count_it(private_path: Path) -> None:
    store = _core.Store(str(private_path / "cache"), size_bytes=1 << 20)
    store.set(b"k", b"v", time.time_ns() // 1_000_000 + 20)
    while store.contains(b"k"):
        time.sleep(0.001)
    assert len(store) == 1
    assert store.clear_matching() == 0
    assert len(store) == 0
