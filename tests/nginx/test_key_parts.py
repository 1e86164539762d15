"""Locations have keys of their own: what one nginx logged is replayed with each location's."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from nearcache.nginx.cachedir.directory import CacheDir
from nearcache.nginx.config.read.configuration import read_configuration
from nearcache.nginx.config.read.site import EVERYTHING, site_of
from nearcache.nginx.whatif.keyshapes import of_directory, of_log

from .conftest import Answer, Nginx, StartNginx, Upstream, wait_for
from .traffic import count_lines, run_json

FORMAT = (
    "$msec $request_time $upstream_response_time $upstream_cache_status $status "
    "$body_bytes_sent $request_method $scheme $host $request_uri $upstream_http_cache_control"
)
HOSTS = ("a.example", "b.example", "c.example")
REQUESTS = 500


@pytest.fixture
def several(start_nginx: StartNginx, upstream: Upstream) -> Nginx:
    """An nginx whose hosts have entries of their own below /api/, and share those of pages."""
    upstream.script = lambda path, headers: Answer(b"x" * 500)
    location = f"proxy_pass http://127.0.0.1:{upstream.port}; proxy_cache z; proxy_cache_valid 1h;"
    nginx = start_nginx(
        http="proxy_cache_path {cache} levels=1:2 keys_zone=z:1m inactive=1h;"
        f"log_format several '{FORMAT}';",
        server=f"""
            access_log several.log several;
            add_header X-Cache $upstream_cache_status always;
            location /api/ {{ {location} proxy_cache_key $scheme$host$request_uri; }}
            location / {{ {location} proxy_cache_key $request_uri; }}""",
    )
    chance = random.Random(3)
    for _ in range(REQUESTS):
        path = f"/{chance.choice(['api', 'page'])}/{min(int(chance.paretovariate(0.7)), 60)}"
        nginx.get(path, {"Host": chance.choice(HOSTS)})
    assert wait_for(lambda: count_lines(nginx.directory / "several.log") == REQUESTS)
    return nginx


def options(nginx: Nginx) -> tuple[object, ...]:
    return (nginx.directory / "several.log", "--format", FORMAT)


def test_whatif_replays_each_location_with_its_own_keys(several: Nginx) -> None:
    found = run_json(
        "whatif", *options(several), "--config", several.configuration, "--ttl", "2h", "--anyway"
    )
    test = found["backtest"]
    assert test["modelled_all"] == pytest.approx(test["logged_all"], abs=0.01)
    assert test["agreement"] > 0.98, test["disagreements"]
    assert test["requests"] > 200


def test_misses_are_those_of_each_locations_keys(several: Nginx) -> None:
    found = run_json("misses", *options(several), "--config", several.configuration)
    lines = [line.split() for line in (several.directory / "several.log").read_text().splitlines()]
    missed = Counter(line[3] for line in lines)["MISS"]
    assert {each["name"]: each["requests"] for each in found["reasons"]} == {"compulsory": missed}
    top = {each["url"]: each["host"] for each in found["top"]}
    assert {host for url, host in top.items() if url.startswith("/api/")} <= set(HOSTS)


def test_without_a_configuration_the_log_shows_which_locations_share_entries(
    several: Nginx,
) -> None:
    found = run_json("whatif", *options(several), "--inactive-now", "1h", "--ttl", "2h", "--anyway")
    test = found["backtest"]
    assert test["modelled_all"] == pytest.approx(test["logged_all"], abs=0.01)
    said = next(each for each in found["assumed"] if each.startswith("keys, as the log shows"))
    assert "scheme and host and args /api/, scheme and args elsewhere" in said


def test_without_a_configuration_the_directory_shows_it_too(several: Nginx) -> None:
    with CacheDir(several.cache) as directory:
        shapes = of_directory(directory)
    assert shapes
    assert shapes.locations in ((("", "/api/"),), (("", "/page/"),))
    assert set(shapes.key_parts) == {"scheme host args", "args"}
    assert (shapes.locations[0][1] == "/api/") is (shapes.key_parts[0] == "scheme host args")
    found = run_json(
        "whatif", *options(several), "--cache", several.cache, "--inactive-now", "1h",
        "--ttl", "2h", "--anyway",
    )  # fmt: skip
    test = found["backtest"]
    assert test["modelled_all"] == pytest.approx(test["logged_all"], abs=0.01)
    assert any("cache directory" in each for each in found["assumed"])


def test_few_hosts_teach_nothing() -> None:
    assert of_log([]) is None
    assert of_log([("/", 9, 0)]) is None
    assert of_log([("/", 0, 90)]) is None
    shapes = of_log([("/", 3, 90), ("/page/", 50, 1)])
    assert shapes
    assert shapes.locations == (("", "/page/"),)
    assert shapes.key_parts == ("scheme args", EVERYTHING)


CONFIGURATION = """http { proxy_cache_path /c keys_zone=z:1m; server {
    server_name a.example b.example; proxy_cache z;
    location /api/ { proxy_pass http://app; proxy_cache_key $scheme$host$request_uri; }
    location /bare { proxy_pass http://app; proxy_cache_key $uri; }
    location /head { proxy_pass http://app; proxy_cache_key $request_method$host$uri$is_args$args; }
    location /odd { proxy_pass http://app; proxy_cache_key $request_uri$cookie_x; }
    location /files { root /srv; }
    location / { proxy_pass http://app; } } }"""


def test_what_a_key_is_made_of_is_read_for_each_location() -> None:
    found = site_of(read_configuration(CONFIGURATION))
    parts = dict(zip(found.locations, found.key_parts, strict=False))
    assert parts == {
        ("", "/api/"): "scheme host args",
        ("", "/bare"): "",
        ("", "/head"): "host method args",
        ("", "/odd"): EVERYTHING,
        ("", "/files"): "scheme host args",
        ("", "/"): "scheme args",
    }
    assert len(found.key_parts) == len(found.locations) + 1
    assert found.notes == (
        "the cache key has no host in /bare, /: a URL is one entry for all there",
    )


def test_the_same_location_of_servers_that_pass_to_different_ones_has_the_host() -> None:
    text = """http { proxy_cache_path /c keys_zone=z:1m; proxy_cache z;
        server { server_name a.example; location / { proxy_pass http://one; } }
        server { server_name b.example; location / { proxy_pass http://two; } } }"""
    assert "host" in site_of(read_configuration(text)).key_parts[0]
    one = site_of(read_configuration(text), "a.example")
    assert one.key_parts[0] == "scheme args"


def test_arguments_are_one_entry_where_the_key_has_none(tmp_path: Path) -> None:
    log, conf = tmp_path / "a.log", tmp_path / "nginx.conf"
    log.write_text(
        "".join(
            f"{1000 + n}.000 0 - {'HIT' if n else 'MISS'} 200 9 GET http a.example /x?n={n} -\n"
            for n in range(300)
        )
    )
    conf.write_text(
        """http { proxy_cache_path /c keys_zone=z:1m inactive=1h; server { location / {
        proxy_pass http://app; proxy_cache z; proxy_cache_valid 1h; proxy_cache_key $uri; } } }"""
    )
    found = run_json("whatif", log, "--format", FORMAT, "--config", conf, "--ttl", "2h", "--anyway")
    assert found["today"]["keys"] == 1
    assert found["today"]["fetches"] == 1
