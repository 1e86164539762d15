"""``nearcache nginx report``: what a real nginx logged, counted again by hand."""

from __future__ import annotations

import gzip
import json
import os
import pty
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcache._core import NginxLog
from nearcache.nginx.logs import formats
from nearcache.nginx.logs.formats import COMBINED_WITH, choose, text_of
from nearcache.nginx.report.ledger import ledger
from nearcache.nginx.report.page import answer, page
from nearcache.report.plain import lines_of

from .conftest import PATIENCE_S, Nginx, StartNginx, Upstream, wait_for
from .traffic import (
    CUSTOM_FORMAT,
    ask,
    count_lines,
    read_terminal,
    rows,
    run,
    run_json,
    run_piped,
    site,
    slow,
)

PATHS = ["/song/1", "/song/2", "/song/1", "/song/1", "/plain/x", "/me", "/me", "/list?page=2",
         "/list?page=2", "/song/1", "/private", "/list?page=2"]  # fmt: skip

# Root may read whatever its modes are; not so without these two.
NO_OVERRIDE = "-dac_override,-dac_read_search"
WITHOUT_ROOT = (
    [] if os.geteuid() else ["setpriv", "--bounding-set", NO_OVERRIDE, "--inh-caps", NO_OVERRIDE]
)

COMBINED_LINE = '1.2.3.4 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 12 "-" "x"'


@pytest.fixture
def busy(start_nginx: StartNginx, upstream: Upstream) -> Nginx:
    """An nginx that has answered PATHS."""
    upstream.script = slow
    nginx = site(start_nginx, upstream)
    ask(nginx, PATHS)
    return nginx


def by_hand(nginx: Nginx) -> dict[str, Any]:
    """The ledger of a JSON log, in a few lines of Python."""
    lines = rows(nginx)
    hits = [row for row in lines if row["upstream_cache_status"] == "HIT"]
    fetched: dict[str, list[float]] = {}
    for row in lines:
        if row["upstream_cache_status"] == "MISS":
            fetched.setdefault(row["request_uri"], []).append(float(row["upstream_response_time"]))
    return {
        "requests": len(lines),
        "served": len(hits),
        "bytes": sum(int(row["body_bytes_sent"]) for row in lines),
        "upstream_s": sum(float(row["upstream_response_time"] or 0) for row in lines),
        "saved_s": sum(statistics.mean(fetched[row["request_uri"]]) for row in hits),
    }


@pytest.mark.parametrize("name", ["json", "custom"])
def test_the_ledger_is_what_one_counts_by_hand(name: str, busy: Nginx) -> None:
    expected = by_hand(busy)
    found = run_json("report", busy.directory / f"{name}.log", "--config", busy.configuration)
    total = found["total"]
    assert total["requests"] == expected["requests"] == len(PATHS)
    assert total["served"] == expected["served"] == 5
    assert total["bytes"] == expected["bytes"]
    assert total["upstream_s"] == pytest.approx(expected["upstream_s"])
    assert total["saved"]["seconds"] == pytest.approx(expected["saved_s"], rel=0.2)
    assert total["saved"]["low_s"] <= expected["saved_s"] <= total["saved"]["high_s"]
    assert total["hit_ratio"] == 5 / len(PATHS)
    assert found["sentence"].startswith("Your proxy_cache is saving ")
    assert {each["name"] for each in found["locations"]} == {"/", "/plain/"}
    groups = {each["name"]: each for each in found["groups"]}
    assert groups["/song/<n>"]["served"] == 3
    assert groups["/me"]["saved"]["seconds"] == 0
    if name == "json":
        # Set-Cookie, private, and a location without a cache can never be hits.
        assert total["cacheable"] == len(PATHS) - 4


def test_what_the_cache_holds_is_told_beside_what_it_saves(busy: Nginx) -> None:
    log = busy.directory / "json.log"
    found = run_json("report", log, "--cache", busy.cache)
    assert found["cache"]["entries"] == 3
    text = run("report", log, "--cache", busy.cache)
    assert "What the cache holds" in text
    assert "RAM" in text
    assert "does not exist" in run("report", log, "--cache", busy.directory / "no", code=2)
    assert run_json("report", log)["cache"] is None


