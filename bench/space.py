"""Bytes per item beyond key and value."""

from __future__ import annotations

from pathlib import Path

from nearcache import _core

ITEMS = 1_000_000
VALUE = bytes(100)
MEAN_ITEM_BYTES = 150


def overhead_per_item(where: Path) -> float:
    """The smallest file that holds a million values of 100 bytes, less their bytes, by items.

    The file's whole size counts: header, index, log, page tables, what is held back.
    """
    keys = [b":1:item:%d" % number for number in range(ITEMS)]
    payload = sum(map(len, keys)) + ITEMS * len(VALUE)
    low, high = 30, 130
    while high - low > 1:
        middle = (low + high) // 2
        if _holds_all(where / f"space{middle}", payload + middle * ITEMS, keys):
            high = middle
        else:
            low = middle
    return float(high)


def _holds_all(base: Path, size_bytes: int, keys: list[bytes]) -> bool:
    store = _core.Store(str(base), size_bytes=size_bytes, mean_item_bytes=MEAN_ITEM_BYTES)
    header = b"\x89"  # of bytes
    for start in range(0, ITEMS, 1000):
        store.set_many([(key, header + VALUE[1:]) for key in keys[start : start + 1000]], None)
    found = sum(store.contains(key) for key in keys)
    Path(store.path).unlink()
    return found == ITEMS
