"""Somebody sets the wall clock, or the machine sleeps: locks and waits do not notice.

Values do: their deadlines are wall-clock times by contract.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from nearcache import _core
from nearcache.base.clock import SystemClock
from tests.faults.beside import SIZE_BYTES, need_namespaces, run

LOCK, TTL_MS = b"lock", 600_000
HOUR_S = 3600
FIRST_MUTEX = 41 * 4096
"""Of the first shard: after the header, the statistics and the locks."""
NOBODY = 0x3FFF_FFF0
"""A thread id that no thread has."""


def clock_off_by(seconds: int, library: Path) -> dict[str, str]:
    return {"LD_PRELOAD": str(library), "WALL_CLOCK_SHIFT_S": str(seconds)}


def test_the_clock_of_the_test_is_shifted(base: Path, shifted_clock: Path) -> None:
    off = clock_off_by(-HOUR_S, shifted_clock)
    told = run("import time; print(time.time(), opened().stats()['created_at_ms'])", base, **off)
    there_s, created_ms = map(float, told.split())
    assert time.time() - there_s >= HOUR_S
    assert abs(there_s - created_ms / 1000) < HOUR_S / 2


@pytest.mark.parametrize("shift_s", [HOUR_S, -HOUR_S])
def test_a_lock_is_not_taken_from_its_holder_by_whose_clock_was_set(
    store: _core.Store, base: Path, shifted_clock: Path, shift_s: int
) -> None:
    token = store.lock_acquire(LOCK, TTL_MS)
    assert token
    off = clock_off_by(shift_s, shifted_clock)
    code = "print(opened().lock_acquire(LOCK, TTL_MS), opened().stats()['locks_held'])"
    assert run(code, base, **off) == "None 1"
    assert store.lock_release(LOCK, token)


def test_a_lock_taken_before_the_clock_was_set_back_ends_in_time(
    base: Path, shifted_clock: Path
) -> None:
    """Its holder lives, so that nothing but its time ends it."""
    code = """
    store = opened()
    assert store.lock_acquire(LOCK, 50)
    # The same process by pid and start time, an hour earlier by the wall clock.
    os.environ["WALL_CLOCK_SHIFT_S"] = "0"
    token = None
    while token is None:
        token, _ = store.lock_wait(LOCK, None, TTL_MS, 1000)
    print("taken")
    """
    assert run(code, base, **clock_off_by(HOUR_S, shifted_clock)) == "taken"


def test_a_wait_for_a_busy_shard_ends_in_time_when_the_clock_was_set_back(
    store: _core.Store, base: Path, shifted_clock: Path
) -> None:
    """By the wall clock its end would be an hour away."""
    store.set(b"k", b"\x80old", None)
    with Path(store.path).open("r+b") as file:
        file.seek(FIRST_MUTEX)
        file.write(NOBODY.to_bytes(4, "little"))
    off = clock_off_by(HOUR_S, shifted_clock)
    code = "store = opened(); print(store.set(b'k', b'\\x80new', None), store.get(b'k'))"
    assert run(code, base, **off) == "False None"


def test_the_clock_of_locks_counts_while_the_machine_sleeps(base: Path) -> None:
    """In a time namespace the clock that stops in sleep and the one that does not differ."""
    need_namespaces()
    if not Path("/proc/self/ns/time").exists():
        pytest.skip("this kernel has no time namespaces")
    code = """
    import time
    from nearcache.base.clock import SystemClock
    print(SystemClock().monotonic_s() - time.monotonic())
    """
    slept_s = float(run(code, base, mount=":", unshare=f"--time --boottime {24 * HOUR_S} --fork"))
    assert slept_s >= 24 * HOUR_S - 1
    assert SystemClock().monotonic_s() >= time.monotonic() - 1


def test_who_counts_from_another_boot_time_may_not_share_a_file(
    store: _core.Store, base: Path
) -> None:
    need_namespaces()
    if not Path("/proc/self/ns/time").exists():
        pytest.skip("this kernel has no time namespaces")
    assert store.lock_acquire(LOCK, TTL_MS)
    code = """
    try:
        print(opened().lock_acquire(LOCK, TTL_MS))
    except NearcacheError as error:
        print(type(error).__name__, error)
    """
    told = run(code, base, mount=":", unshare=f"--time --boottime {24 * HOUR_S} --fork")
    assert told.startswith("RegionError")
    assert "time namespace" in told
    assert os.path.getsize(store.path) == SIZE_BYTES
