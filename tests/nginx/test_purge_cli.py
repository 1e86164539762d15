"""`nearcache nginx purge`: from a URL to the right key and nothing else. nginx decides."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nearcache.cli import main
from nearcache.errors import NginxError
from nearcache.lab.servers import end_process, free_port
from nearcache.nginx.cachedir.directory import CacheDir
from nearcache.nginx.cachedir.layout import LAYOUTS
from nearcache.nginx.keys.paths import name_of
from nearcache.nginx.keys.templates import check_template, key_for
from nearcache.nginx.purge.learn import Learned, learn, resolve
from nearcache.nginx.purge.purge import Purger
from nearcache.nginx.purge.receipt import Purged
from tests.needs import missing

from .conftest import Answer, Nginx, StartNginx, Upstream, every_nginx, wait_for
from .entries import made

Proxy = Callable[[str], Nginx]
HOST = {"Host": "example.com"}


@pytest.fixture(autouse=True)
def _every_answer_is_new(upstream: Upstream) -> None:
    numbers = count(1)
    upstream.script = lambda path, headers: Answer(f"{path} {next(numbers)}".encode())


def purge(nginx: Nginx | Path, *arguments: object) -> Result:
    cache = nginx if isinstance(nginx, Path) else nginx.cache
    return run("--cache", cache, *arguments)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["nginx", "purge", *map(str, arguments)])


def facts(nginx: Nginx, *arguments: object) -> dict[str, object]:
    return told(purge(nginx, *arguments, "--json"), 0, 1)


def told(result: Result, *exit_codes: int) -> dict[str, object]:
    assert result.exit_code in exit_codes, result.output
    found: dict[str, object] = json.loads(result.stdout)
    return found


def keyed(start_nginx: StartNginx, upstream: Upstream, key: str, more: str = "") -> Nginx:
    return start_nginx(
        http="""proxy_cache_path {cache} levels=1:2 keys_zone=z:1m inactive=1h;
            map $args $norm { default $args; ~^utm_ ""; }""",
        server=f"""location / {{
            proxy_pass http://127.0.0.1:{upstream.port}; proxy_cache z; proxy_cache_valid 1h;
            proxy_cache_key {key}; add_header X-Cache $upstream_cache_status; {more} }}""",
    )


# -- from a URL to a key


@pytest.mark.parametrize(
    "key",
    [
        "$scheme$proxy_host$request_uri",
        "$scheme$host$request_uri",
        "$scheme$request_method$host$request_uri",
        "$scheme://$host$request_uri",
        "$host$request_uri",
        "$request_uri",
        "$request_method|$host$request_uri",
        "$host$uri$is_args$args",
        "http$request_method$host$request_uri",
        "$request_method|$scheme://$host$request_uri",
        "$request_method $host $request_uri",
        "${host}_$request_method:$request_uri",
        "$scheme-$http_host$request_uri",
    ],
)
def test_the_shape_of_keys_is_learned_and_proven(
    start_nginx: StartNginx, upstream: Upstream, key: str
) -> None:
    nginx = keyed(start_nginx, upstream, f'"{key}"')
    for path in ("/", "/a?b=1", "/c/d", "/e%20f"):
        nginx.fill(path, HOST)
    # TLS may end before nginx: the scheme that people see is not that of the key.
    for url in ("http://example.com/a?b=1", "https://example.com/c/d"):
        path = url.partition("example.com")[2]
        old = nginx.get(path, HOST)
        assert purge(nginx, url, "--yes").exit_code == 0
        new = nginx.get(path, HOST)
        assert (old.cache, new.cache) == ("HIT", "EXPIRED")
    assert nginx.get("/", HOST).cache == "HIT"


ODD_PATHS = ["/page/caf%C3%A9", "/a%20b", "/c//d", "/e/./f", "/g/../h/", "/i%2Fj", "/k%25l"]
ODD_PATHS += ["/m/%2e%2e/n", "/%2541", "/o%3Fp", "/q%FFr", "/s/."]


@pytest.mark.parametrize("key", ["$scheme$host$uri$is_args$args", "$uri", "$scheme://$host$uri"])
@pytest.mark.parametrize("how", ["learned", "configured"])
def test_keys_of_decoded_paths_are_found_by_the_url_as_it_is_sent(
    start_nginx: StartNginx, upstream: Upstream, key: str, how: str
) -> None:
    nginx = keyed(start_nginx, upstream, f'"{key}"')
    # A real page with a question mark in its path looks as one with arguments.
    paths = [path for path in ODD_PATHS if "args" in key or path != "/o%3Fp"]
    paths += ["/list?page=1"] if "args" in key else []
    for path in paths:
        nginx.fill(path, HOST)
    said = ["--config", nginx.configuration] if how == "configured" else []
    for path in paths:
        result = purge(nginx, f"http://example.com{path}", "--yes", *said)
        assert result.exit_code == 0, f"{path}: {result.output}"
        assert nginx.get(path, HOST).cache == "EXPIRED", path
    assert purge(nginx, "http://example.com/page/cafe", "--yes", *said).exit_code == 1


def test_of_several_entries_the_one_that_has_the_url_as_it_is_written_is_meant(
    tmp_path: Path,
) -> None:
    for key in ("http://a/x", "http://a/x?a=1", "http://a/caf%C3%A9", "http://a/café"):
        store(tmp_path, key)
    learned = Learned(1, {"{scheme}://{host}{uri}": 1.0}, (), 1.0, False, False)
    with CacheDir(tmp_path) as directory:
        for url in ("http://a/x?a=1", "http://a/caf%C3%A9"):
            (found,) = resolve(url, directory, (), learned)
            assert found.key == url.encode()
            (found,) = resolve(url.replace("http", "https"), directory, (), learned)
            assert found.key == url.encode()
    (tmp_path / name_of(b"http://a/x?a=1")).unlink()
    with CacheDir(tmp_path) as directory:
        (found,) = resolve("http://a/x?a=1", directory, (), learned)
        assert found.key == b"http://a/x"


def test_the_same_path_of_another_host_stays(start_nginx: StartNginx, upstream: Upstream) -> None:
    nginx = keyed(start_nginx, upstream, "$scheme$host$request_uri")
    other = {"Host": "other.example"}
    nginx.fill("/a", HOST)
    nginx.fill("/a", other)
    assert purge(nginx, "http://example.com/a", "--yes").exit_code == 0
    assert (nginx.get("/a", HOST).cache, nginx.get("/a", other).cache) == ("EXPIRED", "HIT")
    # Not cached for this host: another host's page is another page.
    for url in ("http://third.example/a", "http://www.other.example/a"):
        assert purge(nginx, url, "--yes").exit_code == 1
    assert nginx.get("/a", other).cache == "HIT"


def test_of_two_upstreams_the_one_with_the_page_is_meant(tmp_path: Path) -> None:
    for key in ("http://127.0.0.1:8000/", "http://127.0.0.1:8001/api/1", "http://backend/x"):
        store(tmp_path, key)
    assert purge(tmp_path, "https://example.com/api/1", "--yes").exit_code == 0
    assert purge(tmp_path, "/x", "--yes").exit_code == 0


def test_a_path_alone_is_refused_where_hosts_count(
    start_nginx: StartNginx, upstream: Upstream
) -> None:
    nginx = keyed(start_nginx, upstream, "$host$request_uri")
    for number in range(20):
        nginx.fill("/a", {"Host": f"shop{number}.example"})
    result = purge(nginx, "/a", "--yes")
    assert result.exit_code == 2
    assert "has no scheme and host" in result.output


def test_keys_of_several_shapes_are_refused_with_the_rates(tmp_path: Path) -> None:
    for number in range(30):
        store(tmp_path, f"httphost{number}.example/x")
        store(tmp_path, f"{number}|strange{number}/x")
    result = purge(tmp_path, "http://host1.example/x", "--yes")
    assert result.exit_code == 2
    assert "{scheme}{host}{uri}: 50 %" in result.output
    assert "--key" in result.output


def test_two_locations_with_keys_of_their_own_may_share_a_cache(
    start_nginx: StartNginx, upstream: Upstream
) -> None:
    more = f"""}}
        location /static/ {{ proxy_pass http://127.0.0.1:{upstream.port}; proxy_cache z;
            proxy_cache_valid 1h; add_header X-Cache $upstream_cache_status;"""
    nginx = keyed(start_nginx, upstream, "$scheme$host$uri$norm", more)
    for path in ("/a", "/static/b", "/static/c"):
        nginx.fill(path, HOST)
    urls = ("https://example.com/a", "https://example.com/static/b")
    # A map makes the key of one of them: that is told, and the entries say the rest.
    result = purge(nginx, *urls, "--config", nginx.configuration, "--yes")
    assert result.exit_code == 0, result.output
    assert "the key has $norm, which no URL tells: learned" in " ".join(result.output.split())
    asked = [nginx.get(path, HOST).cache for path in ("/a", "/static/b", "/static/c")]
    assert asked == ["EXPIRED", "EXPIRED", "HIT"]
    nothing = purge(nginx, "https://example.com/nothing", "--yes")
    assert nothing.exit_code == 1
    assert "which is not stored" in " ".join(nothing.output.split())


def test_a_hard_purge_says_how_much_it_looked_at(tmp_path: Path) -> None:
    for number in range(3):
        store(tmp_path, f"http://a/{number}")
    assert "3 entries looked at" in purge(tmp_path, "--match", "*", "--hard", "--yes").output


def test_two_entries_that_a_url_may_mean_are_not_guessed(tmp_path: Path) -> None:
    store(tmp_path, "http://upstream1:80/x")
    store(tmp_path, "http://upstream2:80/x")
    result = purge(tmp_path, "https://example.com/x", "--yes")
    assert result.exit_code == 2
    assert "http://upstream1:80/x" in result.output
    assert "http://upstream2:80/x" in result.output
    assert purge(tmp_path, "--key", "http://upstream1:80/x", "--yes").exit_code == 0


def test_a_star_in_a_url_is_no_wildcard_and_what_is_one_is_said(tmp_path: Path) -> None:
    store(tmp_path, "http://a/x/1")
    result = purge(tmp_path, "http://a/x/*", "--yes")
    assert result.exit_code == 1
    assert "--match '*/x/*'" in " ".join(result.output.split())
    assert purge(tmp_path, "--match", "*/x/*", "--yes").exit_code == 0
    store(tmp_path, "http://a/x/*")
    result = purge(tmp_path, "http://a/x/*", "--yes")
    assert (result.exit_code, "--match" in result.output) == (0, False)


def test_slices_of_a_file_are_not_taken_for_its_key(tmp_path: Path) -> None:
    store(tmp_path, "http://a/film.mp4bytes=0-1048575")
    result = purge(tmp_path, "/film.mp4", "--yes")
    assert result.exit_code == 2
    assert "--match '*/film.mp4*bytes=*'" in result.output


def test_a_template_or_the_configuration_say_how_keys_are_made(
    start_nginx: StartNginx, upstream: Upstream
) -> None:
    nginx = keyed(start_nginx, upstream, '"v7|$host|$request_uri"')
    nginx.fill("/a", HOST)
    url = "https://example.com/a"
    assert purge(nginx, url, "--template", "v7|{host}|{uri}", "--dry-run").exit_code == 0
    found = facts(nginx, url, "--config", nginx.configuration, "--yes")
    assert found["keys"] == [
        {"url": url, "key": "v7|example.com|/a", "template": "v7|{host}|{uri}", "exists": True}
    ]
    assert nginx.get("/a", HOST).cache == "EXPIRED"


def test_a_configuration_without_this_cache_says_which_there_are(
    proxy: Proxy, tmp_path: Path
) -> None:
    nginx = proxy("")
    store(tmp_path, "http://a/x")
    result = purge(tmp_path, "/x", "--config", nginx.configuration, "--dry-run")
    assert f"has no cache in {tmp_path}, only {nginx.cache}" in result.output


@pytest.mark.parametrize(
    ("template", "url", "key"),
    [
        (
            "{scheme}{host}{uri}",
            "https://Example.COM:8443/a%20b?c=d",
            b"httpsexample.com/a%20b?c=d",
        ),
        ("{host}{port}{path}{is_args}{args}", "http://a:81/x%20y?q", b"a:81/x y?q"),
        ("{path}", "/a//b/../c%2F%2Fd/.", b"/a/c/d/"),
        ("{method}{uri}", "/x", b"GET/x"),
        ("{{x}}{uri}", "http://a", b"{x}/"),
    ],
)
def test_a_template_makes_a_key(template: str, url: str, key: bytes) -> None:
    assert key_for(url, check_template(template)) == key


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{schem}{uri}", "has {schem}; there are {scheme}"),
        ("{host}", "neither {uri} nor {path}"),
        ("{uri", "is no template"),
    ],
)
def test_a_wrong_template_is_refused(template: str, said: str) -> None:
    with pytest.raises(NginxError, match=re.escape(said)):
        check_template(template)


@pytest.mark.parametrize("url", ["ftp://a/b", "example.com/x", "http:///x", "/a b", "http://a:b/"])
def test_what_is_no_url_is_refused(url: str, tmp_path: Path) -> None:
    store(tmp_path, "http://a/x")
    with CacheDir(tmp_path) as directory, pytest.raises(NginxError, match="is no URL"):
        resolve(url, directory, (), learn(directory))


# -- what is done, and what is not


def test_nobody_to_ask_means_nothing_is_done(proxy: Proxy) -> None:
    nginx = proxy("")
    nginx.fill("/a")
    result = purge(nginx, "/a")
    assert result.exit_code == 2
    assert "--yes to purge, or --dry-run to look" in result.output
    assert purge(nginx, "/a", "--dry-run").exit_code == 0
    assert nginx.get("/a").cache == "HIT"


def test_in_a_terminal_it_only_says_what_it_would_do(proxy: Proxy) -> None:
    nginx = proxy("")
    nginx.fill("/a")
    command = [sys.executable, "-m", "nearcache", "nginx", "purge", "/a", "--cache", nginx.cache]
    ours, theirs = os.openpty()
    try:
        done = subprocess.run(command, stdin=theirs, capture_output=True, text=True, check=False)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 0, done.stderr
    assert "nothing was done: this is what --yes would do" in done.stdout
    assert nginx.get("/a").cache == "HIT"


def test_exit_codes_tell_found_nothing_and_refused(proxy: Proxy, tmp_path: Path) -> None:
    nginx = proxy("")
    nginx.fill("/a")
    assert purge(nginx, "/a", "--yes").exit_code == 0
    assert purge(nginx, "/not-there", "--yes").exit_code == 1
    assert purge(nginx, "--match", "*/nothing/*", "--yes").exit_code == 1
    empty = tmp_path / "empty"
    empty.mkdir()
    assert purge(empty, "/a", "--yes").exit_code == 1
    assert purge(Path("/etc"), "/a", "--yes").exit_code == 2
    link = tmp_path / "link"
    link.symlink_to(nginx.cache)
    result = purge(link, "/a", "--yes")
    assert result.exit_code == 2
    assert f"is a link, and nothing is purged through one; if it is right, give {nginx.cache}" in (
        result.output
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name URLs or keys, or give --match or --regex"),
        (["/a", "--match", "*"], "one of the two"),
        (["/a", "--yes", "--dry-run"], "contradict each other"),
        (["/a", "--key", "b", "--yes"], "all with --key, or all as words"),
        (["/a", "--levels", "1:3", "--yes"], "up to three of 1 or 2"),
        (["/a", "--template", "{uri", "--yes"], "is no template"),
        (["/a", "--owner", "nobody-of-this-name", "--yes"], "there is no such user"),
        (["/a", "--prove", "nginx", "--yes"], "is not where nginx listens"),
        (["/a", "--receipt", "/nonexistent/r", "--yes"], "--receipt /nonexistent/r: No such file"),
    ],
)
def test_a_wrong_order_is_one_line_and_nothing_is_done(
    proxy: Proxy, arguments: list[str], said: str
) -> None:
    nginx = proxy("")
    nginx.fill("/a")
    result = purge(nginx, *arguments)
    assert result.exit_code == 2
    assert said in result.output
    assert len(result.output.splitlines()) == 1
    assert nginx.get("/a").cache == "HIT"


def test_one_known_url_needs_no_scan_and_the_receipt_says_so(
    proxy: Proxy, upstream: Upstream
) -> None:
    nginx = proxy("")
    nginx.fill("/a")
    key = f"http://127.0.0.1:{upstream.port}/a"
    (receipt,) = facts(nginx, "--key", key, "--levels", "1:2", "--yes")["receipts"]  # type: ignore[misc]
    assert receipt["census"] is None
    assert receipt["files"] == 1
    assert "without a scan" in purge(nginx, "--key", key, "--yes").output


def test_all_keys_of_an_order_take_one_scan(proxy: Proxy, upstream: Upstream) -> None:
    upstream.script = lambda path, headers: Answer(b"x", headers={"Vary": "Accept-Encoding"})
    nginx = proxy("")
    for path in ("/1", "/2", "/3"):
        for encoding in ("gzip", "br"):
            nginx.fill(path, {"Accept-Encoding": encoding})
    (receipt,) = facts(nginx, "/1", "/2", "--yes", "--thorough")["receipts"]  # type: ignore[misc]
    assert receipt["files"] == 4
    assert receipt["census"]["entries"] == 6
    assert nginx.get("/3", {"Accept-Encoding": "br"}).cache == "HIT"


def test_patterns_select_by_the_whole_key(proxy: Proxy) -> None:
    nginx = proxy("")
    paths = ("/shop/1", "/shop/2", "/blog/shop")
    for path in paths:
        nginx.fill(path)
    assert purge(nginx, "--match", "*/shop/?", "--yes").exit_code == 0
    assert [nginx.get(path).cache for path in paths] == ["EXPIRED", "EXPIRED", "HIT"]
    assert purge(nginx, "--regex", "/shop$", "--hard", "--yes").exit_code == 0
    assert nginx.get("/blog/shop").cache == "MISS"


def test_entries_of_another_owner_are_refused(proxy: Proxy, upstream: Upstream) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    nginx = proxy("")
    nginx.fill("/a")
    with CacheDir(nginx.cache) as directory:
        (found,) = directory.walk()
    os.chown(nginx.cache / found.path, 65534, 65534)
    result = purge(nginx, "/a", "--yes")
    assert result.exit_code == 2
    assert "it belongs to user id 65534, the cache to 0" in " ".join(result.output.split())
    assert nginx.get("/a").cache == "HIT"
    assert purge(nginx, "/a", "--yes", "--owner", "65534").exit_code == 0


def test_a_receipt_is_written_as_it_happens(proxy: Proxy, tmp_path: Path) -> None:
    nginx = proxy("")
    for path in ("/1", "/2"):
        nginx.fill(path)
    receipt = tmp_path / "receipt.jsonl"
    assert purge(nginx, "--match", "*", "--yes", "--receipt", receipt).exit_code == 0
    lines = [json.loads(line) for line in receipt.read_text().splitlines()]
    assert [line["file"]["action"] for line in lines[:2]] == ["expired", "expired"]
    assert lines[2]["receipt"]["files"] == 2
    assert receipt.stat().st_mode & 0o777 == 0o600
    inside = purge(nginx, "/1", "--yes", "--receipt", nginx.cache / "receipt")
    assert "lies in the cache, where nginx would delete it" in inside.output


def test_a_receipt_that_cannot_be_written_ends_the_purge(tmp_path: Path) -> None:
    for number in range(5):
        store(tmp_path, f"http://a/{number}")
    told: list[Purged] = []

    def full(line: Purged) -> None:
        told.append(line)
        raise OSError(errno.ENOSPC, "no room")

    with CacheDir(tmp_path) as directory, pytest.raises(OSError, match="no room"):
        Purger(directory, each=full).purge_where(lambda entry: True)
    assert len(told) == 1


def test_a_purge_of_many_is_paced_and_bounded_in_memory(tmp_path: Path) -> None:
    for number in range(30):
        store(tmp_path, f"http://a/{number}")
    slept: list[float] = []
    with CacheDir(tmp_path) as directory:
        purger = Purger(directory, files_per_second=100, sleep=slept.append)
        receipt = purger.purge_where(lambda entry: True)
    assert receipt.files == 30
    assert sum(slept) == pytest.approx(0.3)


def test_a_purge_that_takes_too_long_stops_and_says_so(tmp_path: Path) -> None:
    for number in range(5):
        store(tmp_path, f"http://a/{number}")
    with CacheDir(tmp_path) as directory:
        receipt = Purger(directory, give_up_after_s=0).purge_where(lambda entry: True)
    assert not receipt.complete


# -- proof


def test_nginx_proves_every_variant(proxy: Proxy, upstream: Upstream) -> None:
    numbers = count(1)
    upstream.script = lambda path, headers: Answer(
        str(next(numbers)).encode(), headers={"Vary": "Accept-Encoding"}
    )
    nginx = proxy("")
    for encoding in ("gzip", "br", "gzip, deflate, br"):
        nginx.fill("/v", {"Accept-Encoding": encoding})
    found = facts(nginx, "/v", "--yes", "--prove", f"http://127.0.0.1:{nginx.port}")
    proofs = found["proofs"]
    assert isinstance(proofs, list)
    assert [(each["verdict"], each["cache"]) for each in proofs] == [("new", "EXPIRED")] * 3
    assert {each["sent"]["accept-encoding"] for each in proofs} == {
        "gzip",
        "br",
        "gzip, deflate, br",
    }
    assert all("another body" in each["said"] for each in proofs)


def test_a_purge_of_the_wrong_directory_is_not_proven(proxy: Proxy, tmp_path: Path) -> None:
    nginx = proxy("")
    nginx.fill("/a")
    copy = tmp_path / "copy"
    shutil.copytree(nginx.cache, copy)
    result = purge(copy, "/a", "--yes", "--prove", f"http://127.0.0.1:{nginx.port}")
    assert result.exit_code == 2
    assert "OLD" in result.output


def test_without_a_header_the_entry_itself_proves_it(
    start_nginx: StartNginx, upstream: Upstream
) -> None:
    nginx = start_nginx(
        http="proxy_cache_path {cache} keys_zone=z:1m;",
        server=f"location / {{ proxy_pass http://127.0.0.1:{upstream.port}; proxy_cache z;"
        "proxy_cache_valid 1h; }",
    )
    nginx.get("/a")
    assert wait_for(lambda: any(nginx.cache.iterdir()))
    found = facts(nginx, "/a", "--yes", "--hard", "--prove", f"http://127.0.0.1:{nginx.port}")
    (proof,) = found["proofs"]  # type: ignore[misc]
    assert (proof["verdict"], proof["cache"]) == ("new", "")
    assert "stored or revalidated since" in proof["said"]


def test_a_nginx_that_does_not_answer_proves_nothing(proxy: Proxy, closed_port: int) -> None:
    nginx = proxy("")
    nginx.fill("/a")
    result = purge(nginx, "/a", "--yes", "--prove", f"http://127.0.0.1:{closed_port}", "--json")
    (proof,) = told(result, 2)["proofs"]  # type: ignore[misc]
    assert proof["verdict"] == "unknown"
    assert "no answer" in proof["said"]


def test_an_origin_that_does_not_answer_proves_nothing(
    start_nginx: StartNginx, upstream: Upstream
) -> None:
    let_go = threading.Event()
    nginx = keyed(
        start_nginx, upstream, "$request_uri", "proxy_read_timeout 1s; proxy_connect_timeout 1s;"
    )
    where = f"http://127.0.0.1:{nginx.port}"

    def hangs(path: str, headers: Mapping[str, str]) -> Answer:
        let_go.wait(60)
        return Answer(b"")

    for path, stops, status in (("/a", False, 504), ("/b", True, 502)):
        nginx.fill(path)
        upstream.script = hangs
        if stops:
            upstream.stop()
        result = purge(nginx, path, "--yes", "--prove", where, "--json")
        let_go.set()
        upstream.script = lambda path, headers: Answer(b"new")
        (proof,) = told(result, 2)["proofs"]  # type: ignore[misc]
        assert (proof["verdict"], proof["status"]) == ("unknown", status)
        assert "did not answer" in proof["said"]


@pytest.mark.parametrize("key", ["$request_uri", "$uri"])
def test_keys_of_any_bytes_are_proven(
    start_nginx: StartNginx, upstream: Upstream, key: str
) -> None:
    nginx = keyed(start_nginx, upstream, key)
    # As a client may send it: not only ASCII.
    for path in ("/caf\xe9", "/caf\xc3\xa9") + (("/a%20b",) if key == "$uri" else ()):
        fill_raw(nginx, path)
        where = f"http://127.0.0.1:{nginx.port}"
        result = purge(nginx, "--match", "*", "--yes", "--prove", where, "--json")
        proofs = told(result, 0)["proofs"]
        assert isinstance(proofs, list)
        assert {(each["verdict"], each["cache"]) for each in proofs} == {("new", "EXPIRED")}
        while nginx.cache.exists():  # nginx may still store the answer to the proof
            shutil.rmtree(nginx.cache, ignore_errors=True)


def fill_raw(nginx: Nginx, path: str) -> None:
    request = f"GET {path} HTTP/1.0\r\nHost: a\r\n\r\n".encode("latin-1")

    def is_hit() -> bool:
        with socket.create_connection(("127.0.0.1", nginx.port)) as client:
            client.sendall(request)
            return b"HIT" in b"".join(iter(lambda: client.recv(1 << 16), b""))

    assert wait_for(is_hit)


# -- several caches


def test_each_cache_that_is_named_is_purged(tmp_path: Path) -> None:
    caches = [tmp_path / name for name in ("a", "b", "empty", "none")]
    for path in caches:
        path.mkdir()
    for path in caches[:2]:
        store(path, "http://shop.example/x")
    (caches[3] / "note.txt").write_text("no entry")

    def of(*paths: Path) -> list[str]:
        return [word for path in paths for word in ("--cache", str(path))]

    result = run("/x", *of(*caches[:3]), "--yes", "--json")
    receipts = told(result, 0)["receipts"]
    assert isinstance(receipts, list)
    assert [(each["root"], each["files"]) for each in receipts] == [(str(p), 1) for p in caches[:2]]
    assert "empty is empty" in result.stderr
    again = run("/x", *of(*reversed(caches)), "--yes")
    assert again.exit_code == 2, "one refused"
    assert "none is no cache" in again.stderr
    assert again.stdout.count("expired in") == 2


def test_what_was_on_its_way_is_purged_again(proxy: Proxy, upstream: Upstream) -> None:
    nginx = proxy("")
    nginx.fill("/a")
    receipts = facts(nginx, "/a", "--yes", "--again-after", "0.05")["receipts"]
    assert isinstance(receipts, list)
    assert [receipt["files"] for receipt in receipts] == [1, 1]


# -- behind the other protocols


WSGI = """
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("Vary", "Accept-Encoding")])
    return [environ["REQUEST_URI"].encode() + b" " + open({number!r}).read().encode()]
