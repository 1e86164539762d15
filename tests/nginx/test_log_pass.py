"""The log pass: what a real nginx logs is understood, and bytes may come as they like.

What each reason for a miss means is in crates/nearcache-nginx/tests/pass.rs.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from nearcache._core import NginxLog
from nearcache.errors import NginxError

from .conftest import Answer, Nginx, StartNginx, Upstream, wait_for
from .traffic import STATUS, crowd, slow

COMBINED = '10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET {target} HTTP/1.1" 200 12 "-" "agent"\n'
FULL = (
    '$msec $request_time "$upstream_response_time" $upstream_cache_status "$request" $status '
    '$body_bytes_sent $host "$upstream_http_cache_control" "$upstream_http_expires" '
    '"$upstream_http_x_accel_expires" "$upstream_http_vary" "$upstream_http_set_cookie" '
    '"$http_accept_encoding" "$http_authorization"'
)


def read(log_format: str, log: bytes | str, **options: Any) -> Any:
    nginx_log = NginxLog(log_format, **options)
    nginx_log.feed(log.encode() if isinstance(log, str) else log)
    nginx_log.finish()
    return nginx_log.result()


def requests_by(sums: dict[str, Any]) -> dict[str, int]:
    return {name: found["requests"] for name, found in sums.items()}


# A real nginx


class Site:
    """nginx with a cached location and a log that says everything."""

    def __init__(self, start_nginx: StartNginx, upstream: Upstream, lines: str = "") -> None:
        self.nginx: Nginx = start_nginx(
            http=f"""
                proxy_cache_path {{cache}} levels=1:2 keys_zone=z:1m inactive=1h;
                log_format full '{FULL}';""",
            server=f"""
                access_log full.log full;
                location / {{
                    proxy_pass http://127.0.0.1:{upstream.port};
                    proxy_cache z;
                    proxy_cache_valid 200 1h;
                    proxy_cache_bypass $http_authorization;
                    add_header X-Cache $upstream_cache_status always;
                    {lines}
                }}
                location /plain/ {{ proxy_pass http://127.0.0.1:{upstream.port}; }}
                {STATUS}""",
        )
        self.asked = 0

    def get(self, path: str, headers: dict[str, str] | None = None, method: str = "GET") -> Answer:
        self.asked += 1
        return self.nginx.get(path, headers, method)

    def result(self) -> Any:
        log = self.nginx.directory / "full.log"
        lines = lambda: log.read_bytes().count(b"\n")  # noqa: E731
        assert wait_for(lambda: lines() >= self.asked), f"{lines()} of {self.asked} are logged"
        return read(
            FULL,
            log.read_bytes(),
            locations=[("", "/"), ("", "/plain/")],
            ttl_s=3600,
            inactive_s=3600,
        )


def answers(path: str, _headers: Any) -> Answer:
    headers = {
        "/private": {"Cache-Control": "private"},
        "/cookie": {"Set-Cookie": "a=b"},
        "/varied": {"Vary": "Accept-Encoding"},
        "/never": {"Expires": "Thu, 01 Jan 1970 00:00:00 GMT"},
    }
    return Answer(b"hello", 404 if path == "/gone" else 200, headers.get(path.split("?")[0], {}))


def test_what_a_real_nginx_logs_is_understood(start_nginx: StartNginx, upstream: Upstream) -> None:
    upstream.script = answers
    site = Site(start_nginx, upstream)
    for path in ("/private", "/cookie", "/never", "/gone", "/plain/1"):
        site.get(path)
    site.get("/varied", {"Accept-Encoding": "gzip"})
    site.get("/varied", {"Accept-Encoding": "br"})
    site.get("/s?a=1&b=2")
    site.get("/s?b=2&a=1")
    site.get("/s?b=2&a=1", {"Authorization": "Basic x"})
    assert site.get("/s?a=1&b=2").cache == "HIT"
    result = site.result()
    assert requests_by(result["total"]["why"]) == {
        "compulsory": 2, "private": 1, "set_cookie": 1, "no_ttl": 1, "status": 1, "variant": 1,
        "fragmented": 1, "authorization": 1, "no_cache_here": 1,
    }  # fmt: skip
    assert requests_by(result["spellings"]) == {"order": 1}
    assert requests_by(result["total"]["statuses"]) == {"-": 1, "MISS": 8, "HIT": 1, "BYPASS": 1}
    assert [place["requests"] for place in result["locations"]] == [10, 1, 0]
    assert (result["bad"], result["lines"]) == (0, site.asked)
    assert result["total"]["cacheable"] == 5
    assert result["fetch_from"] == "upstream_time"
    assert result["keys"]["text"] == "host+uri"


def test_an_entry_that_was_removed_was_evicted_for_all_the_log_says(
    start_nginx: StartNginx, upstream: Upstream
) -> None:
    site = Site(start_nginx, upstream)
    site.get("/a")
    files = lambda: [path for path in site.nginx.cache.rglob("?" * 32) if path.is_file()]  # noqa: E731
    assert wait_for(lambda: len(files()) == 1)
    files()[0].unlink()
    assert site.get("/a").cache == "MISS"
    assert requests_by(site.result()["total"]["why"]) == {"compulsory": 1, "evicted": 1}


def test_a_stampede_is_seen(start_nginx: StartNginx, upstream: Upstream) -> None:
    site = Site(start_nginx, upstream)
    upstream.script = slow
    crowd(site.nginx, upstream, "/slow", 3)
    site.asked += 3
    total = site.result()["total"]
    assert requests_by(total["why"]) == {"compulsory": 1, "duplicate": 2}
    assert total["why"]["duplicate"]["upstream_us"] > 0
    assert total["lock_waits"]["requests"] == 0


def test_waiting_for_the_lock_is_seen(start_nginx: StartNginx, upstream: Upstream) -> None:
    site = Site(start_nginx, upstream, "proxy_cache_lock on;")
    upstream.script = slow
    crowd(site.nginx, upstream, "/slow", 3)
    site.asked += 3
    total = site.result()["total"]
    assert requests_by(total["statuses"]) == {"MISS": 1, "HIT": 2}
    assert total["lock_waits"]["requests"] == 2
    assert total["lock_waits"]["waited_us"] > 0


# Bytes


def shown(result: Any) -> Any:
    return {name: value for name, value in result.items() if name != "bytes_read"}


def test_any_buffer_will_do_and_none_is_kept(tmp_path: Path) -> None:
    line = COMBINED.format(target="/a").encode()
    path = tmp_path / "access.log"
    path.write_bytes(line)
    log = NginxLog("combined")
    changing = bytearray(line)
    log.feed(line)
    log.feed(changing)
    changing[:] = b"x" * len(changing)
    log.feed(memoryview(line))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        log.feed(mapped)
    assert (log.result()["lines"], log.result()["bad"]) == (4, 0)
    with pytest.raises((TypeError, BufferError)):
        log.feed("text")  # type: ignore[arg-type]


def test_the_last_line_may_lack_its_newline() -> None:
    log = NginxLog("combined")
    log.feed(COMBINED.format(target="/a").encode().rstrip())
    assert log.result()["lines"] == 0
    log.finish()
    assert (log.result()["lines"], log.result()["bad"]) == (1, 0)


def test_bad_lines_are_counted_and_shown_and_good_ones_beside_them_count() -> None:
    good = COMBINED.format(target="/a")
    result = read("combined", good + "nonsense \xff\n" + good + "\n" * 3 + "x\n" * 10)
    assert (result["lines"], result["bad"], result["total"]["requests"]) == (13, 11, 2)
    assert result["bad_examples"][0] == (2, "nonsense ÿ")
    assert len(result["bad_examples"]) == 5


def test_a_format_says_what_it_does_not_tell() -> None:
    result = read("combined", COMBINED.format(target="/a"))
    assert (result["says"]["uri"], result["says"]["cache_status"]) == (True, False)
    assert result["fetch_from"] is None
    assert requests_by(result["total"]["statuses"]) == {"": 1}
    assert requests_by(result["total"]["why"]) == {"unknown": 1}
    assert result["total"]["cacheable"] == 0
    assert result["ranked_by"] == "requests"


def test_a_result_can_be_asked_for_while_others_feed() -> None:
    log = NginxLog("combined")
    chunk = COMBINED.format(target="/a").encode() * 2000
    feeders = [
        threading.Thread(target=lambda: [log.feed(chunk) for _ in range(20)]) for _ in range(3)
    ]
    for feeder in feeders:
        feeder.start()
    seen = 0
    while any(feeder.is_alive() for feeder in feeders):
        now = log.result()["total"]["requests"]
        assert now >= seen
        seen = now
    assert log.result()["total"]["requests"] == 3 * 20 * 2000


# Options


@pytest.mark.parametrize(
    "options",
    [
        {"locations": [("@", "named")]},
        {"locations": [("~", "(")]},
        {"groups": [("(", "x")]},
        {"valid_s": {"two": 1}},
        {"ignore_headers": ["Accept"]},
    ],
)
def test_what_cannot_be_used_says_so(options: dict[str, Any]) -> None:
    with pytest.raises(NginxError):
        NginxLog("combined", **options)


@pytest.mark.parametrize("log_format", ["", "no variables", "$status$request", "$remote_addr x"])
def test_formats_that_cannot_be_read_say_so(log_format: str) -> None:
    with pytest.raises(NginxError):
        NginxLog(log_format)


def test_numbers_that_make_no_sense_are_refused_or_harmless() -> None:
    for options in (
        {"argument": "q", "path_part": 1},
        {"inactive_s": float("nan")},
        {"ttl_s": -1.0},
    ):
        with pytest.raises(ValueError, match="not"):
            NginxLog("combined", **options)  # type: ignore[arg-type]
    result = read("combined", COMBINED.format(target="/a"), max_keys=0, max_groups=0)
    assert [group["name"] for group in result["groups"]] == ["(other)"]


def test_urls_are_grouped_by_shape_rules_first() -> None:
    targets = ["/song/1/amazon", "/song/2/amazon", "/s?q=a&utm_source=b", "/s?q=c", "/api/x"]
    log = "".join(COMBINED.format(target=target) for target in targets)
    result = read("combined", log, groups=[("^/api/", "the api")], max_groups=3)
    names = {group["name"]: group["requests"] for group in result["groups"]}
    assert names == {"/song/<n>/amazon": 2, "/s?q": 2, "the api": 1}


# Lengths: the report of the seed


def test_lengths_give_the_sums_of_the_seed() -> None:
    """90,870 queries of at most nine characters, and 144,097 that are longer."""
    short, rest = 90_870, 144_097
    lines = [COMBINED.format(target=f"/ac?q={'x' * (1 + i % 9)}") for i in range(short)]
    lines += [COMBINED.format(target=f"/ac?q={'y' * (10 + i % 30)}&x=1") for i in range(rest)]
    lines += [COMBINED.format(target="/ac"), COMBINED.format(target="/other?q=a")]
    lengths = read("combined", "".join(lines), argument="q", under="/ac")["lengths"]
    assert sum(n for length, n, *_ in lengths["by_length"] if length <= 9) == short
    assert sum(n for length, n, *_ in lengths["by_length"] if length > 9) == rest
    assert (lengths["requests"], lengths["absent"], lengths["distinct"]) == (short + rest, 1, 39)


def test_lengths_are_of_characters_as_typed() -> None:
    values = ["caf%C3%A9", "a+b", "%F0%9F%8E%B5", "", "100%25"]
    log = "".join(COMBINED.format(target=f"/?q={value}") for value in values)
    by_length = read("combined", log, argument="q")["lengths"]["by_length"]
    assert [(length, n) for length, n, *_ in by_length] == [(0, 1), (1, 1), (3, 1), (4, 2)]
    assert read("combined", log)["lengths"] is None


# Memory


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * mmap.PAGESIZE


def unlike(first: int, count: int) -> Iterable[str]:
    """Lines that share nothing which a table could be keyed by."""
    for i in range(first, first + count):
        yield (
            f'{1_000_000 + i}.5 0.1 "0.{i % 1000:03}" MISS '
            f'"GET /{i:x}z/w{i}?q={i}&a{i}=b HTTP/1.1" '
            f'200 5 h{i} "max-age={i}" "-" "-" "-" "-" "-" "-"\n'
        )


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_memory_does_not_grow_with_the_lines() -> None:
    log = NginxLog(FULL, argument="q", max_keys=50_000, max_groups=1000)

    def feed(first: int, count: int) -> int:
        for begin in range(first, first + count, 20_000):
            log.feed("".join(unlike(begin, 20_000)).encode())
        return resident_bytes()

    settled = feed(0, 400_000)
    grown = feed(400_000, 600_000) - settled
    result = log.result()
    assert (result["lines"], result["bad"]) == (1_000_000, 0)
    assert result["keys"]["rate"] < 1
    assert 0.8 < result["keys"]["distinct"] / 1_000_000 < 1.2
    assert grown < 25_000_000, f"{grown:,} bytes"
