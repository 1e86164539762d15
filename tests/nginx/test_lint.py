"""Every rule of lint: a configuration that has what it is about, beside one that has nothing."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcache.cli import main
from nearcache.errors import NginxError
from nearcache.nginx.conf.configuration import Version, read_configuration
from nearcache.nginx.lint import NAMES, Examined, lint
from nearcache.nginx.lint.model import Directory
from nearcache.nginx.lint.survey import measure
from tests.needs import need
from tests.nginx.conftest import Answer, Nginx, StartNginx, Upstream

LOG = "'$upstream_cache_status $upstream_response_time $request_time'"
GOOD = f"""
events {{ }}
http {{
    log_format times {LOG};
    proxy_cache_path /tmp/nearcache-lint/z levels=1:2 keys_zone=z:32m inactive=1h max_size=1g;
    proxy_cache_valid 200 301 1h;
    map $args $clean {{ default $args; "~^(?<head>.*)&utm=[^&]*$" "$head"; }}
    server {{
        listen 127.0.0.1:18080;
        server_name example.org;
        location / {{
            access_log /dev/null times;
            proxy_pass http://127.0.0.1:9;
            proxy_set_header Host $host;
            proxy_cache z;
            proxy_cache_key $scheme://$host$request_uri;
            proxy_cache_lock on;
            proxy_cache_use_stale error timeout updating;
            proxy_cache_background_update on;
            proxy_cache_bypass $cookie_sessionid $http_authorization;
            proxy_no_cache $cookie_sessionid $http_authorization;
            add_header X-Cache $upstream_cache_status always;
        }}
        # more
    }}
    # outer
}}
"""
KEY = "proxy_cache_key $scheme://$host$request_uri;"
SECOND = """
    server { listen 127.0.0.1:18081; server_name other.org; location / {
        proxy_pass http://127.0.0.1:9; proxy_set_header Host $host; proxy_cache z;
        proxy_cache_key $scheme$request_uri; } }"""
TLS = """
    server { listen 127.0.0.1:18443 ssl; ssl_certificate c; ssl_certificate_key k;
        server_name example.org; location / { proxy_pass http://127.0.0.1:9; proxy_cache z;
        proxy_cache_key $host$request_uri; } }"""
MORE = """
    proxy_cache_path /tmp/nearcache-lint/{} levels=1:2 keys_zone=y:32m inactive=1h max_size=1g;"""
OLD = (1, 22, 1)
NEW = (1, 30, 7)

# rule: what is replaced in GOOD by what, for which version; nginx -t of 1.22 takes it or not
CASES: list[tuple[str, str, str, Version, bool]] = [
    ("no-key", "# more", "location /u { uwsgi_pass 127.0.0.1:9; uwsgi_cache z; }", OLD, False),
    ("key-without-path", KEY, "proxy_cache_key $scheme$host$args;", OLD, True),
    ("key-without-host", "# outer", SECOND, OLD, True),
    ("key-without-host", KEY, "proxy_cache_key $scheme$request_uri;", OLD, True),
    ("key-without-scheme", "# outer", TLS, OLD, False),
    ("host-port", "Host $host", "Host $http_host", OLD, True),
    ("unkeyed-arguments", KEY, 'proxy_cache_key "$scheme$host$uri";', OLD, True),
    ("unkeyed-arguments", KEY, 'proxy_cache_key "$scheme$host$uri $arg_q";', OLD, True),
    ("unkeyed-arguments", KEY, 'proxy_cache_key "$scheme$host $clean $uri";', OLD, True),
    ("split-arguments", ":9;\n            proxy_set", ":9$uri;\n            proxy_set", OLD, True),
    ("decoded-path", KEY, "proxy_cache_key $scheme$host$uri$is_args$args;", OLD, True),
    ("methods", "proxy_cache z;", "proxy_cache z; proxy_cache_methods GET POST;", OLD, True),
    ("head", "proxy_cache z;", "proxy_cache z; proxy_cache_convert_head off;", OLD, True),
    ("slice", "proxy_cache z;", "proxy_cache z; slice 1m;", OLD, True),
    ("zone-unused", "# outer", MORE.format("y"), OLD, True),
    ("zone-unknown", "proxy_cache z;", "proxy_cache zz;", OLD, False),
    ("inactive", "inactive=1h", "inactive=10m", OLD, True),
    ("inactive", " inactive=1h", "", OLD, True),
    ("inactive-default", "inactive=1h max_size=1g;\n", "max_size=1g;\n#", OLD, True),
    ("zone-size", "z:32m", "z:1m", OLD, True),
    ("no-limit", " max_size=1g", "", OLD, True),
    ("flat", "levels=1:2 keys_zone=z:32m inactive=1h max_size=1g",
     "keys_zone=z:128m inactive=1h max_size=4g", OLD, True),
    ("nested", "# outer", MORE.format("z/in"), OLD, True),
    ("no-lock", "proxy_cache_lock on;", "", OLD, True),
    ("no-stale", "error timeout updating", "updating", OLD, True),
    ("no-background-update", "proxy_cache_background_update on;", "", OLD, True),
    ("errors-kept", "valid 200 301 1h", "valid any 1h", OLD, True),
    ("errors-kept", "valid 200 301 1h", "valid 200 502 1h", OLD, True),
    ("errors-in-memory", "proxy_cache z;",
     "proxy_cache z; proxy_cache_valid 404 1m; proxy_intercept_errors on; error_page 404 /e;",
     OLD, True),
    ("no-ttl", "proxy_cache_valid 200 301 1h;", "", OLD, True),
    ("buffering-off", "proxy_cache z;", "proxy_cache z; proxy_buffering off;", OLD, True),
    ("min-uses", "proxy_cache z;", "proxy_cache z; proxy_cache_min_uses 3;", OLD, True),
    ("open-file-cache", "# outer", "open_file_cache max=100;", OLD, True),
    ("http2-upstream", "proxy_cache z;", "proxy_cache z; proxy_http_version 2;", NEW, False),
    ("authorization", "bypass $cookie_sessionid $http_authorization",
     "bypass $cookie_sessionid", OLD, True),
    ("session-cookie", "no_cache $cookie_sessionid $http", "no_cache $http", OLD, True),
    ("bypass-only", "no_cache $cookie_sessionid $http_auth",
     "no_cache $cookie_x $http_auth", OLD, True),
    ("no-cache-only", "no_cache $cookie", "no_cache $arg_preview $cookie", OLD, True),
    ("open-bypass", "bypass $cookie", "bypass $arg_fresh $cookie", OLD, True),
    ("set-cookie-served", "proxy_cache z;",
     "proxy_cache z; proxy_ignore_headers Set-Cookie;", OLD, True),
    ("cache-control-ignored", "proxy_cache z;",
     "proxy_cache z; proxy_ignore_headers Cache-Control;", OLD, True),
    ("vary-ignored", "proxy_cache z;", "proxy_cache z; proxy_ignore_headers Vary;", OLD, True),
    ("open-purge", "# more", "location /purge { proxy_cache_purge z $uri; }", OLD, False),
    ("status-header", "add_header X-Cache $upstream_cache_status always;", "", OLD, True),
    ("status-header", " always;", ";", OLD, True),
    ("lost-directives", "server_name example.org;",
     "server_name example.org; add_header Strict-Transport-Security 1;", OLD, True),
    ("log-format", "access_log /dev/null times;", "", OLD, True),
    ("log-format", "access_log /dev/null times;", "access_log off;", OLD, True),
    ("map-after-capture", "# more", "location ~ ^/(?<part>a+) { return 200 $part$clean; }",
     OLD, True),
    ("map-after-capture", "# more", "location ~ ^/(a+) { return 200 $1$clean; }", (1, 30, 6),
     True),
    ("numbered-capture", "location / {", "location ~ ^/(.+)$ { proxy_set_header X $1;", OLD, True),
    ("gone", "listen 127.0.0.1:18080", "listen 127.0.0.1:18080 http2", NEW, True),
    ("not-yet", "# more", "add_header_inherit merge;", OLD, False),
]  # fmt: skip


def found(text: str, version: Version | None = OLD, **beside: object) -> list[str]:
    configuration = read_configuration(text, version=version)
    return [finding.rule for finding in lint(Examined(configuration, **beside))]


def nginx_takes(text: str, directory: Path) -> subprocess.CompletedProcess[str]:
    need("nginx")
    text = text.replace("/tmp/nearcache-lint", str(directory))
    path = directory / "nginx.conf"
    path.write_text(f"pid {directory}/pid;\nerror_log stderr;\n{text}")
    return subprocess.run(
        ["nginx", "-t", "-p", str(directory), "-c", str(path)], capture_output=True, text=True
    )


def test_a_good_configuration_has_no_findings(tmp_path: Path) -> None:
    assert found(GOOD) == []
    assert nginx_takes(GOOD, tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("rule", "old", "new", "version", "is_taken"),
    CASES,
    ids=[f"{case[0]}-{number}" for number, case in enumerate(CASES)],
)
def test_a_rule_finds_what_it_is_about(
    rule: str, old: str, new: str, version: Version, is_taken: bool, tmp_path: Path
) -> None:
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    assert rule in found(text, version)
    if is_taken:
        done = nginx_takes(text, tmp_path)
        assert done.returncode == 0, done.stderr


def test_every_rule_has_an_example_here() -> None:
    elsewhere = {"temp-path"}
    assert {case[0] for case in CASES} | elsewhere == set(NAMES)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # what the application gets is what is in the key
        (KEY, 'set $args $clean; proxy_cache_key "$scheme$host $args $uri";'),
        ("proxy_cache_key $scheme://$host$request_uri;",
         'set $cl_key "$scheme://$host$request_uri"; proxy_cache_key $cl_key;'),
        ("no_cache $cookie_sessionid", "no_cache $upstream_http_x_personal $cookie_sessionid"),
        ("Host $host;", 'Host $host; proxy_set_header Cookie "";'),
        ("location / {", "if ($request_method = POST) { return 405; } location / {"),
        ("proxy_pass http://127.0.0.1:9;", "proxy_pass http://app_$cookie_color;"),
    ],
)  # fmt: skip
def test_what_only_looks_like_it_is_not_found(old: str, new: str, tmp_path: Path) -> None:
    text = GOOD.replace(old, new, 1)
    assert found(text) == []
    assert nginx_takes(text, tmp_path).returncode == 0


GUARDS = """proxy_cache_bypass $cookie_sessionid $http_authorization;
            proxy_no_cache $cookie_sessionid $http_authorization;"""


def test_a_variable_depends_on_the_condition_it_was_set_under(tmp_path: Path) -> None:
    """As everybody's cache of WordPress has it."""
    skips = GOOD.replace("$cookie_sessionid", "$skip").replace(
        "location / {", "set $skip 0; CONDITION { set $skip 1; } location / {"
    )
    text = skips.replace("CONDITION", 'if ($http_cookie ~* "sessionid|wordpress")')
    assert found(text) == []
    assert nginx_takes(text, tmp_path).returncode == 0
    assert found(skips.replace("CONDITION", 'if ($uri ~ "^/admin")')) == ["session-cookie"]