"""


@pytest.fixture
def uwsgi(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """(port, a file whose content each answer has)."""
    program = Path(sys.executable).with_name("pyuwsgi")
    if not program.exists():
        missing("pyuwsgi is not installed")
    number = tmp_path / "number"
    number.write_text("1")
    (tmp_path / "app.py").write_text(WSGI.format(number=str(number)))
    port = free_port()
    process = subprocess.Popen(
        [program, "--socket", f"127.0.0.1:{port}", "--wsgi-file", tmp_path / "app.py",
         "--need-app", "--die-on-term", "--disable-logging"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    yield port, number
    end_process(process)


@every_nginx
@pytest.mark.parametrize("how", [[], ["--hard"]])
def test_uwsgi_responses_are_purged_with_all_variants(
    start_nginx: StartNginx, uwsgi: tuple[int, Path], how: list[str]
) -> None:
    port, number = uwsgi
    nginx = start_nginx(
        http="uwsgi_cache_path {cache} levels=2:2 keys_zone=z:1m;",
        server=f"""location / {{
            uwsgi_pass 127.0.0.1:{port}; include /etc/nginx/uwsgi_params; uwsgi_cache z;
            uwsgi_cache_key $host$request_uri; uwsgi_cache_valid 200 1h;
            add_header X-Cache $upstream_cache_status; }}""",
    )
    assert wait_for(lambda: nginx.get("/up").status == 200)
    sent = [{**HOST, "Accept-Encoding": encoding} for encoding in ("gzip", "br")]
    old = [nginx.fill("/a?b=1", headers).body for headers in sent]
    assert old == [b"/a?b=1 1"] * 2
    number.write_text("2")
    base = f"http://127.0.0.1:{nginx.port}"
    result = purge(nginx, "https://example.com/a?b=1", "--yes", "--prove", base, *how)
    assert result.exit_code == 0, result.output
    assert [nginx.get("/a?b=1", headers).body for headers in sent] == [b"/a?b=1 2"] * 2


def fastcgi_answer(request_id: bytes, text: bytes) -> bytes:
    pieces = [text[:20], text[20:]]  # so that a record ends in the middle of a header
    records = [b"\x01\x06" + request_id + len(p).to_bytes(2) + b"\0\0" + p for p in pieces]
    return (
        b"".join(records)
        + b"\x01\x06"
        + request_id
        + b"\0\0\0\0"
        + (b"\x01\x03" + request_id + b"\0\x08\0\0" + b"\0" * 8)
    )


@pytest.fixture
def fastcgi() -> Iterator[int]:
    """The port of a FastCGI application that says 203 and a header."""
    import socketserver
    import threading

    class Application(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while head := self.rfile.read(8):
                length, padding = int.from_bytes(head[4:6]), head[6]
                self.rfile.read(length + padding)
                if head[1] == 5 and length == 0:  # the end of the request's body
                    text = b"Status: 203 X\r\nContent-Type: text/plain\r\nX-A: one\r\n\r\nbody"
                    self.wfile.write(fastcgi_answer(head[2:4], text))
                    return

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Application)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@every_nginx
def test_a_head_that_fastcgi_cut_into_records_is_read_and_purged(
    start_nginx: StartNginx, fastcgi: int
) -> None:
    nginx = start_nginx(
        http="fastcgi_cache_path {cache} keys_zone=z:1m;",
        server=f"""location / {{
            fastcgi_pass 127.0.0.1:{fastcgi}; fastcgi_param REQUEST_URI $request_uri;
            fastcgi_cache z; fastcgi_cache_key $request_uri; fastcgi_cache_valid any 1h;
            add_header X-Cache $upstream_cache_status always; }}""",
    )
    nginx.fill("/a")
    with CacheDir(nginx.cache) as directory:
        (found,) = directory.walk()
    assert found.entry.head.kind == "fastcgi"
    assert (found.entry.status, found.entry.headers("x-a")) == (203, ["one"])
    assert found.entry.body_size == len(b"body")
    assert purge(nginx, "/a", "--yes").exit_code == 0
    assert nginx.get("/a").cache == "EXPIRED"


def store(directory: Path, key: str) -> None:
    content = made(LAYOUTS[0], key=key.encode(), date=int(time.time()))
    (directory / name_of(key.encode())).write_bytes(content)
