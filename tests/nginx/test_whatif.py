"""whatif: the model is tested before it is believed, and what it says can be read."""

from __future__ import annotations

import json
import math
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from click.testing import CliRunner, Result

from nearcache._core import NginxKeyRules, NginxTrace
from nearcache.cli import main
from nearcache.errors import NginxError
from nearcache.nginx.config.read.configuration import read_configuration
from nearcache.nginx.django.arguments import spelled
from nearcache.nginx.keys.spelling import parse_spelling
from nearcache.nginx.whatif.forecast import Question, sampling_error, whatif
from nearcache.nginx.whatif.origin import change_rate, outdated_share
from nearcache.nginx.whatif.page import bound
from nearcache.nginx.whatif.rules import (
    Axes,
    Change,
    Frame,
    Place,
    Subject,
    Today,
    replay_rules,
    size_of,
    time_of,
    today_of,
    with_options,
)

FORMAT = (
    "$msec $request_time $upstream_response_time $upstream_cache_status $status "
    "$body_bytes_sent $request_method $request_uri"
)
BEGIN_S = 1_700_000_000.0


def ask(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["nginx", "whatif", *map(str, arguments)])


def asked(*arguments: object) -> dict[str, Any]:
    result = ask(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def line(at_s: float, status: str, target: str, size: int = 1000, took_s: float = 0.0) -> str:
    fetch = f"{took_s:.3f}" if status in ("MISS", "EXPIRED") else "-"
    return f"{BEGIN_S + at_s:.3f} {took_s:.3f} {fetch} {status} 200 {size} GET {target}\n"


def made_log(
    path: Path,
    *,
    ttl_s: int = 60,
    requests: int = 4000,
    keys: int = 100,
    span_s: float = 1200,
    later_s: float = 0.0,
) -> Path:
    """What an nginx with this lifetime and nothing else in the way would log."""
    chance = random.Random(7)
    valid_s: dict[int, int] = {}
    lines = []
    for at_s in sorted(later_s + chance.uniform(0, span_s) for _ in range(requests)):
        key = min(int(chance.paretovariate(0.8)), keys)
        now_s = math.floor(BEGIN_S + round(at_s, 3))
        status = "MISS" if key not in valid_s else "HIT" if now_s <= valid_s[key] else "EXPIRED"
        if status != "HIT":
            valid_s[key] = now_s + ttl_s
        lines.append(line(at_s, status, f"/s?q={'x' * (key % 13)}&n={key}"))
    path.write_text("".join(lines))
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return made_log(tmp_path / "access.log")


def test_the_model_reproduces_the_log_and_forecasts(log: Path) -> None:
    found = asked(
        log,
        "--format",
        FORMAT,
        "--inactive-now",
        "1d",
        "--ttl-now",
        "60s",
        "--ttl",
        "5s,10m",
        "--inactive",
        "1h",
    )
    assert found["backtest"]["agreement"] == 1.0
    assert found["backtest"]["error"] == 0.0
    today = found["today"]["hit_ratio"]
    by_name = {each["name"]: each for each in found["forecasts"]}
    assert by_name["ttl 5s"]["hit_ratio"] < today < by_name["ttl 10m"]["hit_ratio"]
    errors = {name: each["error"] for name, each in by_name.items()}
    # The less is fetched again, the less can two runs differ.
    assert 0.0 < errors["ttl 10m"] < errors["ttl 5s"] < 0.02
    assert len(found["forecasts"]) == 5  # three alone, two together


def test_a_forecast_is_what_a_log_under_these_rules_shows(tmp_path: Path) -> None:
    now = made_log(tmp_path / "now.log", ttl_s=60)
    then = made_log(tmp_path / "then.log", ttl_s=5)
    forecast = asked(
        now, "--format", FORMAT, "--inactive-now", "1d", "--ttl-now", "60s", "--ttl", "5s"
    )["forecasts"][0]
    logged = asked(
        then, "--format", FORMAT, "--inactive-now", "1d", "--ttl-now", "5s", "--ttl", "9s"
    )["backtest"]
    assert forecast["hit_ratio_all"] == logged["logged_all"]


@pytest.mark.parametrize("ttl_s", [2, 5])
def test_the_error_holds_how_far_runs_of_one_load_differ(tmp_path: Path, ttl_s: int) -> None:
    now = made_log(tmp_path / "now.log", ttl_s=60)
    found = asked(
        now, "--format", FORMAT, "--inactive-now", "1d", "--ttl-now", "60s", "--ttl", f"{ttl_s}s"
    )
    (forecast,) = found["forecasts"]
    assert found["backtest"]["error"] == 0.0
    apart = []
    for part in range(20):
        log = made_log(tmp_path / "then.log", ttl_s=ttl_s, later_s=part / 20)
        statuses = [line.split()[3] for line in log.read_text().splitlines()]
        apart.append(abs(statuses.count("HIT") / len(statuses) - forecast["hit_ratio_all"]))
    assert max(apart) > 0.0005, "they do differ"
    assert sum(each <= forecast["error"] for each in apart) >= 19


def test_an_error_is_never_shown_as_nothing() -> None:
    assert [bound(error) for error in (0.0, 0.0004, 0.001, 0.0011, 0.03)] == [
        "0.1", "0.1", "0.1", "0.2", "3.0",
    ]  # fmt: skip


def test_a_bad_back_test_refuses_to_forecast(log: Path) -> None:
    result = ask(log, "--format", FORMAT, "--inactive-now", "1d", "--ttl-now", "1s", "--ttl", "1h")
    assert result.exit_code == 1
    assert "No forecasts: the model does not reproduce this log" in " ".join(result.output.split())
    assert "What it brings" not in result.output
    assert "logged HIT modelled EXPIRED" in " ".join(result.output.split())
    anyway = ask(
        log,
        "--format",
        FORMAT,
        "--inactive-now",
        "1d",
        "--ttl-now",
        "1s",
        "--ttl",
        "1h",
        "--anyway",
    )
    assert anyway.exit_code == 0
    assert "What it brings" in anyway.output


def test_without_cache_status_nothing_is_forecast_unless_asked(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_text(
        "".join(
            f'1.2.3.4 - - [17/May/2015:10:{n // 60:02}:{n % 60:02} +0000] "GET /{n % 9} HTTP/1.1" '
            '200 12 "-" "x"\n'
            for n in range(600)
        )
    )
    refused = ask(log, "--ttl", "1m")
    assert refused.exit_code == 1
    assert "the log has no cache status" in " ".join(refused.output.split())
    found = asked(log, "--ttl", "1m", "--anyway")
    assert found["forecasts"][0]["error"] is None
    assert found["forecasts"][0]["saved_s"] is None, "nobody knows what a fetch takes"
    assert found["forecasts"][0]["hit_ratio"] > 0.8
    assert any("every 200, 301 and 302" in each for each in found["assumed"])


def test_too_few_requests_test_nothing(tmp_path: Path) -> None:
    log = made_log(tmp_path / "access.log", requests=100)
    result = ask(log, "--format", FORMAT, "--inactive-now", "1d", "--ttl-now", "60s", "--ttl", "1h")
    assert result.exit_code == 1
    assert "are too few to test the model" in " ".join(result.output.split())


def test_the_page_fits_80_columns(log: Path) -> None:
    result = ask(
        log, "--format", FORMAT, "--inactive-now", "1d", "--ttl-now", "60s", "--ttl", "1h,24h",
        "--max-size", "34MB,1GB", "--key", "lower,strip,sort-args,drop=utm_*", "--max-length", "9",
        "--min-uses", "2",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert max(map(len, result.output.splitlines())) <= 80
    assert "Back-test: nginx answered" in result.output


def test_a_rule_for_keys_counts_what_it_merges(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    spellings = [
        "/s?q=Abba",
        "/s?q=abba",
        "/s?q=+abba",
        "/s?utm_source=x&q=abba",
        "/s?q=abba&utm_x",
    ]
    log.write_text(
        "".join(line(n, "MISS", spellings[n]) for n in range(5))
        + "".join(line(5 + n, "HIT", spellings[n % 5]) for n in range(400))
    )
    found = asked(
        log, "--format", FORMAT, "--inactive-now", "1d", "--ttl-now", "1h",
        "--key", "lower,strip,drop=utm_*", "--key", "lower", "--anyway",
    )  # fmt: skip
    merged = {each["name"]: (each["merged_keys"], each["fetches"]) for each in found["forecasts"]}
    assert merged["key lower,strip,drop=utm_*"] == (4, 1)
    assert merged["key lower"] == (1, 4)
    assert found["today"]["fetches"] == 5


@pytest.mark.parametrize("rules", ["keep=q|page", "drop=utm_*|fbclid", "lower,strip,sort-args"])
def test_rules_mean_what_they_mean_in_the_configuration_that_is_written(rules: str) -> None:
    query = "q=+ABBA&page=2&q=b&utm_x=1&fbclid=2&z=3&a"
    spelt = spelled(parse_qsl(query, keep_blank_values=True), parse_spelling(rules))
    key = NginxKeyRules(rules).apply(f"/s?{query}".encode()).decode()
    assert parse_qsl(key.removeprefix("/s?"), keep_blank_values=True) == spelt


def test_hosts_share_keys_where_the_configuration_says_so(tmp_path: Path) -> None:
    log, conf = tmp_path / "access.log", tmp_path / "nginx.conf"
    log.write_text(
        "".join(
            f"{1000 + n}.000 0.1 0.1 {'HIT' if n else 'MISS'} 200 {'ab'[n % 2]}.example /x\n"
            for n in range(400)
        )
    )
    log_format = (
        "$msec $request_time $upstream_response_time $upstream_cache_status $status $host "
        "$request_uri"
    )
    conf.write_text(
        """http { proxy_cache_path /c keys_zone=z:1m; server { server_name a.example b.example;
        location / { proxy_pass http://app; proxy_cache z; proxy_cache_valid 1h; } } }"""
    )
    found = asked(log, "--format", log_format, "--config", str(conf), "--ttl", "2h", "--anyway")
    assert found["today"]["fetches"] == 1


def test_only_short_values_are_cached_under_a_rule_of_length(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    text = "".join(
        line(at, "MISS", f"/s?q={'x' * length}")
        for at, length in enumerate([3, 3, 9, 9, 10, 10, 10] * 40)
    )
    log.write_text(text)
    # Nothing is stored today; with the rule all but the 10s are.
    found = asked(
        log, "--format", FORMAT, "--inactive-now", "1d", "--ttl-now", "1h",
        "--max-length", "9,10", "--anyway",
    )  # fmt: skip
    fetches = [each["fetches"] for each in found["forecasts"]]
    assert fetches == [2 + 3 * 40, 3]


def test_copies_from_before_the_log_do_not_count_against_the_model(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    # A cache that is warm when the log begins: no URL is ever missed.
    log.write_text("".join(line(at, "HIT", f"/{at % 300}") for at in range(900)))
    found = asked(log, "--format", FORMAT, "--ttl-now", "1h", "--inactive-now", "1h", "--ttl", "2h")
    assert found["backtest"]["agreement"] == 1.0
    assert found["backtest"]["logged_all"] == 1.0
    assert found["backtest"]["modelled_all"] < 0.7


def test_only_the_requests_that_were_asked_for_are_replayed(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    lines = [line(at, "MISS", f"/{at}").replace("GET", f"GET {'ab'[at % 2]}") for at in range(400)]
    log.write_text("".join(lines))
    options = (
        "--format",
        FORMAT.replace("$request_uri", "$host $request_uri"),
        "--ttl",
        "1h",
        "--anyway",
    )
    assert asked(log, *options, "--host", "A")["requests"] == 200
    begin = datetime.fromtimestamp(BEGIN_S + 300, UTC).isoformat()
    assert asked(log, *options, "--since", begin)["requests"] == 100
    assert asked(log, *options, "--until", begin)["log"]["left_out"] == 100
    assert "no line is of this time and host" in ask(log, *options, "--host", "c").output


def test_a_revalidated_copy_is_an_unchanged_one(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    statuses = ["MISS", *["REVALIDATED"] * 400]
    log.write_text("".join(line(61 * n, status, "/") for n, status in enumerate(statuses)))
    found = asked(
        log, "--format", FORMAT, "--ttl-now", "60s", "--ttl", "1h", "--inactive-now", "1d"
    )
    assert (found["refetches"], found["changed"]) == (400, 0)
    assert found["backtest"]["agreement"] > 0.97


def test_what_is_never_stored_stays_so_where_the_log_does_not_say_why(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    lines = []
    for at in range(600):
        lines.append(line(at, "MISS" if at == 0 else "HIT", "/kept"))
        lines.append(line(at + 0.5, "MISS", "/private"))
    log.write_text("".join(lines))
    found = asked(log, "--format", FORMAT, "--inactive-now", "1d", "--ttl-now", "1h", "--ttl", "2h")
    assert found["backtest"]["agreement"] == 1.0
    assert any("1 URLs were missed again" in each for each in found["assumed"])


def test_a_sample_is_close_and_says_its_error(tmp_path: Path) -> None:
    log = made_log(tmp_path / "access.log", requests=30_000, keys=3000)
    options = (log, "--format", FORMAT, "--inactive-now", "1d", "--ttl-now", "60s", "--ttl", "10m")
    whole, part = asked(*options), asked(*options, "--max-requests", "12000", "--anyway")
    assert whole["rate"] == 1.0
    assert part["rate"] < 1.0
    ours, theirs = part["forecasts"][0], whole["forecasts"][0]
    assert ours["sampling_error"] > 0
    assert abs(ours["hit_ratio"] - theirs["hit_ratio"]) <= 2 * ours["sampling_error"]


def test_the_rate_of_changes_is_found_from_pairs_of_fetches() -> None:
    rate = 1 / 300
    pairs = [
        (seconds, 1_000_000, round(1_000_000 * -math.expm1(-rate * seconds)))
        for seconds in (1.0, 10.0, 100.0, 1000.0)
    ]
    found = change_rate(pairs)
    assert found == pytest.approx(rate, rel=1e-3)
    assert change_rate([(10.0, 1000, 0)]) == 0.0
    assert change_rate([(10.0, 5, 1)]) is None
    assert outdated_share([(300.0, 10)], rate) == pytest.approx(1 - math.exp(-1))
    assert outdated_share([], rate) == 0.0


def test_an_origin_that_changes_makes_old_copies_outdated(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    lines = []
    for minute in range(200):
        for key in range(3):
            at = minute * 61 + key
            lines.append(
                line(at, "MISS" if not minute else "EXPIRED", f"/{key}", 1000 + minute // 10)
            )
            lines += [line(at + second, "HIT", f"/{key}", 1000) for second in (10, 20, 30)]
    log.write_text("".join(sorted(lines)))
    found = asked(
        log,
        "--format",
        FORMAT,
        "--inactive-now",
        "1d",
        "--ttl-now",
        "50s",
        "--ttl",
        "1h",
        "--inactive",
        "2h",
    )
    assert found["changed"] == 3 * 19
    together = found["forecasts"][-1]
    # It changes every 610 s; copies live for 3,600 s.
    assert together["outdated_seen"] > 0.6
    assert found["today"]["outdated_seen"] == 0.0
    assert together["outdated"] > 10 * found["today"]["outdated"]


def test_rules_are_those_of_each_location() -> None:
    configuration = read_configuration("""
        http {
            proxy_cache_path /a keys_zone=a:1m inactive=1h max_size=8m;
            uwsgi_cache_path /b keys_zone=b:1m;
            server {
                location / { try_files $uri @app; }
                location /api/ {
                    proxy_pass http://x; proxy_cache a; proxy_cache_valid 200 5m;
                    proxy_cache_valid any 1s; proxy_cache_min_uses 2; proxy_cache_lock on;
                    proxy_cache_bypass $cookie_s;
                }
                location @app {
                    uwsgi_pass x; uwsgi_cache b; uwsgi_cache_use_stale updating;
                    uwsgi_cache_background_update on; uwsgi_ignore_headers Set-Cookie;
                }
            }
        }
    """)
    today = today_of(configuration)
    assert today.locations == (("", "/"), ("", "/api/"))
    assert [zone.inactive_s for zone in today.zones] == [3600, 600]
    api = today.places[1]
    assert api.valid == ((200, 300), (None, 1))
    assert (api.zone, api.min_uses, api.lock, api.bypass_stores) == (0, 2, True, True)
    rules = replay_rules(today, Change(max_size=1 << 20, inactive_s=5), Frame(rate=0.5))
    assert rules["zones"][0]["max_blocks"] == 128  # half of 256 blocks
    assert rules["zones"][0]["inactive_s"] == 5


def test_what_a_user_says_of_today_counts_more_than_a_configuration() -> None:
    today = with_options(Today(places=(Place(min_uses=3),)), ttl_s=9.0, max_size=10, lock=True)
    assert today.places[0].valid == ((200, 9), (301, 9), (302, 9))
    assert today.places[0].min_uses == 3
    assert today.places[0].lock
    assert today.zones[0].max_size == 10


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "what if what?"),
        (("--ttl", "1parsec"), "is no time"),
        (("--max-size", "many"), "is no size"),
        (("--key", "upper"), "no rule for keys"),
        (("--key", "allow=q|page"), "keep=q|page"),
        (("--ttl", "1h", "--arg", "q", "--path-part", "1"), "not both"),
        (("--max-length", "long"), "are no numbers"),
        (("--min-uses", "1,2", "--ttl", ",".join(f"{n}s" for n in range(1, 40))), "more than 60"),
    ],
)
def test_wrong_options_say_what_is_right(log: Path, arguments: tuple[str, ...], said: str) -> None:
    result = ask(log, "--format", FORMAT, *arguments)
    assert result.exit_code == 2
    assert said in result.output
    assert len(result.output.strip().splitlines()) == 1


def test_logs_that_cannot_be_replayed_say_so(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_text("200 /\n" * 10)
    assert "has no times" in ask(log, "--format", "$status $request_uri", "--ttl", "1h").output
    log.write_text(line(1, "-", "/") * 10)
    assert (
        "none of 10 requests went through a cache"
        in ask(log, "--format", FORMAT, "--ttl", "1h").output
    )
    log.write_text("nonsense\n")
    assert "no line fits" in ask(log, "--format", FORMAT, "--ttl", "1h").output


def test_sizes_and_times_are_read_as_people_write_them() -> None:
    assert size_of("34MB") == size_of("34m") == size_of("34 MiB") == 34 << 20
    assert size_of("1.5GB") == 3 << 29
    assert time_of("1h30m") == 5400
    with pytest.raises(NginxError):
        size_of("-1m")


def test_values_are_tried_alone_and_together() -> None:
    names = [each.name for each in Axes(ttls_s=[60, 3600], lock=True).changes()]
    assert names == ["ttl 1m", "ttl 1h", "lock", "ttl 1m, lock", "ttl 1h, lock"]


def test_a_dict_of_another_shape_is_an_error_and_no_crash() -> None:
    trace = NginxTrace(FORMAT, valid=[(None, [])])
    trace.feed(line(0, "MISS", "/").encode())
    trace.finish()
    with pytest.raises(KeyError):
        trace.replay({})
    rules = replay_rules(Today(places=(Place(zone=7),)), Change(), Frame())
    with pytest.raises(ValueError, match="zone"):
        trace.replay(rules)
    with pytest.raises(NginxError):
        NginxTrace(FORMAT, valid=[(None, [])], sample_by="upper")


def test_nothing_at_all_is_no_division_by_zero() -> None:
    trace = NginxTrace(FORMAT, valid=[(None, [])])
    trace.finish()
    question = Question(today=Today(), changes=[Change(ttl_s=5)], subject=Subject(), anyway=True)
    found = whatif(trace, question)
    assert found.forecasts[0].hit_ratio == 0.0
    outcome = trace.replay(replay_rules(Today(), Change(), Frame()))
    assert sampling_error(outcome, 0.5) == 0.0
