"""Configurations are read as nginx reads them, and nginx itself says whether that is so."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcache.errors import NginxError
from nearcache.nginx.config.read.configuration import (
    DEFAULT_INACTIVE_S,
    parse_version,
    read_configuration,
    understand,
)
from nearcache.nginx.config.read.directives import DUMPED_FILE, parse_tree
from nearcache.nginx.config.read.units import format_size, format_time, parse_size, parse_time
from tests.nginx.conftest import StartNginx, Upstream

CACHED = """
http {
    log_format timed escape=json '{"u":"$uri",'
                                 '"t":"$upstream_response_time"}';
    access_log /var/log/nginx/timed.log timed buffer=32k;
    proxy_cache_path /var/cache/a levels=1:2 keys_zone=a:10m inactive=1h30m max_size=2g
                     min_free=512m use_temp_path=off;
    uwsgi_cache_path /var/cache/b keys_zone=b:512k;
    map $uri $kind { default page; ~^/(?<first>[a-z]+)/ "$first"; }
    proxy_cache_valid 1m;
    server {
        server_name example.org www.example.org;
        listen 443 ssl;
        proxy_cache a;
        proxy_cache_valid 200 1h;
        proxy_cache_valid any 10s;
        location /one {
            proxy_pass http://app;
            location /one/two { proxy_cache_valid 404 5s; proxy_pass http://two; }
            location /one/three { }
            if ($arg_fresh) { proxy_no_cache 1; }
        }
        location = /off { proxy_pass http://app; proxy_cache off; }
        location ~* \\.json$ { uwsgi_pass unix:/run/app.sock; uwsgi_cache b; }
        location ~^/tight { return 204; }
        location @named { proxy_pass http://app; proxy_cache_key "$host$uri"; }
    }
}
"""


def location(text: str, pattern: str):
    return next(p for p in read_configuration(text).locations if p.pattern == pattern)


def test_caches_have_their_numbers_and_nginx_s_defaults() -> None:
    first, second = read_configuration(CACHED).caches
    assert (first.kind, first.path, first.zone) == ("proxy", "/var/cache/a", "a")
    assert (first.levels, first.zone_bytes, first.inactive_s) == ((1, 2), 10 << 20, 5400)
    assert (first.max_size, first.min_free, first.use_temp_path) == (2 << 30, 512 << 20, False)
    assert (second.kind, second.levels, second.zone_bytes) == ("uwsgi", (), 512 << 10)
    assert (second.inactive_s, second.max_size) == (DEFAULT_INACTIVE_S, None)


def test_formats_are_joined_and_logs_name_theirs() -> None:
    configuration = read_configuration(CACHED)
    assert configuration.formats["timed"] == '{"u":"$uri","t":"$upstream_response_time"}'
    assert "$remote_addr" in configuration.formats["combined"]
    assert [(log.path, log.format) for log in configuration.logs] == [
        ("/var/log/nginx/timed.log", "timed")
    ]


def test_a_list_is_replaced_by_the_innermost_level_and_never_merged() -> None:
    one, two = location(CACHED, "/one"), location(CACHED, "/one/two")
    assert [v.statuses for v in one.valid] == [("200",), ("any",)]
    assert [(v.statuses, v.seconds) for v in two.valid] == [(("404",), 5)]


def test_a_nested_location_has_the_cache_and_not_the_pass_of_its_parent() -> None:
    assert location(CACHED, "/one/three").passes is None
    assert location(CACHED, "/one/three").zone is None
    assert location(CACHED, "$arg_fresh").upstream == "http://app"
    assert location(CACHED, "$arg_fresh").no_cache == ("1",)
    assert location(CACHED, "/one").no_cache == ()
    assert location(CACHED, "/off").zone is None


def test_the_key_is_the_one_set_or_the_protocol_s_default() -> None:
    assert location(CACHED, "/one").key == "$scheme$proxy_host$request_uri"
    assert location(CACHED, "/one").key_is_default
    assert location(CACHED, "named").key == "$host$uri"
    assert location(CACHED, r"\.json$").key == ""


def test_variables_are_followed_through_maps_and_set() -> None:
    configuration = read_configuration(CACHED + "http { server { set $late $kind$arg_x; } }")
    assert configuration.variables_in("${kind}s") == {"kind", "uri", "first"}
    (kind,) = (made for made in configuration.maps if made.variable == "kind")
    assert kind.has_regex


def test_a_dump_of_nginx_reads_like_its_files(tmp_path: Path) -> None:
    (tmp_path / "sites").mkdir()
    (tmp_path / "nginx.conf").write_text(
        f"events {{}}\npid {tmp_path}/pid;\nerror_log stderr;\n"
        "http {\n    include sites/*.conf;\n    include common;\n}\n"
    )
    (tmp_path / "common").write_text("proxy_cache_valid 200 1h;\n")
    for name in ("a", "b"):
        (tmp_path / "sites" / f"{name}.conf").write_text(
            f"server {{\n  server_name {name};\n"
            "  location / { proxy_pass http://127.0.0.1:1;\n    include common; }\n}\n"
        )
    done = subprocess.run(
        ["nginx", "-T", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(DUMPED_FILE.findall(done.stdout)) == 4
    (tmp_path / "dump").write_text(done.stdout)

    def seen(configuration):
        return [(p.server_names, p.place, [d.place for d in p.all("proxy_cache_valid")])
                for p in configuration.locations]  # fmt: skip

    from_files = seen(read_configuration(tmp_path / "nginx.conf"))
    assert len(from_files) == 4
    assert from_files[3] == (("b",), f"{tmp_path}/sites/b.conf:3", [f"{tmp_path}/common:1"])
    assert seen(read_configuration(tmp_path / "dump")) == from_files
    assert seen(read_configuration(done.stdout)) == from_files


def test_an_include_that_cannot_be_read_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "nginx.conf"
    path.write_text("http {\n include missing.conf;\n proxy_cache_path /c keys_zone=z:1m;\n}\n")
    configuration = read_configuration(path)
    assert len(configuration.caches) == 1
    assert f"{path}:2: include {tmp_path}/missing.conf was not read" in configuration.troubles[0]


def test_a_file_that_includes_itself_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "nginx.conf").write_text("include nginx.conf;\n")
    with pytest.raises(NginxError, match="includes itself"):
        read_configuration(tmp_path / "nginx.conf")


@pytest.mark.parametrize(
    ("text", "line"),
    [("http {\n server {\n", 2), ("http {\n a b }\n}", 2), ("}\n\n", 1),
     ("http {\n proxy_cache z\n server { } }\n", 2),
     ("location / {\n proxy_pass http://x }\n}\n", 2)],
)  # fmt: skip
def test_what_is_no_configuration_is_an_error_with_its_line(text: str, line: int) -> None:
    with pytest.raises(NginxError, match=rf":{line}: .*nginx -t"):
        read_configuration(text)


def test_a_line_that_only_crossplane_does_not_know_is_told_and_left_out() -> None:
    configuration = read_configuration("http {\n gzip on off;\n proxy_cache_path /c;\n}\n")
    said = 'invalid number of arguments in "{}" directive; this line was left out'
    assert configuration.troubles == (
        "(text):2: " + said.format("gzip"),
        "(text):3: " + said.format("proxy_cache_path"),
    )


def test_a_missing_file_says_what_to_give() -> None:
    with pytest.raises(NginxError, match=r"give nginx\.conf or the output of nginx -T"):
        read_configuration("/nowhere/nginx.conf")


def test_nginx_agrees_about_what_is_inherited(start_nginx: StartNginx, upstream: Upstream) -> None:
    server = f"""
        add_header A server; add_header B server;
        location /plain {{ return 200; }}
        location /own {{ add_header C own; return 200;
            location /own/below {{ return 200; }}
            location /own/other {{ add_header A other; return 200; }} }}
        location /if {{ add_header C outer; if ($arg_x) {{ add_header D inner; }}
            proxy_pass http://127.0.0.1:{upstream.port}; }}"""
    nginx = start_nginx(server=server)
    configuration = read_configuration(nginx.configuration)
    for url in ("/plain", "/own", "/own/below", "/own/other", "/if", "/if?x=1"):
        pattern = "$arg_x" if "?" in url else url
        here = next(p for p in configuration.locations if p.pattern == pattern)
        expected = {tuple(d.args) for d in here.all("add_header")}
        answer = nginx.get(url)
        assert answer.status == 200
        assert {(k, v) for k, v in answer.headers.items() if k in "ABCD"} == expected, url


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10m", 600), ("1h30m", 5400), ("1d 2h", 93600), ("45", 45), ("1M", 2592000),
     ("500ms", 0.5), ("$ttl", None), ("", None), ("h", None)],
)  # fmt: skip
def test_times_are_read_as_nginx_reads_them(text: str, seconds: float | None) -> None:
    assert parse_time(text) == seconds


def test_units_are_written_as_they_are_read() -> None:
    for seconds in (1, 90, 600, 5400, 86400, 90000):
        assert parse_time(format_time(seconds)) == seconds
    for size in (1, 1000, 1024, 10 << 20, 3 << 30):
        assert parse_size(format_size(size)) == size
    assert parse_version("nginx version: nginx/1.30.4 (Ubuntu)") == (1, 30, 4)


WORDS = st.lists(
    st.sampled_from(
        ["http", "server", "location", "/", "{", "}", ";", "#", '"', "'", "\\", "$", "${", "~",
         "proxy_cache", "proxy_cache_path", "keys_zone=z:1m", "levels=9", "map", "if", "(", ")",
         "include", "*", "\n", "proxy_cache_valid", "log_format", "access_log", "set", "x", "é"]
    ),
    max_size=40,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(WORDS.map(" ".join))
def test_whatever_is_given_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(NginxError):
        configuration = understand(parse_tree(text))
        for place in configuration.locations:
            assert isinstance(place.key, str)
            assert place.valid is not None
            assert configuration.variables_in(place.key) is not None
