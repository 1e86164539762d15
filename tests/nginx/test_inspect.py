"""What `nearcache nginx inspect` says is what a real nginx has stored, also while it works."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from nearcache.cli import main
from nearcache.nginx.cachedir.directory import CacheDir
from nearcache.nginx.cachedir.layout import LAYOUTS
from nearcache.nginx.cachedir.select import selected_by
from nearcache.nginx.cachedir.varying import headers_of
from nearcache.nginx.inspect.inspection import Inspection, inspect_directory
from nearcache.nginx.inspect.page import inspection_page
from nearcache.nginx.inspect.tally import Heavy, Spread
from nearcache.nginx.keys.groups import shape_of, split_key
from nearcache.nginx.keys.paths import name_of, path_of
from nearcache.report.plain import lines_of

from .conftest import Answer, Nginx, Upstream, every_nginx, wait_for
from .entries import made

Proxy = Callable[[str], Nginx]
FIREFOX = {"Accept-Encoding": "gzip, deflate, br, zstd"}
CURL: dict[str, str] = {}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["nginx", "inspect", *map(str, arguments)])


def inspected(nginx: Nginx, *, match: str | None = None) -> Inspection:
    with CacheDir(nginx.cache) as directory:
        return inspect_directory(directory, selected_by(match, None))


@pytest.fixture
def shop(proxy: Proxy, upstream: Upstream) -> Nginx:
    """A cache with pages, variants, an error and somebody's cookie."""

    def script(path: str, headers: object) -> Answer:
        if path.startswith("/vary"):
            return Answer(b"v", headers={"Vary": "Accept-Encoding"})
        if path.startswith("/me"):
            return Answer(b"hello Ann", headers={"Set-Cookie": "sessionid=s3cret"})
        return Answer(b"gone" if path == "/gone" else b"x" * 1000, 404 if path == "/gone" else 200)

    upstream.script = script
    nginx = proxy("proxy_cache_valid 404 10m; proxy_ignore_headers Set-Cookie;")
    for path in ("/song/1/amazon", "/song/22/amazon", "/gone", "/me"):
        nginx.fill(path)
    for headers in (FIREFOX, CURL, {"Accept-Encoding": "strange"}):
        nginx.fill("/vary/1", headers)
    return nginx


@every_nginx
def test_everything_that_is_stored_is_summed_up(shop: Nginx) -> None:
    seen = inspected(shop)
    assert (seen.entries, seen.variants, seen.expired) == (7, 2, 0)
    assert seen.statuses == {"200": 6, "404": 1}
    assert seen.levels == {"1:2": 7}
    assert seen.layouts == {"version 5, 64-bit": 7}
    assert seen.groups.sums["/song/<n>/amazon"] == 2
    stored = [path.stat() for path in shop.cache.rglob("*") if path.is_file()]
    assert seen.bytes == sum(each.st_size for each in stored)
    assert seen.disk_bytes == sum(each.st_blocks * 512 for each in stored)
    least, most = seen.left.least, seen.left.most
    assert 100 < least <= 600 < 3000 < most <= 3600, "404 for ten minutes, the others an hour"


def test_a_cookie_that_was_stored_is_found_and_never_shown(shop: Nginx) -> None:
    seen = inspected(shop)
    assert [(leak.what, leak.entries) for leak in seen.leaks.values()] == [
        ("Set-Cookie in the stored head", 1)
    ]
    for arguments in ([shop.cache], [shop.cache, "--json"], [shop.cache, "--keys"]):
        assert "s3cret" not in run(*arguments).output


@every_nginx
def test_variants_say_which_header_made_them_and_what_was_sent(shop: Nginx) -> None:
    seen = inspected(shop)
    assert [files for _, files in seen.per_key.top(1)] == [3]
    assert seen.sent.sums == {
        "accept-encoding: gzip, deflate, br, zstd": 1,
        "accept-encoding: identity": 1,  # what http.client sends by itself
        "(values that are not known)": 1,
    }
    with CacheDir(shop.cache) as directory:
        found = [f.entry for f in directory.walk() if f.entry.vary]
    known = [headers_of(entry, [{"accept-encoding": "strange"}]) for entry in found]
    assert {"accept-encoding": "strange"} in known, "a caller may know more"


def test_the_page_fits_a_terminal_and_names_what_matters(shop: Nginx) -> None:
    lines = lines_of(inspection_page(inspected(shop)), 80)
    assert max(map(len, lines)) <= 80
    text = " ".join(lines)
    for words in ("7 entries", "keys_zone needs", "Set-Cookie", "/song/<n>/amazon", "in RAM"):
        assert words in text