def test_a_variable_that_is_set_only_under_a_condition_stands_for_no_text() -> None:
    text = GOOD.replace(KEY, "proxy_cache_key $scheme://$host$request_uri$mobile;").replace(
        "location / {", "if ($http_user_agent ~ Mobi) { set $mobile m; } location / {"
    )
    (place,) = (each for each in read_configuration(text).cached if each.kind != "if")
    assert place.full_key.endswith("$mobile")


def test_where_no_header_of_the_client_is_passed_on_nothing_personal_is() -> None:
    assert found(GOOD.replace(GUARDS, "")) == ["authorization", "session-cookie"]
    assert found(GOOD.replace(GUARDS, "proxy_pass_request_headers off;")) == []


@pytest.mark.parametrize("upstream", ["http://app_$cookie_color", "http://$cookie_color.example"])
def test_an_upstream_by_variable_gets_all_arguments(upstream: str) -> None:
    text = GOOD.replace("http://127.0.0.1:9", upstream)
    assert found(text.replace(KEY, "proxy_cache_key $scheme$host$uri;")) == ["unkeyed-arguments"]
    assert found(text.replace(upstream, f"{upstream}$uri")) == ["split-arguments"]


def test_flaws_that_this_version_does_not_have_are_not_told() -> None:
    text = GOOD.replace("# more", "location ~ ^/(a+) { return 200 $1$clean; }")
    assert "map-after-capture" in found(text, (1, 30, 6))
    assert "map-after-capture" not in found(text, (1, 30, 7))
    assert "map-after-capture" in found(text, (1, 31, 8))
    assert "map-after-capture" in found(text, None)


