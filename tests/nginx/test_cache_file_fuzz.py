"""A cache directory holds what strangers made upstreams say, and what crashes left of it.

Whatever the bytes: an entry is what its checksum and its name prove, or it is refused with a
reason. No other error, no more memory than a key and a head may take, and a purge writes
into an entry only, and there only the time when it expires.
"""

from __future__ import annotations

import json
import os
import tempfile
import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from nearcache.errors import NotACacheFile
from nearcache.nginx.cachedir.cachefile import MARKER, CacheFile
from nearcache.nginx.cachedir.directory import CacheDir, Census
from nearcache.nginx.cachedir.layout import LAYOUTS, Layout
from nearcache.nginx.inspect.inspection import everything, inspect_directory, list_keys
from nearcache.nginx.inspect.page import inspection_page
from nearcache.nginx.keys.paths import name_of
from nearcache.nginx.purge.purge import Purger
from nearcache.nginx.purge.receipt import How
from nearcache.report.plain import lines_of

from .conftest import Answer, Nginx, Upstream, every_nginx
from .entries import HEAD, KEY, made

VARIANT = "5a" * 16
NOW_S = 1_950_000_000.0
MOST_BYTES = 600_000  # of memory for one file: twice 64 KiB of key and head, as bytes and as text
NUMBERS = st.sampled_from([0, 1, -1, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**63 - 1])
TIMES = st.sampled_from([0, -1, 1, 2**31 - 1, -(2**31)])  # what every time_t can hold


@dataclass(frozen=True)
class Original:
    """A file that is one, before somebody damages it. ``edges``: where its parts begin."""

    name: str
    content: bytes
    edges: Sequence[int]


def varied(layout: Layout) -> bytes:
    """A response with Vary, as stored for one of its variants."""
    content = bytearray(made(layout, vary_len=6))
    for name, value in (("vary", b"X-Side"), ("variant", bytes.fromhex(VARIANT))):
        at = layout.fields[name].offset
        content[at : at + len(value)] = value
    return bytes(content)


def originals() -> Iterator[Original]:
    for layout in LAYOUTS:
        parts = [field.offset for field in layout.fields.values()]
        key = layout.size + len(MARKER)
        edges = [*parts, layout.size, key, key + len(KEY), key + len(KEY) + 1 + len(HEAD)]
        yield Original(name_of(KEY), made(layout), edges)
        if "variant" in layout.fields:
            yield Original(VARIANT, varied(layout), edges)


ORIGINALS = list(originals())


@st.composite
def damaged(draw: st.DrawFn, files: Sequence[Original]) -> tuple[str, bytes]:
    """A name, and what is left of the file or was put into it."""
    original = draw(st.sampled_from(files))
    content = original.content
    for _ in range(draw(st.integers(1, 3))):
        content = _damage(draw, content, original.edges, files)
    return original.name, content


def _damage(
    draw: st.DrawFn, content: bytes, edges: Sequence[int], files: Sequence[Original]
) -> bytes:
    at = draw(st.one_of(st.sampled_from(edges), st.integers(0, len(content))))
    match draw(st.sampled_from(["flip", "cut", "splice", "insert", "repeat", "number"])):
        case "flip":
            bit = bytes([content[at] ^ 1 << draw(st.integers(0, 7))]) if at < len(content) else b""
            return content[:at] + bit + content[at + 1 :]
        case "cut":
            return content[:at]
        case "splice":
            return content[:at] + draw(st.sampled_from(files)).content[at:]
        case "insert":
            return content[:at] + draw(st.sampled_from([b"\n", b"\0", MARKER, HEAD])) + content[at:]
        case "repeat":
            return content[:at] + content[at:] * draw(st.sampled_from([2, 300]))
        case _:
            width = draw(st.sampled_from([2, 4, 8]))
            value = draw(NUMBERS) & (1 << 8 * width) - 1
            return content[:at] + value.to_bytes(width, "little") + content[at + width :]


@st.composite
def strange(draw: st.DrawFn) -> tuple[str, bytes]:
    """What proves to be an entry, and yet nobody has seen: any key, any time, any head."""
    layout = draw(st.sampled_from(LAYOUTS))
    key = draw(st.one_of(st.binary(max_size=40), st.just(MARKER * 9), st.just(b"k" * 60_000)))
    times = ("valid_sec", "updating_sec", "error_sec", "date", "last_modified")
    numbers = {name: draw(TIMES) for name in times}
    lengths = {"etag_len": draw(st.integers(0, 255)), "vary_len": draw(st.integers(0, 255))}
    content = made(layout, key, draw(st.binary(max_size=9)), **numbers, **lengths)
    head = draw(st.binary(min_size=len(HEAD), max_size=len(HEAD)))
    return name_of(key), content.replace(HEAD, head)


