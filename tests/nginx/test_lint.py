"""Every rule of lint: a configuration that has what it is about, beside one that has nothing."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import django
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcache.cli import main
from nearcache.errors import NginxError
from nearcache.nginx.config.lint import NAMES, Examined, Finding, lint
from nearcache.nginx.config.lint.model import Directory
from nearcache.nginx.config.lint.survey import installed_django, measure
from nearcache.nginx.config.read.configuration import Version, read_configuration
from tests.needs import need
from tests.nginx.conftest import Answer, Nginx, StartNginx, Upstream, every_nginx

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
    map $http_user_agent $device {{ default desktop; ~Mobi phone; }}
    map $request_method $zone {{ default z; PURGE off; POST ""; }}
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
    ("unkeyed-header", "Host $host;",
     "Host $host; proxy_set_header X-Forwarded-Host $http_x_forwarded_host;", OLD, True),
    ("unkeyed-header", "Host $host;",
     "Host $host; proxy_set_header X-Device $http_x_device;", OLD, True),
    ("unkeyed-header", "Host $host;",
     "Host $host; proxy_set_header Accept-Language $cookie_lang;", OLD, True),
    ("unkeyed-header", "# more",
     ("location /u { uwsgi_pass 127.0.0.1:9; uwsgi_cache u; uwsgi_cache_key $host$request_uri; "
     "uwsgi_param HTTP_X_FORWARDED_PROTO $http_x_forwarded_proto; }"), OLD, False),
    ("split-arguments", ":9;\n            proxy_set", ":9$uri;\n            proxy_set", OLD, True),
    ("decoded-path", KEY, "proxy_cache_key $scheme$host$uri$is_args$args;", OLD, True),
    ("methods", "proxy_cache z;", "proxy_cache z; proxy_cache_methods GET POST;", OLD, True),
    ("head", "proxy_cache z;", "proxy_cache z; proxy_cache_convert_head off;", OLD, True),
    ("slice", "proxy_cache z;", "proxy_cache z; slice 1m;", OLD, True),
    ("zone-unused", "# outer", MORE.format("y"), OLD, True),
    ("zone-unknown", "proxy_cache z;", "proxy_cache zz;", OLD, False),
    ("zone-unknown", "# more",
     "location /u { uwsgi_pass 127.0.0.1:9; uwsgi_cache z; uwsgi_cache_key $uri; }", OLD, False),
    ("zone-twice", "# outer", MORE.format("y").replace("=y", "=z"), OLD, False),
    ("zone-twice", "# outer", "limit_req_zone $binary_remote_addr zone=z:1m rate=1r/s;", OLD,
     False),
    ("zone-twice", "# outer", "upstream app { zone z 64k; server 127.0.0.1:9; }", OLD, False),
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
    elsewhere = {"temp-path", "empty-header"}
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
        # headers that are in the key, that are set to one thing, or that no answer is made by
        (f"Host $host;\n            proxy_cache z;\n            {KEY}",
         ("Host $host; proxy_cache z; proxy_set_header X-Device $device; "
         'proxy_cache_key "$scheme://$host$request_uri $device";')),
        (f"Host $host;\n            proxy_cache z;\n            {KEY}",
         ("Host $host; proxy_cache z; proxy_set_header X-Device $device; set $cl_key "
         '"$scheme://$host$request_uri $http_user_agent"; proxy_cache_key $cl_key;')),
        ("Host $host;", ("Host $host; proxy_set_header X-Forwarded-Host $host; proxy_set_header "
         "X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header X-Real-IP $http_x_real_ip; "
         "proxy_set_header Upgrade $http_upgrade; proxy_set_header X-Forwarded-Proto $scheme; "
         "proxy_set_header X-Request-ID $http_x_request_id; proxy_set_header X-Query $arg_q;")),
        ("Host $host;", ("Host $host; proxy_set_header Accept-Language $http_accept_language; "
         "proxy_set_header User-Agent $http_user_agent; proxy_set_header Cookie $http_cookie;")),
        ("Host $host;", "Host $host; proxy_set_header X-User $cookie_sessionid;"),
        ("proxy_cache z;", "proxy_cache $zone;"),
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


def told(rule: str, text: str, **beside: object) -> list[Finding]:
    findings = lint(Examined(read_configuration(text, version=OLD), **beside))
    return [finding for finding in findings if finding.rule == rule]


@pytest.mark.parametrize(
    ("value", "made_of"),
    [
        ("$device", "$http_user_agent"),
        ("$http_x_forwarded_proto", "$http_x_forwarded_proto"),
        ("$lang", "$cookie_lang"),
        ("$inside", "$inside"),
        ("$half", "$half"),
        ("$user", "$user"),
        ("$ssl_client_s_dn", "$ssl_client_s_dn"),
    ],
)
def test_a_header_that_is_not_in_the_key_is_told_by_what_it_is_made_of(
    value: str, made_of: str
) -> None:
    text = GOOD.replace(
        "# outer",
        """
        geo $inside { default 0; 10.0.0.0/8 1; }
        split_clients $remote_addr $half { 50% a; * b; }""",
    ).replace(
        "Host $host;",
        f"Host $host; set $lang en; if ($cookie_lang) {{ set $lang $cookie_lang; }} "
        f"auth_request /auth; auth_request_set $user $upstream_http_x_user; "
        f"proxy_set_header X-Of-Mine {value};",
    )
    (finding,) = told("unkeyed-header", text)
    assert f"x-of-mine from {made_of}, and" in finding.why
    assert finding.fix == f'proxy_cache_key "$scheme://$host$request_uri {value}";'
    assert told("unkeyed-header", text.replace(KEY, finding.fix)) == []


def test_a_map_that_names_a_zone_there_is_not_is_found() -> None:
    text = GOOD.replace("PURGE off", "PURGE other").replace("proxy_cache z;", "proxy_cache $zone;")
    (finding,) = told("zone-unknown", text)
    assert "there is no zone other of proxy_cache_path (there is z)" in finding.why
    assert told("zone-unused", text.replace("# outer", MORE.format("y"))) != []
    unknown = text.replace("PURGE other", "~(?<named>.*) $named").replace(
        "# outer", MORE.format("y")
    )
    assert told("zone-unused", unknown) + told("zone-unknown", unknown) == []


def test_what_a_location_by_variable_keeps_is_that_of_the_zone() -> None:
    text = GOOD.replace("proxy_cache z;", "proxy_cache $zone;")
    assert found(text.replace("inactive=1h", "inactive=10m")) == ["inactive"]


SEEN = Directory(files=9, size_bytes=9, complete=True, device=1, varies_by=("cookie", "x-team"))


def test_a_header_that_stored_responses_vary_by_is_told_where_it_may_come_empty() -> None:
    seen = {"directories": {"/tmp/nearcache-lint/z": SEEN}}
    (finding,) = told("empty-header", GOOD, **seen)
    assert "vary by x-team: who sends it empty" in finding.why
    assert (finding.severity, finding.fix) == ("note", "proxy_set_header X-Team $http_x_team;")
    for line in (finding.fix, "proxy_ignore_headers Vary;"):
        mended = GOOD.replace("Host $host;", f"Host $host; {line}")
        assert told("empty-header", mended, **seen) == []


@pytest.mark.parametrize(
    ("version", "is_flawed"),
    [((4, 2, 30), True), ((5, 2, 18), True), ((5, 2, 19), False), ((6, 0, 9), True),
     ((6, 0, 10), False), ((6, 1, 2), True), ((6, 1, 3), False), ((6, 2, 0), False),
     (None, False)],
)  # fmt: skip
def test_the_flaw_of_the_installed_django_is_told(version: Version | None, is_flawed: bool) -> None:
    findings = told("empty-header", GOOD, django=version)
    assert [each.severity for each in findings] == ["note"] * is_flawed
    seen = {"directories": {"/tmp/nearcache-lint/z": SEEN}}
    (varied,) = told("empty-header", GOOD, django=version, **seen)
    assert varied.severity == ("warning" if is_flawed else "note")
    assert ("vary by cookie, x-team:" in varied.why) == is_flawed
    if is_flawed:
        number = ".".join(map(str, version or ()))
        assert f"Django {number}, which is installed here, has CVE-2026-113593" in findings[0].why
    quiet = GOOD.replace("Host $host;", "Host $host; proxy_pass_request_headers off;")
    assert told("empty-header", quiet, django=version) == []


def test_the_django_that_is_installed_is_looked_at() -> None:
    assert installed_django() == django.VERSION[:3]


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


def by_device(path: str, headers: Mapping[str, str]) -> Answer:
    said = headers.get("X-Device", "none")
    return Answer(said.encode(), headers={"Vary": "X-Device"})


def test_what_unkeyed_header_says_happens_and_no_vary_helps(
    start_nginx: StartNginx, upstream: Upstream
) -> None:
    upstream.script = by_device
    nginx = started(start_nginx, upstream, "proxy_set_header X-Device $cookie_device;")
    assert nginx.fill("/", {"Cookie": "device=phone"}).body == b"phone"
    assert nginx.get("/", {"Cookie": "device=desktop"}).body == b"phone"


def test_what_unkeyed_header_says_to_paste_helps(
    start_nginx: StartNginx, upstream: Upstream
) -> None:
    upstream.script = by_device
    nginx = started(
        start_nginx, upstream, "proxy_set_header X-Device $cookie_device; "
        'proxy_cache_key "$scheme://$host$request_uri $cookie_device";'
    )  # fmt: skip
    for device in ("phone", "desktop"):
        assert nginx.fill("/", {"Cookie": f"device={device}"}).body == device.encode()


@every_nginx
def test_what_empty_header_says_happens_and_its_fix_helps(
    start_nginx: StartNginx, upstream: Upstream
) -> None:
    upstream.script = by_device
    nginx = started(start_nginx, upstream, "")
    assert nginx.fill("/").body == b"none"
    assert nginx.get("/", {"X-Device": ""}).body == b"none"
    assert nginx.fill("/other", {"X-Device": ""}).body == b""
    assert nginx.get("/other").body == b""
    assert measure(str(nginx.cache)).varies_by == ("x-device",)
    mended = started(start_nginx, upstream, "proxy_set_header X-Device $http_x_device;")
    assert mended.fill("/", {"X-Device": ""}).body == mended.fill("/").body == b"none"
    assert mended.fill("/", {"X-Device": "phone"}).body == b"phone"


def test_what_zone_unknown_says_of_a_variable_happens(
    start_nginx: StartNginx, upstream: Upstream
) -> None:
    nginx = start_nginx(
        http="""proxy_cache_path {cache} keys_zone=z:1m;
            map $request_uri $zone { default z; /off off; /lost lost; }""",
        server=f"location / {{ proxy_pass http://127.0.0.1:{upstream.port}; proxy_cache $zone; }}",
    )
    assert [nginx.get(path).status for path in ("/", "/off", "/lost")] == [200, 200, 500]
    assert upstream.asked == ["/", "/off"]


@pytest.mark.parametrize("text", [new for rule, _, new, _, _ in CASES if rule == "zone-twice"])
def test_what_zone_twice_says_happens(text: str, tmp_path: Path) -> None:
    done = nginx_takes(GOOD.replace("# outer", text), tmp_path)
    assert done.returncode == 1
    assert re.search(
        "duplicate zone|conflicts with already declared|already declared|already bound", done.stderr
    )


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