def test_a_full_directory_is_told_from_its_files(tmp_path: Path) -> None:
    path = str(tmp_path)
    text = GOOD.replace(
        "/tmp/nearcache-lint/z levels=1:2 keys_zone=z:32m", f"{path} keys_zone=z:1m"
    )
    full = Directory(files=20_000, size_bytes=1 << 30, complete=True, device=1)
    assert {"zone-size", "flat"} <= set(found(text, directories={path: full}))
    roomy = Directory(files=100, size_bytes=100 << 20, complete=True, device=1)
    assert found(text, directories={path: roomy}) == []


def test_a_temporary_directory_on_another_file_system_is_told() -> None:
    cache = "/tmp/nearcache-lint/z"
    seen = {cache: Directory(files=1, size_bytes=1, complete=True, device=1)}
    beside = {"directories": seen, "temp_devices": {"/other": 2}, "temp_paths": {"proxy": "/other"}}
    assert found(GOOD, **beside) == ["temp-path"]
    assert found(GOOD.replace("max_size", "use_temp_path=off max_size"), **beside) == []
    assert found(GOOD, **(beside | {"temp_devices": {"/other": 1}})) == []


def test_a_directory_is_measured_without_what_is_no_entry(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / ("a" * 32)).write_bytes(b"12345")
    (tmp_path / "1" / ("b" * 32 + ".0000000001")).write_bytes(b"1")
    assert (measure(str(tmp_path)).files, measure(str(tmp_path)).size_bytes) == (1, 5)


