"""A purge is believed only when nginx serves new content: each case asks a real one."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from nearcache.nginx.cachedir.directory import CacheDir
from nearcache.nginx.keys.paths import name_of, path_of
from nearcache.nginx.purge.purge import Purger
from nearcache.nginx.purge.receipt import How, Receipt

from .conftest import Answer, Nginx, Upstream, every_nginx, wait_for

pytestmark = every_nginx
Proxy = Callable[[str], Nginx]
VARIANTS = ({"Accept-Encoding": "gzip"}, {"Accept-Encoding": "br"})


@pytest.fixture(autouse=True)
def _every_answer_is_new(upstream: Upstream) -> None:
    numbers = count(1)
    upstream.script = lambda path, headers: Answer(f"{path} {next(numbers)}".encode())


def key_of(upstream: Upstream, path: str) -> bytes:
    return f"http://127.0.0.1:{upstream.port}{path}".encode()


def purge(
    nginx: Nginx, key: bytes, how: How, *, dry_run: bool = False, forbid_stale: bool = False
) -> Receipt:
    with CacheDir(nginx.cache) as directory:
        purger = Purger(directory, how=how, dry_run=dry_run, forbid_stale=forbid_stale)
        return purger.purge_key(key, (1, 2))


def stored(nginx: Nginx) -> int:
    with CacheDir(nginx.cache) as directory:
        return sum(1 for _ in directory.walk())


@pytest.mark.parametrize(("how", "then"), [("soft", "EXPIRED"), ("hard", "MISS")])
def test_after_a_purge_the_next_request_gets_new_content(
    proxy: Proxy, upstream: Upstream, how: How, then: str
) -> None:
    nginx = proxy("")
    old, other = nginx.fill("/a"), nginx.fill("/b")
    receipt = purge(nginx, key_of(upstream, "/a"), how)
    assert [line.action for line in receipt.purged] == [
        {"soft": "expired", "hard": "unlinked"}[how]
    ]
    assert receipt.census is None, "one known key needs no scan"
    new = nginx.get("/a")
    assert (new.cache, new.body != old.body) == (then, True)
    assert nginx.fill("/a").body == new.body
    assert (nginx.get("/b").cache, nginx.get("/b").body) == ("HIT", other.body)


@pytest.mark.parametrize("how", ["soft", "hard"])
def test_all_variants_go(proxy: Proxy, upstream: Upstream, how: How) -> None:
    numbers = count(1)
    upstream.script = lambda path, headers: Answer(
        str(next(numbers)).encode(), headers={"Vary": "Accept-Encoding"}
    )
    nginx = proxy("")
    old = [nginx.fill("/v", headers).body for headers in VARIANTS]
    receipt = purge(nginx, key_of(upstream, "/v"), how)
    assert sorted(line.variant for line in receipt.purged) == [False, True]
    if how == "hard":
        assert receipt.purged[0].variant, "the main file, which leads to variants, goes last"
    new = [nginx.get("/v", headers) for headers in VARIANTS]
    assert all(answer.cache in ("EXPIRED", "MISS") for answer in new)
    assert not {answer.body for answer in new} & set(old)


def test_variants_go_although_the_main_file_is_gone(proxy: Proxy, upstream: Upstream) -> None:
    upstream.script = lambda path, headers: Answer(b"x", headers={"Vary": "Accept-Encoding"})
    nginx = proxy("")
    for headers in VARIANTS:
        nginx.fill("/v", headers)
    key = key_of(upstream, "/v")
    with CacheDir(nginx.cache) as directory:
        main = directory.find(key, (1, 2))
        assert main is not None
        (nginx.cache / main.path).unlink()
    assert [line.variant for line in purge(nginx, key, "hard").purged] == [True]
    assert stored(nginx) == 0


def test_a_soft_purge_reaches_a_file_that_nginx_holds_open(
    proxy: Proxy, upstream: Upstream
) -> None:
    nginx = proxy("open_file_cache max=10; open_file_cache_valid 60s;")
    old = nginx.fill("/a")
    purge(nginx, key_of(upstream, "/a"), "soft")
    assert nginx.get("/a").body != old.body


def test_with_background_update_nobody_waits_and_the_second_is_new(
    proxy: Proxy, upstream: Upstream
) -> None:
    nginx = proxy("proxy_cache_use_stale updating; proxy_cache_background_update on;")
    old = nginx.fill("/a")
    purge(nginx, key_of(upstream, "/a"), "soft")
    stale = nginx.get("/a")
    assert (stale.cache, stale.body) == ("STALE", old.body)
    assert wait_for(lambda: nginx.get("/a").body != old.body)


def test_forbidden_stale_content_is_not_served(proxy: Proxy, upstream: Upstream) -> None:
    numbers = count(1)
    upstream.script = lambda path, headers: Answer(
        str(next(numbers)).encode(),
        headers={"Cache-Control": "max-age=100, stale-while-revalidate=1000"},
    )
    nginx = proxy("proxy_cache_background_update on;")
    old = nginx.fill("/a")
    purge(nginx, key_of(upstream, "/a"), "soft", forbid_stale=True)
    answer = nginx.get("/a")
    assert (answer.cache, answer.body != old.body) == ("EXPIRED", True)


def test_a_dry_run_changes_nothing_and_tells_the_same(proxy: Proxy, upstream: Upstream) -> None:
    nginx = proxy("")
    nginx.fill("/a")
    receipt = purge(nginx, key_of(upstream, "/a"), "soft", dry_run=True)
    assert [line.action for line in receipt.purged] == ["would be expired"]
    assert nginx.get("/a").cache == "HIT"


def test_keys_can_be_selected_by_a_rule(proxy: Proxy) -> None:
    nginx = proxy("")
    for path in ("/shop/1", "/shop/2", "/blog/1"):
        nginx.fill(path)
    with CacheDir(nginx.cache) as directory:
        receipt = Purger(directory).purge_where(lambda entry: b"/shop/" in entry.key)
    assert len(receipt.purged) == 2
    caches = [nginx.get(path).cache for path in ("/shop/1", "/shop/2", "/blog/1")]
    assert caches == ["EXPIRED", "EXPIRED", "HIT"]


def test_what_is_no_entry_is_left_alone(proxy: Proxy, tmp_path: Path) -> None:
    nginx = proxy("")
    nginx.fill("/a")
    precious = tmp_path / "precious"
    precious.write_text("do not touch")
    (nginx.cache / ("a" * 32)).symlink_to(precious)
    (nginx.cache / ("b" * 32)).write_text("not nginx's")
    with CacheDir(nginx.cache) as directory:
        receipt = Purger(directory, how="hard").purge_where(lambda entry: True)
    assert len(receipt.purged) == 1
    assert precious.read_text() == "do not touch"
    assert {"a" * 32, "b" * 32} <= set(os.listdir(nginx.cache))


def test_nginx_logs_nothing_critical_after_a_soft_purge(proxy: Proxy, upstream: Upstream) -> None:
    nginx = proxy("")
    nginx.fill("/a")
    purge(nginx, key_of(upstream, "/a"), "soft")
    nginx.get("/a")
    assert "[crit]" not in nginx.errors
    assert "[alert]" not in nginx.errors


def test_one_file_that_is_no_entry_does_not_save_the_others(
    proxy: Proxy, upstream: Upstream, tmp_path: Path
) -> None:
    upstream.script = lambda path, headers: Answer(b"x", headers={"Vary": "Accept-Language"})
    nginx = proxy("")
    nginx.fill("/a", {"Accept-Language": "de"})
    nginx.fill("/a", {"Accept-Language": "en"})
    nginx.fill("/b")
    nginx.fill("/c")
    keys = [key_of(upstream, path) for path in ("/a", "/b", "/c")]
    a, _, c = (nginx.cache / path_of(name_of(key), (1, 2)) for key in keys)
    a.write_bytes(a.read_bytes()[:100])  # as a full disk leaves it
    c.parent.rename(tmp_path / "level")
    c.parent.symlink_to(tmp_path / "level")
    with CacheDir(nginx.cache) as directory:
        receipt = Purger(directory).purge_keys(keys, (1, 2))
    assert (receipt.files, receipt.refusals) == (2, 2)  # /b, and the other variant of /a
    assert "it has no key" in receipt.refused[0]
    assert "a link or a file stands for a level" in receipt.refused[1]
    assert nginx.get("/b").cache == "EXPIRED"
    assert (tmp_path / "level" / c.name).exists()


def test_an_error_page_is_kept_where_no_purge_reaches(proxy: Proxy, upstream: Upstream) -> None:
    """What ``lint`` calls errors-in-memory, and docs/caveats.md tells."""
    upstream.script = lambda path, headers: Answer(b"", 404)
    nginx = proxy("proxy_cache_valid 404 1h; proxy_intercept_errors on; error_page 404 /missing;")
    assert nginx.get("/a").status == 404
    upstream.script = lambda path, headers: Answer(b"there")
    assert purge(nginx, key_of(upstream, "/a"), "hard").files == 0
    assert nginx.get("/a").status == 404
    assert upstream.asked.count("/a") == 1
