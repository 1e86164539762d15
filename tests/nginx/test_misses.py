"""``nearcache nginx misses``: reasons, URLs and changes, from real traffic and from made lines."""

from __future__ import annotations

from typing import Any

import pytest

from nearcache._core import NginxLog
from nearcache.nginx.config.read.configuration import read_configuration
from nearcache.nginx.config.read.site import Site, parse_location, site_of
from nearcache.nginx.misses.gains import gains
from nearcache.nginx.misses.misses import (
    ADVICE,
    KEY_RULES,
    REASONS,
    SPELLINGS,
    Misses,
    Reason,
    misses,
)
from nearcache.nginx.misses.page import page
from nearcache.nginx.whatif.rules import Today
from nearcache.nginx.whatif.traces import open_trace
from nearcache.report.model import Page
from nearcache.report.plain import lines_of

from .conftest import Nginx, StartNginx, Upstream, wait_for
from .traffic import ask, count_lines, crowd, run, run_json, site, slow

WORDS = (
    "$msec $upstream_cache_status $upstream_response_time $request_time "
    '$request_uri "$upstream_http_cache_control" $cl_set_cookie'
)


def found_in(
    *lines: str,
    site: Site | None = None,
    log_format: str = WORDS,
    today: Today | None = None,
    **rules: Any,
) -> Misses:
    """With ``today`` the changes are replayed."""
    text = "".join(f"{line}\n" for line in lines).encode()
    log = NginxLog(log_format, **rules)
    log.feed(text)
    log.finish()
    site = site or Site()
    if today is None:
        return misses(log.result(), site)
    trace = open_trace(
        log_format, today, site, sample_by=";".join(KEY_RULES.values()), max_requests=100_000
    )
    trace.feed(text)
    trace.finish()
    return misses(log.result(), site, lambda changes: gains(trace, today, changes))


def miss(at: float, path: str, took: float = 1.0, control: str = "", status: str = "MISS") -> str:
    return f'{at:.3f} {status} {took} {took} {path} "{control}" 0'


def hit(at: float, path: str) -> str:
    return f'{at:.3f} HIT - 0.000 {path} "" -'


@pytest.fixture
def nginx(start_nginx: StartNginx, upstream: Upstream) -> Nginx:
    upstream.script = slow
    return site(start_nginx, upstream)


def test_a_real_nginx_has_each_miss_for_its_reason(nginx: Nginx) -> None:
    ask(nginx, ["/a", "/a", "/me", "/me", "/me", "/private", "/private", "/plain/1",
                "/List?b=1&a=2", "/List?a=2&b=1"])  # fmt: skip
    log = nginx.directory / "json.log"
    found = run_json("misses", log, "--config", nginx.configuration)
    reasons = {each["name"]: each["requests"] for each in found["reasons"]}
    assert reasons == {
        "compulsory": 2, "set_cookie": 3, "private": 2, "no_cache_here": 1, "fragmented": 1,
    }  # fmt: skip
    assert found["missed"] == 9
    top = {each["url"]: each for each in found["top"]}
    assert top["/me"]["requests"] == 3
    assert top["/me"]["mostly"] == "set_cookie"
    text = run("misses", log, "--config", nginx.configuration, "--top", 2)
    assert "the response sets a cookie" in text
    assert "What would buy most" in text
    assert "do not set a cookie there" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_real_stampede_is_seen_and_the_lock_is_what_would_help(
    nginx: Nginx, upstream: Upstream
) -> None:
    crowd(nginx, upstream, "/hot", 6)
    log = nginx.directory / "json.log"
    assert wait_for(lambda: count_lines(log) == 6)
    found = run_json("misses", log, "--config", nginx.configuration)
    reasons = {each["name"]: each["requests"] for each in found["reasons"]}
    assert reasons == {"compulsory": 1, "duplicate": 5}
    (change,) = found["changes"]
    assert change["likely"]
    assert "proxy_cache_lock on" in change["do"]
    assert change["gain_requests"] == 5


def test_waits_at_a_lock_for_what_is_never_stored_are_told_as_a_cost(
    start_nginx: StartNginx, upstream: Upstream
) -> None:
    upstream.script = slow
    locked = site(start_nginx, upstream, "proxy_cache_lock on;")
    crowd(locked, upstream, "/me", 3)
    log = locked.directory / "json.log"
    assert wait_for(lambda: count_lines(log) == 3)
    hurt = run_json("report", log, "--config", locked.configuration)["hurt"]
    assert hurt["lock_waits"] >= 1
    assert hurt["lock_wait_s"] >= 0.4
    changes = run_json("misses", log, "--config", locked.configuration)["changes"]
    assert changes[0]["reason"] == "lock_waits"
    assert "out of proxy_cache" in changes[0]["do"]
    assert "of waiting" in run("misses", log)
    assert "That is more than it saves" in run("report", log)