def test_one_cause_in_many_locations_is_one_finding() -> None:
    text = GOOD.replace("valid 200 301 1h", "valid any 1h").replace(
        "# more", "location /b { proxy_pass http://127.0.0.1:9; proxy_cache z; }"
    )
    findings = lint(Examined(read_configuration(text, version=OLD)))
    (kept,) = [finding for finding in findings if finding.rule == "errors-kept"]
    assert kept.places == ("location /", "location /b")
    assert kept.line == 6


@pytest.mark.parametrize(
    "text",
    [
        GOOD.replace("proxy_cache z;", "proxy_cache z; proxy_buffering off; # nearcache: ignore"),
        GOOD.replace("proxy_cache z;",
                     "# nearcache: ignore[methods, buffering-off]\nproxy_buffering off;\n"
                     "proxy_cache z;"),
        GOOD.replace("proxy_cache z;", "proxy_cache z;\nproxy_buffering off;").replace(
            "location / {", "location / { # nearcache: ignore[buffering-off]"),
    ],
)  # fmt: skip
def test_a_comment_silences_a_finding(text: str) -> None:
    assert found(text) == []


def test_a_comment_beside_one_line_does_not_silence_the_next() -> None:
    text = GOOD.replace(
        "proxy_cache z;", "proxy_cache z; # nearcache: ignore[buffering-off]\nproxy_buffering off;"
    )
    assert found(text) == ["buffering-off"]


def run(*arguments: str, stdin: str | bytes | None = None):
    return CliRunner().invoke(main, ["nginx", "lint", *arguments], input=stdin)


def test_comments_may_be_in_any_encoding() -> None:
    latin = GOOD.replace("# more", "# für").encode("latin-1")
    done = run("-", "--nginx-version", "1.22.1", stdin=latin)
    assert (done.exit_code, done.output[:8]) == (0, "0 errors")


def test_the_command_exits_1_on_findings_and_0_without(tmp_path: Path) -> None:
    path = tmp_path / "nginx.conf"
    path.write_text(GOOD)
    done = run(str(path), "--nginx-version", "1.22.1")
    assert done.exit_code == 0, done.output
    assert "0 errors" in done.output
    path.write_text(GOOD.replace("proxy_cache_lock on;", "").replace("z:32m", "z:1m"))
    done = run(str(path), "--nginx-version", "1.22.1")
    assert done.exit_code == 1
    assert f"warning no-lock  {path}:15" in done.output
    assert "  + proxy_cache_lock on;" in done.output
    assert max(map(len, done.output.replace(str(path), "").splitlines())) <= 80
    assert run(str(path), "--severity", "error").exit_code == 0
    assert run(str(path), "--ignore", "no-lock", "--ignore", "zone-size").exit_code == 0


def test_what_is_mended_alike_is_said_once_and_fits_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # for a short name
    location = "location /{} {{ proxy_pass http://a; proxy_cache z; proxy_cache_valid 1h; }}\n"
    text = "".join(location.format(number) for number in range(9))
    path = Path("nginx.conf")
    path.write_text(
        "http { proxy_cache_path /x keys_zone=z:10m max_size=10m inactive=1h levels=1:2;\n"
        f"server {{ {text} }} }}"
    )
    shown = CliRunner().invoke(main, ["nginx", "lint", str(path)]).output
    assert shown.count("warning no-lock") == 1
    assert f"also {path}:3 in location /1" in " ".join(shown.replace("|", "").split())
    assert "and 4 more places; --json has all" in shown
    assert max(map(len, shown.splitlines())) <= 80
    found = json.loads(CliRunner().invoke(main, ["nginx", "lint", "--json", str(path)]).output)
    assert sum(each["rule"] == "no-lock" for each in found["findings"]) == 9


