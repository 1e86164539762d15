"""Fencing tokens grow, whatever becomes of the file that counts them."""

from __future__ import annotations

from pathlib import Path

from nearcache import _core
from tests.faults.beside import SIZE_BYTES, run

LOCK, TTL_MS = b"lock", 1000
DAY_S = 86_400
TAKE = "print(opened().lock_acquire(LOCK, TTL_MS))"
TAKE_FROM_A_LARGER_ONE = f"""
print(_core.Store(sys.argv[1], size_bytes={2 * SIZE_BYTES}).lock_acquire(LOCK, TTL_MS))
"""


def take(base: Path, code: str = TAKE, **env: str) -> int:
    """The token that a process got, which has ended since."""
    return int(run(code, base, **env))


def test_tokens_grow_when_the_file_was_removed(base: Path) -> None:
    before = take(base)
    for each in base.parent.iterdir():
        each.unlink()
    assert take(base) > before


def test_tokens_grow_when_the_size_was_changed(base: Path) -> None:
    before = take(base)
    assert take(base, TAKE_FROM_A_LARGER_ONE) > before


def test_tokens_grow_when_the_size_was_changed_after_the_clock_was_set_back(
    base: Path, shifted_clock: Path
) -> None:
    before = take(base)
    back = {"LD_PRELOAD": str(shifted_clock), "WALL_CLOCK_SHIFT_S": str(-DAY_S)}
    then = take(base, TAKE_FROM_A_LARGER_ONE, **back)
    assert then > before
    assert take(base, TAKE_FROM_A_LARGER_ONE, **back) > then


def test_tokens_grow_from_holder_to_holder_and_every_language_can_hold_them(
    store: _core.Store,
) -> None:
    tokens = []
    for _ in range(1000):
        token = store.lock_acquire(LOCK, TTL_MS)
        assert token
        tokens.append(token)
        store.lock_release(LOCK, token)
    assert tokens == sorted(set(tokens))
    assert tokens[-1] < 2**53  # a float's whole numbers; and so below what SQL's BIGINT takes