def test_expired_entries_are_counted(proxy: Proxy, upstream: Upstream) -> None:
    upstream.script = lambda path, headers: Answer(b"x", headers={"X-Accel-Expires": "100"})
    nginx = proxy("")
    nginx.fill("/a")
    with CacheDir(nginx.cache) as directory:
        later = next(directory.walk()).entry.valid_sec + 1
        seen = inspect_directory(directory, now=later)
    assert (seen.expired, seen.left.count) == (1, 0)
    assert "100.0% of them expired" in inspection_page(seen).sentences[0]


def test_an_empty_key_that_all_urls_share_is_said(start_nginx: Callable[..., Nginx]) -> None:
    nginx = start_nginx(
        http="proxy_cache_path {cache} keys_zone=z:1m;",
        server="""location = /empty { return 204; } location / {
            set $nothing ""; proxy_pass http://127.0.0.1:$server_port/empty; proxy_cache z;
            proxy_cache_key "$nothing"; proxy_cache_valid any 1h;
            add_header X-Cache $upstream_cache_status; }""",
    )
    nginx.get("/a")
    nginx.fill("/b")
    seen = inspected(nginx)
    assert (seen.entries, seen.keyless) == (1, 1)
    assert any("empty key" in sentence for sentence in inspection_page(seen).sentences)


@every_nginx
def test_an_inspection_survives_a_cache_that_changes_underneath(
    start_nginx: Callable[..., Nginx], upstream: Upstream
) -> None:
    upstream.script = lambda path, headers: Answer(b"x" * 4000)
    nginx = start_nginx(
        # So small that nginx deletes as fast as it stores.
        http="proxy_cache_path {cache} levels=1:2 keys_zone=z:1m max_size=200k inactive=1s"
        " manager_files=10 manager_sleep=10ms;",
        server=f"location / {{ proxy_pass http://127.0.0.1:{upstream.port}; proxy_cache z;"
        "proxy_cache_valid 1h; add_header X-Cache $upstream_cache_status; }",
    )
    stop = threading.Event()

    def load() -> None:
        number = 0
        while not stop.is_set():
            nginx.get(f"/page/{number % 150}")
            number += 1
            for path in list(nginx.cache.rglob("?" * 32))[:3]:
                path.unlink(missing_ok=True)

    nginx.fill("/page/0")
    worker = threading.Thread(target=load)
    worker.start()
    seen: list[Inspection] = []

    def looked_often() -> bool:
        seen.append(inspected(nginx))
        return len(seen) >= 25 and any(each.entries for each in seen)

    try:
        assert wait_for(looked_often)
    finally:
        stop.set()
        worker.join()
    assert sum((each.census.foreign for each in seen), Counter()).total() == 0
    assert sum(each.census.unreadable for each in seen) == 0


def test_keys_are_listed_and_selected(shop: Nginx) -> None:
    result = run(shop.cache, "--keys", "--json", "--match", "*/song/*")
    rows = [json.loads(line) for line in result.output.splitlines()]
    assert sorted(split_key(row["key"])[1] for row in rows) == [
        "/song/1/amazon",
        "/song/22/amazon",
    ]
    assert all(row["status"] == 200 and 3000 < row["left_s"] <= 3600 for row in rows)
    assert "/gone" in run(shop.cache, "--keys", "--regex", r"/g\w+$").output
    limited = run(shop.cache, "--keys", "--limit", "2")
    assert "--limit shows more than 2" in limited.output


def test_json_has_everything_that_the_page_shows(shop: Nginx) -> None:
    facts = json.loads(run(shop.cache, "--json").output)
    assert (facts["verb"], facts["schema"], facts["entries"]) == ("inspect", 1, 7)
    assert facts["ram"]["files"] + facts["ram"]["unknown"] == 7
    assert facts["personal"][0]["entries"] == 1
    assert facts["most_variants"][0]["files"] == 3