def test_a_combined_log_says_what_it_cannot_tell_and_guesses_nothing(busy: Nginx) -> None:
    found = run_json("report", busy.directory / "combined.log")
    total = found["total"]
    assert total["requests"] == len(PATHS)
    assert total["bytes"] == by_hand(busy)["bytes"]
    for unknown in ("served", "hit_ratio", "saved", "upstream_s", "cacheable"):
        assert total[unknown] is None, unknown
    assert found["hurt"] is None
    assert found["repeats"] == pytest.approx(1 - len(set(PATHS)) / len(PATHS))
    lacking = {each["variable"] for each in found["log"]["cannot_tell"]}
    assert {"$upstream_cache_status", "$upstream_response_time", "$request_time"} <= lacking
    text = run("report", busy.directory / "combined.log")
    assert text.startswith("This log does not say what came from the cache: of 12 requests 50.0%")
    assert "$upstream_cache_status" in text


def test_the_time_of_every_upstream_that_was_asked_counts(
    start_nginx: StartNginx, upstream: Upstream, closed_port: int
) -> None:
    upstream.script = slow
    nginx = start_nginx(
        http=f"""
            upstream two {{
                server 127.0.0.1:{closed_port} max_fails=0;
                server 127.0.0.1:{upstream.port} backup;
            }}
            log_format custom '{CUSTOM_FORMAT}';""",
        server="""
            set $cl_key "";
            access_log custom.log custom;
            location / { proxy_pass http://two; }""",
    )
    for number in range(3):
        nginx.get(f"/{number}")
    log = nginx.directory / "custom.log"
    assert wait_for(lambda: count_lines(log) == 3)
    times = [line.split('" ')[1].split('"')[1] for line in log.read_text().splitlines()]
    assert all("," in each for each in times), "nginx logs a list"
    total = run_json("report", log, "--format", CUSTOM_FORMAT)["total"]
    expected = sum(float(one) for each in times for one in each.split(", "))
    assert total["upstream_s"] == pytest.approx(expected)


def test_packed_rotated_and_piped_logs_give_the_same_answer(busy: Nginx, tmp_path: Path) -> None:
    lines = (busy.directory / "json.log").read_bytes().splitlines(keepends=True)
    directory = tmp_path / "logs"
    directory.mkdir()
    (directory / "access.log.2.gz").write_bytes(gzip.compress(b"".join(lines[:4])))
    packed = zstandard.ZstdCompressor().compress(b"".join(lines[4:8]))
    (directory / "access.log.1").write_bytes(packed)  # no name of zstd's
    (directory / "access.log").write_bytes(b"".join(lines[8:]))
    whole = run_json("report", busy.directory / "json.log")
    rotated = run_json("report", directory)
    piped = json.loads(run_piped(b"".join(lines), "report", "-", "--json"))
    for other in (rotated, piped):
        assert {**other, "log": None} == {**whole, "log": None}
    assert [Path(name).name for name in rotated["log"]["files"]] == [
        "access.log.2.gz",
        "access.log.1",
        "access.log",
    ]


def test_what_could_not_be_read_is_the_exit_code(busy: Nginx, tmp_path: Path) -> None:
    log = busy.directory / "json.log"
    cut = tmp_path / "access.log.1.gz"
    cut.write_bytes(gzip.compress(log.read_bytes())[:-20])
    done = run("report", log, cut, tmp_path / "gone.log", code=1)
    assert "access.log.1.gz is damaged gzip (it breaks off)" in done
    assert "gone.log does not exist" in done
    assert "does not exist" in run("report", tmp_path / "gone.log", code=2)
    empty = tmp_path / "empty.log"
    empty.touch()
    assert "no lines" in run("report", empty, code=2)


# -- formats


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ((), "json, by its first lines"),
        (("--format", "json"), "json, by name"),
        (("--format", "lines", "--config", "nginx.conf"), "lines, of the configuration"),
    ],
)
def test_the_format_is_found_given_or_named(
    given: tuple[str, ...], chosen: str, busy: Nginx
) -> None:
    options = [str(busy.configuration) if each == "nginx.conf" else each for each in given]
    assert f"- log format: {chosen}" in run("report", busy.directory / "json.log", *options)