def test_reasons_come_with_the_most_time_first_and_add_up() -> None:
    found = found_in(
        miss(1000, "/a", 0.1),
        miss(1001, "/b", 0.1),
        miss(1002, "/c", 9, "private"),
        hit(1003, "/a"),
    )
    assert [each.name for each in found.reasons] == ["private", "compulsory"]
    assert found.missed == 3
    assert found.upstream_s == pytest.approx(9.2)
    assert sum(each.requests for each in found.reasons) == found.missed


def test_a_removal_by_inactive_is_a_likely_gain_and_a_removal_by_size_is_a_bound() -> None:
    again = [miss(1000, "/a", 1, "max-age=90000"), miss(5000, "/a", 1, "max-age=90000")]
    (change,) = found_in(*again, inactive_s=600, today=Today()).changes
    assert change.reason == "inactive"
    assert change.likely
    assert "inactive=" in change.do
    assert change.gain_s == pytest.approx(1)
    (other,) = found_in(*again, inactive_s=90000).changes
    assert other.reason == "evicted"
    assert not other.likely


def test_without_word_of_cookies_nothing_is_called_an_eviction_that_may_be_a_cookie() -> None:
    lines = ["1000 MISS 1 1 /a", "1010 MISS 1 1 /a"]
    log_format = "$msec $upstream_cache_status $upstream_response_time $request_time $request_uri"
    (change,) = found_in(
        *lines, log_format=log_format, valid_s={"any": 3600.0}, inactive_s=3600
    ).changes
    assert change.reason == "never_stored"
    assert "log the headers" in change.but


def test_no_lock_and_no_larger_cache_is_proposed_for_what_was_never_served() -> None:
    log_format = (
        "$msec $upstream_cache_status $upstream_response_time $request_time $status $request_uri"
    )
    lines = [f"{1000 + n / 4:.3f} MISS 0.5 0.5 200 /me" for n in range(40)]
    found = found_in(*lines, log_format=log_format, valid_s={"200": 3600.0}, inactive_s=3600)
    assert {each.name: each.requests for each in found.reasons} == {
        "compulsory": 1, "duplicate": 2, "never_stored": 37,
    }  # fmt: skip
    assert found.changes[0].reason == "never_stored"


def test_the_gain_of_what_may_not_be_stored_is_bounded_by_its_repeats() -> None:
    lines = [miss(1000 + n, f"/p/{n % 4}", 1, "private") for n in range(16)]
    (change,) = found_in(*lines).changes
    assert change.reason == "private"
    assert not change.likely
    assert change.gain_requests == 12
    assert change.gain_s == pytest.approx(12)
    none = [miss(1000 + n, f"/p/{n}", 1, "private") for n in range(16)]
    assert found_in(*none).changes == []


def test_a_likely_gain_goes_before_a_hope_of_less_than_four_times_its_size() -> None:
    likely = [miss(1000, "/a", 2, "max-age=90000"), miss(5000, "/a", 2, "max-age=90000")]
    hope = [miss(6000 + n, "/p", 1, "private") for n in range(8)]
    first, second = found_in(*likely, *hope, inactive_s=600, today=Today()).changes
    assert (first.reason, second.reason) == ("inactive", "private")
    assert (first.gain_s, second.gain_s) == (pytest.approx(2), pytest.approx(7, rel=0.4))


@pytest.mark.parametrize(
    ("one", "other", "spelling"),
    [
        ("/a?b=1&a=2", "/a?a=2&b=1", "order"),
        ("/Song", "/song", "case"),
        ("/a?utm_source=x", "/a?utm_source=y", "tracking"),
        ("/a?q=%61", "/a?q=a", "encoding"),
    ],
)
def test_every_kind_of_spelling_has_its_rule_for_the_key(
    one: str, other: str, spelling: str
) -> None:
    found = found_in(
        *(miss(1000 + n, path, 1, "max-age=900") for n, path in enumerate([one, other]))
    )
    (change,) = found.changes
    assert change.do == SPELLINGS[spelling]
    assert "same answer" in change.but


HOSTS = "$msec $upstream_cache_status $upstream_response_time $request_time $host $request_uri"


def test_a_url_of_two_hosts_is_two_unless_the_key_has_no_host() -> None:
    lines = [f"{1000 + n} MISS 1 1 {host}.example /x" for n, host in enumerate("aab")]
    apart = found_in(*lines, log_format=HOSTS)
    assert [(each.host, each.requests) for each in apart.top] == [
        ("a.example", 2),
        ("b.example", 1),
    ]
    shown = "\n".join(lines_of(page(apart, 9), 80))
    assert "a.example/x" in shown
    assert "b.example/x" in shown
    one = found_in(*lines, log_format=HOSTS, key_parts=["args"])
    assert [(each.host, each.requests) for each in one.top] == [(None, 3)]
    logged = found_in(*(f"{each} /x" for each in lines), log_format=f"{HOSTS} $cl_key")
    assert [(each.host, each.requests) for each in logged.top] == [(None, 3)]
    alone = found_in(lines[0], log_format=HOSTS)
    assert "a.example" not in "\n".join(lines_of(page(alone, 9), 80))


