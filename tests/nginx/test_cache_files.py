"""Files that a real nginx wrote, and files of every other layout, are read for what they are.

What damage does to them is tried in test_cache_file_fuzz.py.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcache.errors import NginxError, NotACacheFile
from nearcache.nginx.cachedir.cachefile import parse
from nearcache.nginx.cachedir.directory import CacheDir, Census, levels_of
from nearcache.nginx.cachedir.heads import Head
from nearcache.nginx.cachedir.layout import LAYOUTS, MEMBERS, Layout
from nearcache.nginx.keys.paths import name_of, parse_levels, path_of, variant_of

from .conftest import Answer, Nginx, StartNginx, Upstream, every_nginx
from .entries import HEAD, KEY, made

Proxy = Callable[[str], Nginx]


def read_made(content: bytes, tmp_path: Path, name: str | None = None) -> object:
    path = tmp_path / "made"
    path.write_bytes(content)
    return parse(name or name_of(KEY), content, path.stat())


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_layout_is_read_by_what_it_proves(layout: Layout, tmp_path: Path) -> None:
    content = made(layout)
    path = tmp_path / "made"
    path.write_bytes(content)
    entry = parse(name_of(KEY), content, path.stat())
    assert (entry.key, entry.head.raw, entry.body_size) == (KEY, HEAD, 4)
    assert (entry.valid_sec, entry.date) == (2_000_000_000, 1_900_000_000)
    assert entry.last_modified is None
    assert entry.status == 200
    assert entry.headers("x-a") == ["1"]
    if "updating_sec" in layout.fields:
        assert (entry.stale_while_revalidate_s, entry.stale_if_error_s) == (30, 60)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it has no key"),
        (b"x" * 400, "it has no key"),
        (made(LAYOUTS[0], version=4), "its version is not that of its shape"),
        (made(LAYOUTS[0], crc32=1), "does not have the checksum"),
        (made(LAYOUTS[0], body_start=10), "its body begins before its head"),
        (made(LAYOUTS[0], header_start=60_000), "its head begins at byte 60000"),
        (made(LAYOUTS[0], header_start=380), "its key does not end where its head begins"),
        (made(LAYOUTS[0], key=b"another"), "is the MD5 neither of its key nor of a variant"),
        (b"?" + made(LAYOUTS[0]), "its key is at byte 337, as in no version known"),
    ],
)
def test_what_is_no_cache_file_is_refused_with_the_reason(
    content: bytes, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(NotACacheFile, match=reason):
        read_made(content, tmp_path)


def test_levels_are_those_that_nginx_takes() -> None:
    assert parse_levels("1:2") == (1, 2)
    assert parse_levels("") == ()
    for wrong in ("3", "1:2:1:2", "a", "1:"):
        with pytest.raises(NginxError, match="up to three"):
            parse_levels(wrong)


@every_nginx
def test_the_file_of_a_url_is_found_without_a_scan(proxy: Proxy, upstream: Upstream) -> None:
    nginx = proxy("")
    nginx.fill("/x?a=1")
    key = f"http://127.0.0.1:{upstream.port}/x?a=1".encode()
    with CacheDir(nginx.cache) as directory:
        found = directory.find(key, (1, 2))
        assert found is not None
        assert directory.find(b"http://elsewhere/", (1, 2)) is None
    assert found.path == str(path_of(name_of(key), (1, 2)))
    assert levels_of(found.folder) == (1, 2)
    assert found.entry.key == key
    assert 3000 < found.entry.time_left(time.time()) <= 3600
    assert found.entry.status == 200
    assert found.entry.body_size == len(b"hello")
    assert not found.entry.is_variant


@every_nginx
def test_variants_have_the_name_that_their_request_headers_give(
    proxy: Proxy, upstream: Upstream
) -> None:
    upstream.script = lambda path, headers: Answer(
        headers.get("Accept-Encoding", "").encode(), headers={"Vary": "Accept-Encoding, X-Side"}
    )
    nginx = proxy("proxy_set_header Accept-Encoding $http_accept_encoding;")
    asked = [
        {"Accept-Encoding": "gzip, br", "X-Side": "left"},
        {"Accept-Encoding": "br", "X-Side": "right"},
    ]
    for headers in asked:
        nginx.fill("/v", headers)
    with CacheDir(nginx.cache) as directory:
        entries = [found.entry for found in directory.walk()]
    key = f"http://127.0.0.1:{upstream.port}/v".encode()
    assert {entry.key for entry in entries} == {key}
    names = {variant_of(key, b"Accept-Encoding, X-Side", headers) for headers in asked}
    assert {entry.variant for entry in entries} == names
    assert sorted(entry.is_variant for entry in entries) == [False, True]


def test_a_walk_counts_what_is_no_entry_and_follows_no_link(proxy: Proxy, tmp_path: Path) -> None:
    nginx = proxy("")
    nginx.fill("/x")
    (nginx.cache / "README").write_text("hello")
    (nginx.cache / ("0" * 32)).symlink_to("/etc/passwd")
    os.mkfifo(nginx.cache / ("1" * 32))
    (nginx.cache / ("2" * 32)).write_bytes(b"short")
    (nginx.cache / ("3" * 32 + ".0000000001")).write_bytes(b"half written")
    free = next(name for name in "0123456789abcdef" if not (nginx.cache / name).exists())
    (nginx.cache / free).symlink_to(tmp_path)
    census = Census()
    with CacheDir(nginx.cache) as directory:
        found = list(directory.walk(census))
    assert len(found) == census.entries == 1
    assert census.temporary == 1
    assert census.foreign["it is not a regular file"] == 2
    assert sum(census.foreign.values()) == 5


def test_a_directory_that_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NginxError, match="does not exist; give the path"):
        CacheDir(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(NginxError, match="is not a directory"):
        CacheDir(tmp_path / "file")


def test_md5_of_the_key_is_the_name() -> None:
    assert name_of(KEY) == hashlib.md5(KEY).hexdigest()


# What a C compiler calls a machine: gcc lays out for others without their libraries.
COMPILED = {
    "64-bit": (["-m64"], "unsigned long", "long"),
    "32-bit": (["-m32"], "unsigned int", "int"),
    "i386, 64-bit time": (["-m32"], "unsigned int", "long long"),
    "32-bit, 64-bit time": (["-mx32"], "unsigned int", "long long"),
}
C_TYPES = {"u32": "unsigned int", "u16": "unsigned short", "u8": "unsigned char"}


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_c_compiler_lays_the_header_out_alike(layout: Layout, tmp_path: Path) -> None:
    if layout.machine.name not in COMPILED:
        pytest.skip("the compiler of this machine has no big endian")
    if platform.machine() != "x86_64" or not shutil.which("gcc"):
        pytest.skip("no gcc for x86-64: layouts of C are NOT compared")
    flags, word, seconds = COMPILED[layout.machine.name]
    types = C_TYPES | {"word": word, "time": seconds}
    members = "".join(
        f"{types[kind]} {name};" if kind in types else f"unsigned char {name}[{kind}];"
        for name, kind in MEMBERS[layout.version]
    )
    claims = "".join(
        f'_Static_assert(__builtin_offsetof(header, {name}) == {field.offset}, "{name}");'
        for name, field in layout.fields.items()
    )
    source = tmp_path / "header.c"
    source.write_text(
        f"typedef struct {{ {members} }} header; {claims}"
        f'_Static_assert(sizeof(header) == {layout.size}, "size");'
    )
    done = subprocess.run(
        ["gcc", *flags, "-fsyntax-only", str(source)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("length", [3_700, 4_090, 8_000, 60_000])
def test_a_key_longer_than_a_page_is_read(length: int, tmp_path: Path) -> None:
    key = b"http://a/" + b"k" * length
    path = tmp_path / name_of(key)
    path.write_bytes(made(LAYOUTS[0], key=key))
    with CacheDir(tmp_path) as directory:
        assert directory.read("", path.name).key == key


@every_nginx
def test_a_long_url_that_nginx_stored_is_found(start_nginx: StartNginx, upstream: Upstream) -> None:
    nginx = start_nginx(
        http="proxy_cache_path {cache} keys_zone=z:1m; large_client_header_buffers 4 16k;"
        "proxy_buffer_size 16k; proxy_buffers 8 16k;",
        server=f"location / {{ proxy_pass http://127.0.0.1:{upstream.port}; proxy_cache z;"
        "proxy_cache_valid 1h; add_header X-Cache $upstream_cache_status; }",
    )
    path = "/search?q=" + "x" * 6000
    nginx.fill(path)
    census = Census()
    with CacheDir(nginx.cache) as directory:
        found = list(directory.walk(census))
    assert [entry.entry.key[-10:] for entry in found] == [b"x" * 10]
    assert not census.foreign


def record(kind: int, content: bytes, padding: int = 0) -> bytes:
    return bytes([1, kind, 0, 1, *len(content).to_bytes(2), padding, 0]) + content + b"\0" * padding


def test_a_head_in_fastcgi_records_is_put_together() -> None:
    text = b"Status: 404 Not Found\r\nX-A: one\r\nSet-Cookie: a=b\r\n\r\n"
    raw = record(7, b"PHP message") + record(6, text[:30], 2) + record(6, text[30:] + b"body")
    head = Head(raw[: -len(b"body")])
    assert (head.kind, head.status, head.values("x-a")) == ("fastcgi", 404, ["one"])
    assert head.values("set-cookie") == ["a=b"]


@pytest.mark.parametrize(
    ("block", "status"), [(b"\x88\x76", 200), (b"\x3f\x01\x8d", 404), (b"\x48\x03302", None)]
)
def test_of_an_http2_head_only_what_is_certain_is_said(block: bytes, status: int | None) -> None:
    def frame(kind: int, payload: bytes, flags: int = 4) -> bytes:
        return len(payload).to_bytes(3) + bytes([kind, flags, 0, 0, 0, 1]) + payload

    head = Head(frame(4, b"\0\3\0\0\0\x80") + frame(1, block))
    assert (head.kind, head.status, head.lines) == ("http2", status, ())


@given(st.binary(max_size=300))
def test_no_head_is_too_strange(raw: bytes) -> None:
    head = Head(raw)
    assert head.kind in ("text", "fastcgi", "http2", "binary")
    assert head.status is None or 0 <= head.status <= 999
    assert isinstance(head.values("vary"), list)


def test_a_walk_of_one_cache_directory_does_not_disturb_another(proxy: Proxy) -> None:
    nginx = proxy("")
    for path in ("/1", "/2", "/3"):
        nginx.fill(path)
    with CacheDir(nginx.cache) as directory:
        names = [
            (outer.path, inner.path) for outer in directory.walk() for inner in directory.walk()
        ]
    assert len(names) == len(set(names)) == 9


def test_a_key_cannot_drive_a_terminal(tmp_path: Path) -> None:
    key = b"http://a/\x1b[2J\n\xff"
    content = made(LAYOUTS[0], key=key)
    (tmp_path / name_of(key)).write_bytes(content)
    with CacheDir(tmp_path) as directory:
        assert directory.read("", name_of(key)).text == "http://a/\\x1b[2J\\n\\xff"
