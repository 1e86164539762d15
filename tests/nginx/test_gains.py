"""What changes are said to save, against an nginx that has them."""

from __future__ import annotations

import random

import pytest

from nearcache.nginx.config.read.site import Site
from nearcache.nginx.keys.groups import is_tracking
from nearcache.nginx.misses.gains import both, gains
from nearcache.nginx.misses.misses import KEY_RULES, TRACKING
from nearcache.nginx.whatif.rules import Change, Place, Today
from nearcache.nginx.whatif.traces import open_trace

from .conftest import Answer, Nginx, StartNginx, Upstream, wait_for
from .spellings import map_of, spelled
from .traffic import count_lines, run, run_json

FORMAT = (
    "$msec $request_time $upstream_response_time $upstream_cache_status $status $body_bytes_sent "
    "$request_method $request_uri $upstream_http_cache_control $upstream_http_set_cookie"
)
RULES = {"tracking": KEY_RULES["tracking"], "case": KEY_RULES["case"]}
DO = {"tracking": "leave utm_*", "case": "spell the key in lower case"}


def answered(start_nginx: StartNginx, upstream: Upstream, paths: list[str], rules: str) -> Nginx:
    """An nginx with keys by these rules that has logged all of these requests."""
    nginx = start_nginx(
        http="proxy_cache_path {cache} levels=1:2 keys_zone=z:1m inactive=1h;"
        f"map_hash_bucket_size 512; {map_of(paths, rules, 'made')} log_format all '{FORMAT}';",
        server=f"""access_log all.log all;
            location / {{
                proxy_pass http://127.0.0.1:{upstream.port}; proxy_cache z;
                proxy_cache_key $made; proxy_cache_valid 200 1h;
                add_header X-Cache $upstream_cache_status always;
            }}""",
    )
    for path in paths:
        nginx.get(path)
    assert wait_for(lambda: count_lines(nginx.directory / "all.log") == len(paths))
    return nginx


def test_what_changes_would_save_is_what_an_nginx_with_them_fetches_less(
    start_nginx: StartNginx, upstream: Upstream
) -> None:
    upstream.script = lambda path, headers: Answer(b"x" * 300)
    chance = random.Random(5)
    paths = [spelled(chance, min(int(chance.paretovariate(0.8)), 60)) for _ in range(500)]

    def fetches(rules: str) -> int:
        before = len(upstream.asked)
        answered(start_nginx, upstream, paths, rules)
        return len(upstream.asked) - before

    before = len(upstream.asked)
    today = answered(start_nginx, upstream, paths, "")
    now = len(upstream.asked) - before
    real = {name: now - fetches(rules) for name, rules in RULES.items()}
    together = now - fetches(",".join(RULES.values()))
    assert together < sum(real.values()), "they overlap"

    log = today.directory / "all.log"
    options = (log, "--format", FORMAT, "--config", today.configuration)
    changes = run_json("misses", *options)["changes"]
    found = {name: each for each in changes for name, do in DO.items() if each["do"].startswith(do)}
    assert all(each["likely"] for each in found.values())
    for name, each in found.items():
        assert each["alone"]["requests"] == pytest.approx(real[name], abs=3), name
    first, second = (each for each in changes if each in found.values())
    assert first["gain_requests"] == first["alone"]["requests"]
    assert second["gain_requests"] < second["alone"]["requests"]
    total = first["gain_requests"] + second["gain_requests"]
    assert total == pytest.approx(together, abs=3)
    text = run("misses", *options)
    assert "more (alone" in text


FEW = "$msec $request_time $upstream_response_time $upstream_cache_status $status $request_uri"


def gained(lines: list[str], today: Today, **changes: Change) -> dict[str, tuple[int, int]]:
    sample_by = ";".join(each.key for each in changes.values() if each.key)
    trace = open_trace(FEW, today, Site(), sample_by=sample_by, max_requests=10_000)
    trace.feed("".join(f"{line}\n" for line in lines).encode())
    trace.finish()
    found = gains(trace, today, changes)
    assert found is not None
    return {each.name: (each.alone.requests, each.more.requests) for each in found}


HOUR = Today(places=(Place(valid=((200, 3600),)),))


def test_fetches_that_two_changes_save_count_once() -> None:
    targets = ["/s?q=a", "/s?q=A", "/s?q=a&utm_x=1", "/s?q=A&utm_x=1", "/s?q=a&utm_x=2"]
    lines = [f"{1000 + n} 0.1 0.1 MISS 200 {each}" for n, each in enumerate(targets)]
    found = gained(lines, HOUR, case=Change(key="lower"), drop=Change(key="drop=utm_*"))
    assert found == {"drop": (3, 3), "case": (2, 1)}
    assert sum(more for _, more in found.values()) == 4


def test_what_saves_nothing_is_not_proposed() -> None:
    lines = [f"{1000 + n} 0.1 0.1 MISS 200 /{n}" for n in range(5)]
    assert gained(lines, HOUR, case=Change(key="lower")) == {}


def test_nothing_is_said_where_the_model_is_not_like_the_log() -> None:
    trace = open_trace(FEW, HOUR, Site(), max_requests=10_000)
    statuses = [b"EXPIRED", b"HIT"] * 150  # of a lifetime that is no hour
    trace.feed(b"".join(b"%d 0.1 0.1 %s 200 /a\n" % (1000 + n, s) for n, s in enumerate(statuses)))
    trace.finish()
    assert gains(trace, HOUR, {"case": Change(key="lower")}) is None


def test_changes_together_have_what_each_has() -> None:
    one, other = Change(key="lower", lock=True), Change(key="strip", inactive_s=9.0)
    assert both(one, other) == Change(key="lower,strip", lock=True, inactive_s=9.0)
    assert both(Change(), one) == one


def test_tracking_is_what_the_log_pass_takes_for_it() -> None:
    names = [name.replace("*", "x") for name in TRACKING.split("|")]
    assert all(is_tracking(f"{name}=1") for name in names)
    assert not is_tracking("q=1")