def test_json_counts_what_is_no_entry_by_its_reason(shop: Nginx) -> None:
    (shop.cache / ("0" * 32)).write_text("half a file")
    (shop.cache / ("1" * 32)).write_text("another")
    keys = ["nginx", "purge", "--cache", str(shop.cache), "--match", "*/song/*", "--dry-run"]
    receipt = json.loads(CliRunner().invoke(main, [*keys, "--json"]).output)["receipts"][0]
    counted = [
        json.loads(run(shop.cache, "--json").output)["census"],
        json.loads(run(shop.cache, "--bodies", "--json").output)["bodies"]["census"],
        receipt["census"],
    ]
    assert [census["foreign"] for census in counted] == [{"it has no key": 2}] * 3
    assert [census["entries"] for census in counted] == [7] * 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["/nonexistent"], "does not exist; give the path of *_cache_path"),
        (["/etc/passwd"], "is not a directory"),
        (["/", "--keys", "--bodies"], "two questions"),
        (["/", "--pace", "3"], "--pace is for --bodies"),
        (["/", "--regex", "("], "--regex is no pattern"),
        (["/", "--colour"], "see `main nginx inspect --help`"),
    ],
)
def test_what_cannot_be_done_is_one_line(arguments: list[str], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in result.output
    assert len(result.output.splitlines()) == 1


def test_nothing_is_written_to_the_cache(shop: Nginx) -> None:
    def facts() -> dict[str, tuple[int, int, int]]:
        return {
            str(path): (status.st_mtime_ns, status.st_ctime_ns, status.st_size)
            for path in shop.cache.rglob("*")
            for status in [path.stat()]
        }

    before = facts()
    assert run(shop.cache).exit_code == 0
    assert run(shop.cache, "--bodies").exit_code == 0
    assert facts() == before


@pytest.mark.parametrize(
    ("key", "shape"),
    [
        ("http://127.0.0.1:8000/song/5246889/amazon", "/song/<n>/amazon"),
        ("httpsexample.com/search?q=abba&page=2&utm_source=x", "/search?page&q"),
        ("example.com/u/123e4567-e89b-12d3-a456-426614174000", "/u/<uuid>"),
        ("GETexample.com/static/app.3f2a9c1b.js", "/static/app.<hex>.js"),
        ("/search/foo%20bar", "/search/<text>"),
        ("no path at all", "(keys without a path)"),
    ],
)
def test_keys_of_one_kind_of_page_are_one_group(key: str, shape: str) -> None:
    assert shape_of(key) == shape


@given(st.text(max_size=200))
def test_any_key_has_a_shape(key: str) -> None:
    assert shape_of(key)
    assert "".join(split_key(key)) == key


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=300), st.floats(0, 1))
def test_quantiles_of_a_spread_are_near_those_of_the_values(
    values: list[float], share: float
) -> None:
    spread = Spread()
    for value in values:
        spread.add(value)
    exact = sorted(values)[int(share * (len(values) - 1))]
    found = spread.quantile(share)
    assert found is not None
    assert abs(found - exact) <= 0.03 * abs(exact) + 0.002


@given(st.lists(st.integers(0, 40), max_size=500))
def test_what_is_most_frequent_is_kept_within_the_error_that_is_said(names: list[int]) -> None:
    heavy = Heavy[int](keeps=5)
    for name in names:
        heavy.add(name)
    assert len(heavy.sums) <= 10
    for name, exact in Counter(names).items():
        assert exact - heavy.unsure <= heavy.sums[name] <= exact


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """Makes this process one of a user who owns nothing, in a directory that all may enter."""
    user = os.geteuid()

    def become(directory: Path) -> None:
        directory.chmod(0o755)
        monkeypatch.chdir(directory)  # the way there may be closed to others
        if user == 0:
            os.seteuid(65534)

    yield become
    if user == 0:
        os.seteuid(user)


@pytest.mark.parametrize("option", [(), ("--keys",), ("--bodies",), ("--json",)])
def test_what_may_not_be_read_is_told_and_never_taken_for_nothing(
    option: tuple[str, ...], tmp_path: Path, nobody: Callable[[Path], None]
) -> None:
    run(tmp_path, *option)  # so that all is imported: a stranger may not read the code, either
    for number in range(40):
        key = f"http://a/{number}".encode()
        path = tmp_path / path_of(name_of(key), (1, 2))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(made(LAYOUTS[0], key=key))
    levels = sorted(tmp_path.iterdir())
    for level in levels:
        level.chmod(0)
    nobody(tmp_path)
    closed = run(".", *option)
    assert (closed.exit_code, len(closed.output.splitlines())) == (2, 1)
    assert "may not be read below by this user; run this as that of nginx's" in closed.output
    os.seteuid(os.getuid())
    for below in (levels[0], *levels[0].rglob("*")):
        below.chmod(0o755)
    nobody(tmp_path)
    # Of one level only: what is read there does not stand for the others.
    partly = run(".", *option)
    assert partly.exit_code == 1, partly.output
    assert f"{len(levels) - 1} files or directories may not be read" in partly.output


@pytest.mark.parametrize("option", [(), ("--keys",), ("--bodies",)])
def test_what_is_no_cache_is_refused_and_an_empty_one_is_not(
    option: tuple[str, ...], tmp_path: Path
) -> None:
    assert run(tmp_path, *option).exit_code == 0
    (tmp_path / "settings.py").touch()
    refused = run(tmp_path, *option)
    assert refused.exit_code == 2
    assert "is no cache of nginx: 1 file, none is an entry" in refused.output


def test_a_directory_that_is_not_ours_says_what_to_do(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    assert "run this as their user or as root" in run(closed).output
