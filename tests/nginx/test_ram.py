"""How much of a cache is in RAM is what the kernel says, and looking does not change it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nearcache.nginx.cachedir.directory import CacheDir
from nearcache.nginx.cachedir.layout import LAYOUTS
from nearcache.nginx.inspect import pagecache
from nearcache.nginx.inspect.inspection import inspect_directory
from nearcache.nginx.inspect.pagecache import PAGE_BYTES, Ask, Pages, cachestat, mincore
from nearcache.nginx.inspect.ram import QuietReader, Ram, keys_zone_bytes
from nearcache.nginx.keys.paths import name_of

from .entries import made

PAGES = 40
NUMBER = 12


@pytest.fixture(params=[cachestat, mincore])
def ask(request: pytest.FixtureRequest) -> Ask:
    asked: Ask = request.param
    if not pagecache._answers(asked):
        pytest.skip(f"this kernel has no {asked.__name__}: it is NOT tested")
    return asked


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A cache of some entries, none of which is in RAM."""
    for number in range(NUMBER):
        key = b"http://a/%d" % number
        path = tmp_path / name_of(key)
        path.write_bytes(made(LAYOUTS[0], key=key, body=b"x" * (PAGES * PAGE_BYTES)))
        evict(path)
    if resident(tmp_path):
        pytest.skip("these files cannot leave RAM (tmpfs): the page cache is NOT tested")
    return tmp_path


def evict(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def told(path: Path, ask: Ask) -> Pages:
    with path.open("rb") as opened:
        pages = ask(opened.fileno(), 0, path.stat().st_size)
    assert pages is not None
    return pages


def resident(directory: Path) -> int:
    ask = pagecache.method()[1]
    assert ask is not None
    return sum(told(path, ask).resident for path in directory.iterdir())


def test_both_ways_of_asking_see_what_was_read_and_no_more(stored: Path, ask: Ask) -> None:
    path = next(stored.iterdir())
    assert told(path, ask).resident == 0, "asking does not read"
    with path.open("rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(opened.fileno(), 3 * PAGE_BYTES, 8 * PAGE_BYTES)
    assert told(path, ask).resident == 3


def test_what_is_not_on_the_disk_yet_is_dirty(tmp_path: Path) -> None:
    if not pagecache._answers(cachestat):
        pytest.skip("no cachestat: dirty pages are NOT tested")
    path = tmp_path / "file"
    path.write_bytes(b"x" * 5 * PAGE_BYTES)
    assert told(path, cachestat).dirty in (0, 5), "unless the kernel was faster"


def test_an_inspection_of_a_cold_cache_leaves_it_cold(stored: Path) -> None:
    with CacheDir(stored) as directory:
        seen = inspect_directory(directory)
    assert (seen.entries, seen.ram.resident) == (NUMBER, 0)
    assert seen.ram.given_back == NUMBER
    assert resident(stored) == 0


def test_an_inspection_of_a_warm_cache_takes_nothing_away(stored: Path) -> None:
    for path in stored.iterdir():
        path.read_bytes()
    before = resident(stored)
    with CacheDir(stored) as directory:
        ram = inspect_directory(directory).ram
    assert (ram.resident, ram.given_back) == (before, 0)
    assert before == ram.pages == NUMBER * (PAGES + 1)
    assert resident(stored) == before
    assert "2.0 MB cache: 2.0 MB in RAM (100.0%)" in ram.sentence


def test_of_a_file_that_is_half_in_ram_only_what_was_read_goes(stored: Path) -> None:
    path = next(stored.iterdir())
    with path.open("rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(opened.fileno(), 5 * PAGE_BYTES, 20 * PAGE_BYTES)
        reader = QuietReader()
        reader(opened.fileno(), path.name)
    assert (reader.ram.resident, reader.ram.given_back) == (5, 1)
    assert resident(stored) == 5


def test_where_the_kernel_does_not_tell_that_is_said(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearcache.nginx.inspect.ram.method", lambda: ("", None))
    with CacheDir(stored) as directory:
        seen = inspect_directory(directory)
    assert (seen.entries, seen.ram.unknown) == (NUMBER, NUMBER)
    assert "this kernel does not tell" in seen.ram.sentence


def test_a_zone_holds_eight_thousand_keys_for_a_megabyte() -> None:
    assert keys_zone_bytes(8000) == 1 << 20
    assert keys_zone_bytes(1) == 132
    assert Ram("cachestat", unknown=2).sentence.startswith("of no file")
    assert Ram("cachestat").sentence == "nothing is there"