def test_every_reason_fits_80_columns_beside_its_figures() -> None:
    why = [Reason(name, says, 123_456, 43_200.0) for name, says in REASONS.items()]
    table = next(iter(page(Misses(1, 1, 9.0, why, [], [], "requests"), 0).parts))
    shown = lines_of(Page("", [], [table]), 80)
    assert not [line for line in shown if "…" in line]
    assert all(str(each.says) in "\n".join(shown) for each in why)
    assert "123,456" in shown[-1]


def test_a_lock_that_is_on_holds_back_no_fetch_of_an_expired_copy() -> None:
    lines = [miss(1002, "/a", 2), miss(1003, "/a", 2, status="EXPIRED")]
    (change, *_) = found_in(*lines, site=Site(lock=True)).changes
    assert "use_stale updating" in change.do
    assert "expired copies" in change.but


def test_directives_are_those_of_the_protocol_and_a_lock_that_is_on_is_not_proposed() -> None:
    lines = [miss(1000.5, "/a", 0.5), miss(1000.6, "/a", 0.5)]
    (change,) = found_in(*lines, site=Site(protocol="uwsgi")).changes
    assert "uwsgi_cache_lock on" in change.do
    (change,) = found_in(*lines, site=Site(protocol="uwsgi", lock=True)).changes
    assert "uwsgi_cache_lock_timeout" in change.do


def test_without_times_requests_are_counted() -> None:
    log_format = "$upstream_cache_status $request_uri $msec"
    found = found_in("MISS /a 1000", "HIT /a 1001", log_format=log_format)
    assert found.ranked_by == "requests"
    assert found.upstream_s is None
    assert found.top[0].upstream_s is None


def test_without_a_cache_status_nothing_is_called_a_miss() -> None:
    found = found_in("/a 200", "/a 200", log_format="$request_uri $status")
    assert found.missed is None
    assert found.changes == []
    text = "\n".join(lines_of(page(found, 5), 80))
    assert text.startswith("This log does not say what came from the cache")
    assert "/a" in text


def test_a_cache_that_answers_everything_misses_nothing() -> None:
    found = found_in(hit(1000, "/a"))
    assert "Nothing was missed" in lines_of(page(found, 5), 80)[0]


def test_every_advice_is_for_a_reason_that_there_is() -> None:
    assert set(ADVICE) <= set(REASONS)


# -- what the configuration tells

CONFIGURATION = """
http {
    uwsgi_cache_path /var/cache/a levels=1:2 keys_zone=a:1m inactive=2h;
    log_format j '$msec $request_uri';
    access_log /var/log/nginx/a.log j;
    server {
        server_name one.example;
        location / {
            uwsgi_pass 127.0.0.1:1; uwsgi_cache a; uwsgi_cache_key $my_key;
            uwsgi_cache_valid 5m; uwsgi_cache_valid any 1s; uwsgi_cache_lock on;
        }
        location ~ \\.png$ { root /srv; }
        location @other { return 404; }
    }
    server { server_name two.example; location /two { proxy_pass http://127.0.0.1:2; } }
}
"""


def test_a_configuration_says_how_its_cache_works() -> None:
    found = site_of(read_configuration(CONFIGURATION), "one.example")
    assert found.protocol == "uwsgi"
    assert found.cache_name == "uwsgi_cache"
    assert found.key_variable == "my_key"
    assert found.inactive_s == 7200
    assert found.valid_s == {"200": 300.0, "301": 300.0, "302": 300.0, "any": 1.0}
    assert found.lock is True
    assert found.locations == (("", "/"), ("~", r"\.png$"))
    assert found.logs == ("/var/log/nginx/a.log",)
    other = site_of(read_configuration(CONFIGURATION), "www.one.example")
    assert "no server_name" in other.notes[0]
    both = site_of(read_configuration(CONFIGURATION))
    assert ("", "/two") in both.locations
    assert "2 servers" in both.notes[0]


@pytest.mark.parametrize(
    ("key", "passes", "has_host"),
    [
        ("", "http://app", False),  # $scheme$proxy_host$request_uri: nginx's default
        ("proxy_cache_key $scheme$request_uri;", "http://app", False),
        ("proxy_cache_key $scheme$host$request_uri;", "http://app", True),
        ("proxy_cache_key $my;", "http://app", True),
        ("", "http://$host", True),
    ],
)
def test_whether_hosts_share_entries_is_in_the_key(key: str, passes: str, has_host: bool) -> None:
    text = f"""http {{ proxy_cache_path /c keys_zone=z:1m; map $host $my {{ a.example 1; }}
        server {{ server_name a.example b.example; proxy_cache z;
                  location / {{ proxy_pass {passes}; {key} }} }} }}"""
    found = site_of(read_configuration(text))
    assert ("host" in found.key_parts[0]) is has_host
    assert any("no host" in note for note in found.notes) is not has_host


def test_a_location_is_written_as_in_nginx() -> None:
    assert parse_location("/api/") == ("", "/api/")
    assert parse_location("= /") == ("=", "/")
    assert parse_location(r"~* \.(png|jpg)$") == ("~*", r"\.(png|jpg)$")
    with pytest.raises(Exception, match="none of"):
        parse_location("like /x")