@contextmanager
def directory_of(name: str, content: bytes) -> Iterator[CacheDir]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_bytes(content)
        with CacheDir(Path(folder)) as directory:
            yield directory


def is_proven(name: str, content: bytes, entry: CacheFile) -> bool:
    """The same by other means: the key stands there, and header and name vouch for it."""
    at = content.find(MARKER + entry.key + b"\n")
    header = content[: max(0, at)]
    checksum = zlib.crc32(entry.key)
    has_checksum = any(checksum.to_bytes(4, order) in header for order in ("little", "big"))
    return has_checksum and (name == name_of(entry.key) or bytes.fromhex(name) in header)


def look_at_everything(entry: CacheFile) -> None:
    assert entry.text.isprintable()
    assert entry.status is None or 0 <= entry.status <= 999
    assert isinstance(entry.headers("set-cookie"), list)
    assert entry.body_size >= 0
    assert len(entry.variant) in (0, 32)
    assert len(entry.etag) <= 128
    assert len(entry.vary) <= 128


def check(name: str, content: bytes) -> None:
    """It is read for what it proves, or refused; alone and with all that is said of a directory."""
    with directory_of(name, content) as directory:
        tracemalloc.start()
        try:
            entry = directory.read("", name)
            look_at_everything(entry)
            assert is_proven(name, content, entry)
            is_entry = True
        except NotACacheFile:
            is_entry = False
        finally:
            peak_bytes = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak_bytes < MOST_BYTES
        seen = inspect_directory(directory, now=NOW_S)
        assert (seen.entries, seen.census.foreign.total()) == (is_entry, not is_entry)
        json.dumps(seen.to_json(), allow_nan=False)
        assert max(map(cell_len, lines_of(inspection_page(seen), 80))) <= 80
        listed = list_keys(directory, everything, Census(), NOW_S)
        json.dumps(list(listed), allow_nan=False)


@settings(max_examples=250)
@given(damaged(ORIGINALS))
def test_no_damage_makes_another_key(file: tuple[str, bytes]) -> None:
    check(*file)


@settings(max_examples=120)
@given(strange())
def test_no_entry_is_too_strange(file: tuple[str, bytes]) -> None:
    check(*file)


@settings(max_examples=120)
@given(st.one_of(damaged(ORIGINALS), strange()), st.sampled_from(["soft", "hard"]))
def test_a_purge_changes_nothing_but_when_an_entry_expires(
    file: tuple[str, bytes], how: How
) -> None:
    name, content = file
    with directory_of(name, content) as directory:
        path = directory.root / name
        try:
            entry = directory.read("", name)
        except NotACacheFile:
            entry = None
        receipt = Purger(directory, how=how, clock=lambda: NOW_S).purge_where(lambda entry: True)
        assert receipt.refusals == 0
        if entry is None:
            assert path.read_bytes() == content
        elif how == "hard":
            assert not path.exists()
        else:
            field = entry.layout.fields["valid_sec"]
            after = path.read_bytes()
            assert after[: field.offset] == content[: field.offset]
            assert after[field.offset + field.size :] == content[field.offset + field.size :]
            assert directory.read("", name).valid_sec < NOW_S


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_terabyte_is_read_no_further_than_its_head(layout: Layout) -> None:
    for numbers in ({}, {"header_start": 2**16 - 1, "body_start": 2**16 - 1}):
        with directory_of(name_of(KEY), made(layout, **numbers)) as directory:
            os.truncate(directory.root / name_of(KEY), 1 << 40)
            tracemalloc.start()
            seen = inspect_directory(directory, now=NOW_S)
            peak_bytes = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak_bytes < MOST_BYTES
        assert seen.entries == (not numbers)
        assert seen.bytes == (0 if numbers else 1 << 40)


@every_nginx
def test_no_damage_to_what_nginx_wrote_makes_another_key(
    proxy: Callable[[str], Nginx], upstream: Upstream
) -> None:
    upstream.script = lambda path, headers: Answer(
        b"body", headers={"Vary": "X-Side", "ETag": '"1"', "Cache-Control": "max-age=60"}
    )
    nginx = proxy("")
    for side in ("left", "right"):
        nginx.fill("/a?b=1", {"X-Side": side})
    with CacheDir(nginx.cache) as directory:
        files = [
            Original(
                found.entry.name,
                (nginx.cache / found.path).read_bytes(),
                [field.offset for field in found.entry.layout.fields.values()],
            )
            for found in directory.walk()
        ]
    assert len(files) == 2

    @settings(max_examples=60)
    @given(damaged(files))
    def damage(file: tuple[str, bytes]) -> None:
        check(*file)

    damage()
