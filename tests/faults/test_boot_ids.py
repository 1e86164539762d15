"""A file counts for one boot of a machine, by an id that not every process can read."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearcache import _core
from nearcache.errors import RegionError
from tests.faults.beside import SIZE_BYTES, need_namespaces, run

BOOT_ID = "/proc/sys/kernel/random/boot_id"
ANOTHER = f"echo 11111111-2222-3333-4444-555555555555 >/mnt/id; mount --bind /mnt/id {BOOT_ID}"
ANOTHER = f"mount -t tmpfs none /mnt; {ANOTHER}"
UNREADABLE = "mount -t proc -o subset=pid proc /proc"
"""What systemd's ``ProcSubset=pid`` does."""

OPEN = """
try:
    store = opened()
    print(store.created, store.get(b"k"))
except NearcacheError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    need_namespaces()


def inode(store: _core.Store) -> int:
    return Path(store.path).stat().st_ino


def test_who_cannot_read_the_boot_id_is_told_so_and_replaces_nobody_s_file(
    store: _core.Store, base: Path
) -> None:
    store.set(b"k", b"\x80v", None)
    before = inode(store)
    told = run(OPEN, base, mount=UNREADABLE)
    assert told.startswith(f"RegionError {BOOT_ID}: cannot be read")
    assert "ProcSubset=all" in told
    assert inode(store) == before
    assert _core.Store(str(base), size_bytes=SIZE_BYTES).get(b"k") == b"\x80v"


def test_a_file_that_others_have_open_is_not_replaced_by_who_sees_another_boot_id(
    store: _core.Store, base: Path
) -> None:
    store.set(b"k", b"\x80v", None)
    before = inode(store)
    told = run(OPEN, base, mount=ANOTHER)
    assert told.startswith("RegionError")
    assert "another boot id" in told
    assert "LOCATION" in told
    assert inode(store) == before
    assert run(OPEN, base) == "False b'\\x80v'"


def test_a_file_of_an_earlier_boot_that_nobody_has_open_is_replaced(base: Path) -> None:
    run('opened().set(b"k", b"\\x80v", None)', base)
    assert run(OPEN, base, mount=ANOTHER) == "True None"
    assert run(OPEN, base, mount=ANOTHER) == "False None"
    assert run(OPEN, base) == "True None"


def test_a_look_at_a_file_of_another_boot_says_so(base: Path) -> None:
    run("opened()", base, mount=ANOTHER)
    with pytest.raises(RegionError, match="before the machine was restarted"):
        _core.Store.existing(str(base))