def test_the_command_reads_a_dump_from_standard_input_and_prints_json() -> None:
    dump = f"# configuration file /etc/nginx/nginx.conf:\n{GOOD.replace('lock on', 'lock off')}\n"
    done = run("-", "--json", "--nginx-version", "1.22.1", stdin=dump)
    assert done.exit_code == 1
    answer = json.loads(done.stdout)
    assert [each["rule"] for each in answer["findings"]] == ["no-lock"]
    assert answer["findings"][0]["directive"] == "proxy_cache_lock off"
    assert answer["findings"][0]["file"] == "/etc/nginx/nginx.conf"
    assert answer["cached_locations"] == ["location /"]


def test_mistakes_in_names_are_told(tmp_path: Path) -> None:
    path = tmp_path / "nginx.conf"
    path.write_text(GOOD.replace("proxy_cache z;", "proxy_cache z; # nearcache: ignore[lok]"))
    assert f"{path}:15: no rule is called 'lok'" in " ".join(run(str(path)).stderr.split())
    done = run(str(path), "--ignore", "no-look")
    assert (done.exit_code, "did you mean no-lock?" in done.stderr) == (2, True)
    assert run(str(path), "--nginx-version", "new").exit_code == 2
    assert run(str(tmp_path / "missing")).exit_code == 2


def started(start_nginx: StartNginx, upstream: Upstream, lines: str) -> Nginx:
    return start_nginx(
        http="proxy_cache_path {cache} levels=1:2 keys_zone=z:1m inactive=1h;",
        server=f"""location / {{ proxy_pass http://127.0.0.1:{upstream.port}; proxy_cache z;
            proxy_cache_valid 200 1h; add_header X-Cache $upstream_cache_status always; {lines} }}
            """,
    )


def test_what_decoded_path_says_happens(start_nginx: StartNginx, upstream: Upstream) -> None:
    upstream.script = lambda path, headers: Answer(path.encode())
    nginx = started(start_nginx, upstream, "proxy_cache_key $uri$is_args$args;")
    assert nginx.fill("/a%3Fb=1").body == b"/a%3Fb=1"
    assert nginx.get("/a?b=1").body == b"/a%3Fb=1"


def test_what_the_fix_of_decoded_path_says_happens(
    start_nginx: StartNginx, upstream: Upstream
) -> None:
    upstream.script = lambda path, headers: Answer(path.encode())
    nginx = started(start_nginx, upstream, 'proxy_cache_key "$scheme://$host $args $uri";')
    for path in ("/a%3Fb=1", "/a?b=1", "/a%20b=1", "/a%20b?=1"):
        assert nginx.fill(path).body == path.encode()


def test_what_buffering_off_says_happens(start_nginx: StartNginx, upstream: Upstream) -> None:
    nginx = started(start_nginx, upstream, "proxy_buffering off;")
    assert {nginx.get("/").cache for _ in range(5)} == {"MISS"}


def test_what_unkeyed_arguments_says_happens(start_nginx: StartNginx, upstream: Upstream) -> None:
    upstream.script = lambda path, headers: Answer(path.encode())
    nginx = started(start_nginx, upstream, "proxy_cache_key $uri;")
    assert nginx.fill("/a?callback=evil").body == b"/a?callback=evil"
    assert nginx.get("/a").body == b"/a?callback=evil"


def test_set_args_is_forwarded_and_keyed(start_nginx: StartNginx, upstream: Upstream) -> None:
    upstream.script = lambda path, headers: Answer(path.encode())
    nginx = started(
        start_nginx, upstream, 'set $args "q=$arg_q"; proxy_cache_key "$host $args $uri";'
    )
    assert nginx.fill("/a?utm=1&q=2").body == b"/a?q=2"
    assert nginx.get("/a?q=2&x=3").cache == "HIT"


PIECES = re.findall(r"\s+|[;{}]|[^\s;{}]+", GOOD)
MORE_PIECES = PIECES + re.findall(r"\s+|[;{}]|[^\s;{}]+", " ".join(case[2] for case in CASES))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(PIECES) - 1), st.none() | st.sampled_from(sorted(set(MORE_PIECES)))
        ),
        max_size=6,
    )
)
def test_whatever_is_broken_in_it_is_judged_or_refused(
    changes: list[tuple[int, str | None]],
) -> None:
    pieces = list(PIECES)
    for at, piece in changes:
        pieces[at] = piece or ""
    with contextlib.suppress(NginxError):
        found("".join(pieces))