def test_a_format_that_nobody_knows_is_shown_with_what_to_give(busy: Nginx) -> None:
    log = busy.directory / "custom.log"
    said = run("report", log, code=2)
    first = log.read_text().splitlines()[0]
    assert first[:80] in said
    assert "--format" in said
    assert "--config" in said
    assert "did you mean 'combined'" in run("report", log, "--format", "combine", code=2)
    directive = f"log_format custom '{CUSTOM_FORMAT[:40]}'\n  '{CUSTOM_FORMAT[40:]}';"
    assert run_json("report", log, "--format", directive)["total"]["served"] == 5
    assert "no line fits" in run("report", log, "--format", "[$status] $request", code=2)


def test_json_with_names_of_its_own_says_which_and_is_read_with_its_format(tmp_path: Path) -> None:
    log = tmp_path / "own.log"
    log.write_text('{"t":"1795295605.699","u":"/a","cs":"HIT"}\n' * 3)
    said = run("report", log, code=2)
    assert "(t, u, cs)" in said
    text = '{"t":"$msec","u":"$request_uri","cs":"$upstream_cache_status"}'
    assert run_json("report", log, "--format", text)["total"]["served"] == 3


@pytest.mark.parametrize("junk", [b"", b"x" * 1_500_000 + b"\n", b"\0" * 1_500_000, b"\0junk\n"])
def test_the_format_is_found_behind_what_a_crash_left(junk: bytes, tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    lines = b"".join(
        b'{"msec":"1795295605.%d","status":200,"request_uri":"/%d"}\n' % (n, n) for n in range(9)
    )
    log.write_bytes(junk + lines)
    found = run_json("report", log)
    assert found["log"]["format"] == "json"
    assert found["total"]["requests"] == 9
    assert found["log"]["bad"] == bool(junk.strip(b"\0"))


def test_the_usual_configuration_is_asked_for_a_format_that_nobody_knows(
    busy: Nginx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, usual = busy.directory / "custom.log", tmp_path / "usual.conf"
    monkeypatch.setattr(formats, "USUAL_CONFIGURATIONS", ("/nowhere", str(usual)))
    assert "no known format fits" in run("report", log, code=2)
    usual.write_text(f"http {{ log_format custom '{CUSTOM_FORMAT}'; log_format o '$status'; }}")
    found = run_json("report", log)
    assert found["total"]["requests"] == len(PATHS)
    assert found["log"]["format_chosen"] == f"by its first lines (of {usual})"
    assert run_json("report", log, "--format", "custom")["log"]["format_chosen"] == f"of {usual}"
    assert "did you mean 'custom'" in run("report", log, "--format", "custon", code=2)
    # It is no nginx.conf, or may not be read: as if there were none.
    usual.write_text("http {")
    assert "no known format fits" in run("report", log, code=2)
    other = tmp_path / "other.log"
    other.write_text("what is this\n" * 3)
    usual.write_text(f"http {{ log_format custom '{CUSTOM_FORMAT}'; }}")
    assert f"and those of {usual}). The first is: what is" in run("report", other, code=2)


@pytest.mark.parametrize(
    ("key", "asks"),
    [
        ("$scheme://$host$request_uri", False),
        ("$host$uri$is_args$args", False),
        ("$host$uri", True),
        ("$host$request_uri$cookie_lang", True),
    ],
)
def test_a_key_that_the_configuration_settles_is_not_asked_of_the_log(
    key: str, asks: bool, tmp_path: Path
) -> None:
    log, conf = tmp_path / "access.log", tmp_path / "nginx.conf"
    log.write_text('{"msec":"1795295605.1","status":200,"request_uri":"/a","host":"a"}\n' * 3)
    conf.write_text(
        "http { proxy_cache_path /x keys_zone=z:1m; server { location / {"
        f"proxy_pass http://a; proxy_cache z; proxy_cache_key {key}; }} }} }}"
    )
    found = run_json("report", log, "--config", conf)
    assert ("$cl_key" in {each["variable"] for each in found["log"]["cannot_tell"]}) == asks
    assert ("$cl_key" in run("report", log, "--config", conf)) == asks


def test_json_whose_members_are_objects_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "nested.log"
    line = '{"msec":"1795295605.%d","status":200,"request":{"method":"GET","uri":"/%d"}}\n'
    log.write_text("".join(line % (number, number) for number in range(9)))
    for verb in ("report", "misses", "queries"):
        assert "JSON in which request is an object: only flat ones" in run(verb, log, code=2)
    assert "no line fits" in run("report", log, "--format", "json", code=2)


def test_json_whose_request_is_a_url_is_read(tmp_path: Path) -> None:
    log = tmp_path / "urls.log"
    line = '{"msec":"1795295605.%d","status":200,"request":"/%d","upstream_cache_status":"MISS"}\n'
    log.write_text("".join(line % (number, number) for number in range(9)))
    assert [each["name"] for each in run_json("misses", log)["reasons"]] == ["compulsory"]


def test_a_named_file_that_may_not_be_read_does_not_stop_the_others(
    busy: Nginx, tmp_path: Path
) -> None:
    log, secret = busy.directory / "json.log", tmp_path / "secret.log"
    secret.write_bytes(log.read_bytes())
    secret.chmod(0)
    for files in ([secret, log], [log, secret]):
        done = subprocess.run(
            [*WITHOUT_ROOT, sys.executable, "-m", "nearcache", "nginx", "report", *files, "--json"],
            capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip
        assert done.returncode == 1
        assert f"{secret} may not be read by this user" in done.stderr
        found = json.loads(done.stdout)
        assert found["total"]["requests"] == len(PATHS)
        assert found["log"]["files"] == [str(log)]


def test_the_text_of_a_format_may_be_a_pasted_directive() -> None:
    pasted = "log_format  main  escape=json '$remote_addr \"$request\" '\n  '$status \\'x\\'';\n"
    assert text_of(pasted) == "$remote_addr \"$request\" $status 'x'"
    assert text_of("$status $request") == "$status $request"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (COMBINED_LINE, "combined"),
        (f'{COMBINED_LINE} "-"', "main"),
        (f"{COMBINED_LINE} 5 0.1 [a] [] 10.0.0.1:80 12 0.1 200 abc", "upstreaminfo"),
        ('{"status":200,"request_uri":"/"}', "json"),
    ],
)  # fmt: skip
def test_usual_formats_are_told_apart(line: str, name: str) -> None:
    assert choose(None, {}, line.encode()).name == name


def test_of_formats_that_fit_the_one_that_says_most_is_taken() -> None:
    configured = {"poor": "$remote_addr $request", "rich": "$remote_addr $status $uri $msec"}
    assert choose(None, configured, b"1.2.3.4 200 /x 5.5\n" * 5).name == "rich"


# -- filters


def test_filters_leave_out_what_was_not_asked_for(busy: Nginx) -> None:
    log = busy.directory / "json.log"
    lines = rows(busy)
    song = run_json("report", log, "--location", "^~ /song/")
    assert song["total"]["requests"] == 5
    assert song["log"]["left_out"] == len(PATHS) - 5
    assert run_json("report", log, "--host", "127.0.0.1")["total"]["requests"] == len(PATHS)
    assert "none of 12 requests" in run("report", log, "--host", "other.example", code=2)
    one = run_json("report", log, "--group", "^/song/=songs", "--group", "me$=me")
    assert {"songs", "me"} <= {each["name"] for each in one["groups"]}
    middle = datetime.fromtimestamp(float(lines[6]["msec"]), UTC).isoformat()
    early = run_json("report", log, "--until", middle)["total"]["requests"]
    late = run_json("report", log, "--since", middle)["total"]["requests"]
    assert (early, late) == (6, len(PATHS) - 6)
    now = run_json("report", log, "--since", "1h")
    assert now["total"]["requests"] == len(PATHS)
    assert "none of 12 requests" in run("report", log, "--until", "2020-01-01", code=2)
    assert "is no time" in run("report", log, "--since", "yesterday", code=2)
    assert "REGEX=NAME" in run("report", log, "--group", "x", code=2)
    assert "regular expression" in run("report", log, "--group", "(=x", code=2).lower()


def test_a_log_without_hosts_or_times_cannot_be_asked_for_them(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("200 /x\n")
    given = ("report", log, "--format", "$status $request_uri")
    assert "add $host" in run(*given, "--host", "a", code=2)
    assert "add $msec" in run(*given, "--since", "1h", code=2)


# -- the first sentence


def made(*lines: str, log_format: str = "$msec $upstream_cache_status $upstream_response_time "
         "$request_time $request_uri") -> Any:  # fmt: skip
    log = NginxLog(log_format)
    log.feed("".join(f"{line}\n" for line in lines).encode())
    log.finish()
    return log.result()


def day_of_hits(hits: int, fetch_s: float) -> Iterator[str]:
    yield f"1000 MISS {fetch_s} {fetch_s} /a"
    for number in range(hits):
        yield f"{1001 + number * 86400 / hits:.3f} HIT - 0.000 /a"


def test_the_first_sentence_is_the_answer_of_seed_002() -> None:
    found = ledger(made(*day_of_hits(4331, 1.0)))
    assert found.per_day == pytest.approx(1, rel=0.01)
    assert answer(found, "uwsgi_cache").startswith(
        "Your uwsgi_cache is saving 1 h 12 min of upstream time a day"
    )


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["1000 MISS 1.0 1.0 /a"], "Your cache saves nothing: none of 1 request"),
        (["1000 HIT - 0.0 /a"], "nobody knows, for nothing was fetched"),
        (["1000 - 1.0 1.0 /a"], "No cache took part in any of these 1 request"),
        (
            ["1000 MISS 1.0 1.0 /a", "1010 HIT - 0.0 /a"],
            "is saving 1.0 s of upstream time in the 10.0 s of this log",
        ),
        (
            ["1002 MISS 2.0 2.0 /a", "1002 HIT - 1.5 /a", "1010 HIT - 0.0 /a"],
            "of waiting at its locks",
        ),
    ],
)
def test_the_first_sentence_fits_what_was_found(lines: list[str], said: str) -> None:
    assert said in answer(ledger(made(*lines)), "cache")


