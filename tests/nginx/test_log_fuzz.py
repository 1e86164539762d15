"""No bytes break the log pass, whatever they claim to be, and its sums always add up."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nearcache._core import NginxLog
from nearcache.errors import NginxError

FORMAT = (
    '$msec $request_time "$upstream_response_time" $upstream_cache_status "$request" $status '
    '"$upstream_http_cache_control"'
)
OPTIONS: dict[str, Any] = {
    "locations": [("=", "/"), ("^~", "/a"), ("~*", r"(a|b)+\.js$"), ("~", "(?!x)y")],
    "groups": [("q=(.+)+&", "q")],
    "argument": "q",
    "ttl_s": 60,
    "inactive_s": 600,
    "max_keys": 5,
    "max_groups": 3,
}

numbers = st.one_of(
    st.integers(0, 10**20).map(str),
    st.floats(0, 2000, allow_nan=False).map(lambda number: f"{number:.3f}"),
    st.sampled_from(["-", "", "0.1, 0.2 : -", "99999999999999999999.999"]),
)
statuses = st.sampled_from(
    ["HIT", "MISS", "EXPIRED", "STALE", "UPDATING", "REVALIDATED", "BYPASS", "-", "NEW"]
)
targets = st.text("/ab.?&=q%41+\\x%-", max_size=20).map("/".__add__)
headers = st.sampled_from(["-", "max-age=60", "max-age=", "private", "s-maxage=99999999999999"])


@st.composite
def lines(draw: st.DrawFn) -> str:
    return (
        f'{draw(numbers)} {draw(numbers)} "{draw(numbers)}" {draw(statuses)} '
        f'"GET {draw(targets)} HTTP/1.1" {draw(numbers)} "{draw(headers)}"'
    )


logs = st.one_of(
    st.binary(max_size=300),
    st.lists(lines(), max_size=20).map(lambda found: "\n".join(found).encode()),
    st.lists(st.one_of(lines(), st.text(max_size=30)), max_size=20).map(
        lambda found: "\n".join(found).encode("utf-8", "surrogatepass")
    ),
)


def read(log_format: str, chunks: list[bytes]) -> Any:
    log = NginxLog(log_format, **OPTIONS)
    for chunk in chunks:
        log.feed(chunk)
    log.finish()
    return log.result()


def cut(log: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(log) + 1) for place in at), len(log)]
    return [log[begin:end] for begin, end in pairwise(edges)]


@settings(max_examples=300, deadline=None)
@given(log=logs, log_format=st.sampled_from([FORMAT, "combined", "json"]))
def test_sums_add_up_whatever_is_read(log: bytes, log_format: str) -> None:
    result = read(log_format, [log])
    records = result["lines"] - result["bad"]
    for name in ("locations", "groups", "hours"):
        assert sum(part["requests"] for part in result[name]) == records, name
    assert result["total"]["requests"] == records
    statuses = result["total"]["statuses"].values()
    assert sum(status["requests"] for status in statuses) == records
    assert result["lengths"]["requests"] + result["lengths"]["absent"] == records
    assert result["total"]["cacheable"] <= records
    assert all(0 <= top["group"] < len(result["groups"]) for top in result["top"])
    assert result["keys"]["kept"] <= OPTIONS["max_keys"]


@settings(max_examples=150, deadline=None)
@given(log=logs, at=st.lists(st.integers(0, 10_000), max_size=6))
def test_where_bytes_are_cut_changes_nothing(log: bytes, at: list[int]) -> None:
    assert read(FORMAT, cut(log, at)) == read(FORMAT, [log])


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=60), log=st.binary(max_size=100))
def test_any_format_reads_or_is_refused(text: str, log: bytes) -> None:
    with suppress(NginxError):
        found = NginxLog(text)
        found.feed(log)
        found.finish()
        assert found.result()["lines"] >= found.result()["bad"]


@settings(max_examples=200, deadline=None)
@given(pattern=st.text(max_size=30), log=st.lists(lines(), max_size=5))
def test_any_pattern_matches_or_is_refused(pattern: str, log: list[str]) -> None:
    with suppress(NginxError):
        found = NginxLog(FORMAT, locations=[("~", pattern)], groups=[(pattern, "x")])
        found.feed("\n".join(log).encode())
        found.finish()
        assert found.result()["lines"] <= len(log)