def test_hits_without_times_are_counted_and_not_priced() -> None:
    found = ledger(made("HIT /a", "MISS /a", log_format="$upstream_cache_status $request_uri"))
    assert found.total.served == 1
    assert found.total.saved is None
    assert "this log cannot tell" in answer(found, "cache")


def test_groups_that_were_never_fetched_borrow_a_mean_and_that_is_told() -> None:
    lines = ["1000 MISS 2.0 2.0 /a", *["1010 HIT - 0 /b"] * 3]
    found = ledger(made(*lines))
    assert found.borrowed == 1.0
    assert found.total.saved
    assert found.total.saved.seconds == pytest.approx(6, rel=0.02)
    assert any("never fetched" in note for note in page(found, "cache", 10).notes)


def test_one_slow_fetch_is_not_paid_out_for_every_hit() -> None:
    fetched = ["0.1"] * 20 + ["60"]
    lines = [f"{1000 + n} MISS {t} {t} /a/{n}" for n, t in enumerate(fetched)]
    found = ledger(made(*lines, *["2000 HIT - 0 /a/1"] * 100))
    assert found.total.saved
    assert found.total.saved.seconds == pytest.approx(10, rel=0.5)


# -- hostile lines


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=60), max_size=20))
def test_no_bytes_break_a_report_or_reach_the_terminal(found: list[bytes]) -> None:
    log = NginxLog("combined")
    line = b'1.2.3.4 - - [17/May/2015:10:05:03 +0000] "GET /%s HTTP/1.1" 200 12 "-" "x"\n'
    log.feed(b"".join(line % each for each in found))
    log.finish()
    shown = page(ledger(log.result()), "cache", 10)
    for width in (40, 80):
        text = lines_of(shown, width)
        assert all(each.isprintable() for each in text), text


def test_what_a_stranger_asked_for_cannot_move_the_cursor_or_write_html(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    evil = "/\x1b[2J\u202e<script>alert(1)</script>\r{{7919*7919}}"
    line = f'1.2.3.4 - - [17/May/2015:10:05:03 +0000] "GET {evil} HTTP/1.1" 200 12 "-" "x"\n'
    log.write_bytes(line.encode() * 3 + b"\xff\x1b[31m no log line\n")
    text = run("report", log, "--html", tmp_path / "r.html")
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\x1b" not in run("misses", log, "--html", tmp_path / "r.html")
    html = (tmp_path / "r.html").read_text()
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert "62710561" not in html  # nobody worked it out
    assert "default-src 'none'" in html
    assert "<h1>nginx cache: misses</h1>" in html
    assert "http://" not in html.replace("http://www.w3.org", "")


# -- how it looks


def test_a_report_of_a_real_log_fits_80_columns_and_40_is_no_crash(busy: Nginx) -> None:
    text = run("report", busy.directory / "json.log", "--config", busy.configuration)
    assert max(map(len, text.splitlines())) <= 80
    shown = page(ledger(made("1000 MISS 1.0 1.0 /a", "1010 HIT - 0.0 /a")), "cache", 10)
    assert max(map(len, lines_of(shown, 40))) <= 40


# -- following, in a terminal


def test_follow_shows_what_nginx_writes_through_a_rotation_until_ctrl_c(busy: Nginx) -> None:
    log = busy.directory / "json.log"
    command = [sys.executable, "-m", "nearcache", "nginx", "report", str(log), "--follow"]
    process = subprocess.Popen(
        [*command, "--every", "0.5", "--json"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    try:
        first = json.loads(process.stdout.readline())
        assert first["total"]["requests"] == len(PATHS)
        log.rename(log.with_suffix(".log.1"))
        busy.process.send_signal(signal.SIGUSR1)
        busy.get("/song/1")
        while json.loads(process.stdout.readline())["total"]["requests"] <= len(PATHS):
            pass
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read().splitlines()
        assert json.loads(rest[-1])["total"]["requests"] == len(PATHS) + 1
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


def test_how_often_to_show_it_is_for_a_log_that_is_followed(busy: Nginx) -> None:
    refused = run("report", busy.directory / "json.log", "--every", "2", code=2)
    assert "give --follow" in refused


def test_json_of_an_application_between_the_requests_is_no_request(tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    request = '{"msec":"1000.0","request_uri":"/x","status":"200","upstream_cache_status":"HIT"}\n'
    log.write_text(request + '{"level":"info","message":"started"}\n{}\n' + request)
    found = run_json("report", log)
    assert (found["total"]["requests"], found["log"]["bad"]) == (2, 2)


def test_groups_that_a_filter_leaves_nothing_of_are_not_listed(busy: Nginx) -> None:
    found = run_json("report", busy.directory / "json.log", "--location", "/song/")
    assert [each["name"] for each in found["groups"]] == ["/song/<n>"]
    assert found["groups_total"] == 1


def test_a_full_disk_is_one_line_and_no_traceback(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_text(f"{COMBINED_LINE}\n")
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "nearcache", "nginx", "report", str(log)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode != 0
    assert "the disk is full" in done.stderr
    assert "Traceback" not in done.stderr


def test_filters_that_leave_nothing_are_named(busy: Nginx) -> None:
    log = busy.directory / "json.log"
    said = run("report", log, "--host", "no.example", "--since", "1d", code=2)
    assert "--since and --host" in said
    assert "--until" not in said


def test_on_a_terminal_a_bar_shows_the_way_and_is_gone_at_the_end(busy: Nginx) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "nearcache", "nginx", "report", str(busy.directory / "json.log")],
        stdout=theirs, stderr=theirs, env={**os.environ, "COLUMNS": "80", "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    seen = read_terminal(ours)
    assert process.wait(PATIENCE_S) == 0
    assert "reading" in seen
    assert "Your cache is saving" in seen.rpartition("reading")[2]


def test_the_combined_format_is_written_once() -> None:
    one, other = NginxLog("combined"), NginxLog(COMBINED_WITH)
    for log in (one, other):
        log.feed(COMBINED_LINE.encode())
        log.finish()
    assert one.result() == other.result()
