"""What users write in LOCATION, and what it means."""

from __future__ import annotations

import inspect
import ssl
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.connection import parse_url

from nearcache.engines.redis.target import location as written
from nearcache.engines.redis.target.options import (
    ALIASES,
    ALIKE,
    FIELDS,
    KEPT,
    OURS,
    SPECIAL,
    TargetOptions,
)
from nearcache.engines.redis.target.target import Address, Target

SECRET = "s3cr:t@/#?,x"
QUOTED = "s3cr%3At%40%2F%23%3F%2Cx"


def parse_target(location: Any, **options: Any) -> Target:
    return written.parse_target(location, TargetOptions.parse(options))


def at(*places: str | tuple[str, int]) -> tuple[Address, ...]:
    return tuple(
        Address(path=place) if isinstance(place, str) else Address(host=place[0], port=place[1])
        for place in places
    )


@pytest.mark.parametrize(
    ("location", "fields"),
    [
        ("redis://host", {"addresses": at(("host", 6379))}),
        ("redis://", {"addresses": at(("localhost", 6379))}),
        ("REDIS://Host:1/", {"addresses": at(("Host", 1))}),
        ("valkey://host:7000/3", {"addresses": at(("host", 7000)), "database": 3}),
        ("redis://host/3?db=4", {"addresses": at(("host", 6379)), "database": 4}),
        ("redis://host?db=4&db=5", {"addresses": at(("host", 6379)), "database": 4}),
        ("redis://[::1]:7000/1", {"addresses": at(("::1", 7000)), "database": 1}),
        ("redis://[fe80::1%25eth0]", {"addresses": at(("fe80::1%eth0", 6379))}),
        ("rediss://host", {"addresses": at(("host", 6379)), "tls": True}),
        ("valkeys://host", {"addresses": at(("host", 6379)), "tls": True}),
        ("redis+tls://host", {"addresses": at(("host", 6379)), "tls": True}),
        ("redis://host?ssl=true", {"addresses": at(("host", 6379)), "tls": True}),
        (
            f"redis://:{QUOTED}@host",
            {"addresses": at(("host", 6379)), "password": SECRET},
        ),
        (
            f"redis://me%40home:{QUOTED}@host",
            {"addresses": at(("host", 6379)), "username": "me@home", "password": SECRET},
        ),
        ("redis://:a,b;c@host", {"addresses": at(("host", 6379)), "password": "a,b;c"}),
        ("redis://:a@b@host", {"addresses": at(("host", 6379)), "password": "a@b"}),
        ("unix:///run/r.sock", {"addresses": at("/run/r.sock")}),
        ("unix:///run/my%20r.sock?db=1", {"addresses": at("/run/my r.sock"), "database": 1}),
        (
            f"unix://me:{QUOTED}@/run/r.sock",
            {"addresses": at("/run/r.sock"), "username": "me", "password": SECRET},
        ),
        (
            "redis+socket:///run/r.sock?virtual_host=2",
            {"addresses": at("/run/r.sock"), "database": 2},
        ),
        (
            "redis://a:1,redis://b:2",
            {"addresses": at(("a", 1)), "replicas": at(("b", 2))},
        ),
        (
            "redis://a:1; redis://b:2 ;redis://c",
            {"addresses": at(("a", 1)), "replicas": at(("b", 2), ("c", 6379))},
        ),
        (
            ["redis://:pw@a:1/1", "redis://b:2"],
            {
                "addresses": at(("a", 1)),
                "replicas": at(("b", 2)),
                "password": "pw",
                "database": 1,
            },
        ),
        (
            ("unix:///a", "redis://b"),
            {"addresses": at("/a"), "replicas": at(("b", 6379))},
        ),
        (
            "redis+cluster://a:1,b:2,[::1]:3",
            {"kind": "cluster", "addresses": at(("a", 1), ("b", 2), ("::1", 3))},
        ),
        (
            "rediss+cluster://:pw@a/0",
            {"kind": "cluster", "addresses": at(("a", 6379)), "password": "pw", "tls": True},
        ),
        (
            "redis+sentinel://a,b:1/mine",
            {
                "kind": "sentinel",
                "addresses": at(("a", 26379), ("b", 1)),
                "sentinel_service": "mine",
            },
        ),
        (
            "redis-sentinel://:pw@a/mine/2",
            {
                "kind": "sentinel",
                "addresses": at(("a", 26379)),
                "sentinel_service": "mine",
                "database": 2,
                "password": "pw",
            },
        ),
        (
            "redis-sentinel://a/2#mine",
            {
                "kind": "sentinel",
                "addresses": at(("a", 26379)),
                "sentinel_service": "mine",
                "database": 2,
            },
        ),
        (
            "valkeys+sentinel://a/mine",
            {
                "kind": "sentinel",
                "addresses": at(("a", 26379)),
                "sentinel_service": "mine",
                "tls": True,
                "sentinel_kwargs": (("ssl", True),),
            },
        ),
        (
            "redis://h?socket_timeout=0.5&socket_connect_timeout=2&timeout=7&max_connections=9",
            {
                "addresses": at(("h", 6379)),
                "read_timeout_s": 0.5,
                "connect_timeout_s": 2.0,
                "pool_timeout_s": 7.0,
                "pool_connections": 9,
            },
        ),
        (
            "redis://h?protocol=3&socket_keepalive=no&client_name=web&parser_class=PythonParser",
            {
                "addresses": at(("h", 6379)),
                "protocol": 3,
                "keepalive": False,
                "parser": "python",
                "connection_kwargs": (("client_name", "web"),),
            },
        ),
        (
            "rediss://h?ssl_cert_reqs=CERT_NONE&ssl_check_hostname=False",
            {
                "addresses": at(("h", 6379)),
                "tls": True,
                "connection_kwargs": (("ssl_cert_reqs", "none"), ("ssl_check_hostname", False)),
            },
        ),
        (
            "redis://h?retry_on_timeout=True&health_check_interval=30",
            {"addresses": at(("h", 6379))},
        ),
    ],
)
def test_a_location_says_where_and_how(location: Any, fields: dict[str, Any]) -> None:
    assert parse_target(location) == Target(**fields)


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:p%40w@host:1/2?socket_timeout=3",
        "rediss://:pw@host",
        "unix://me:pw@/run/r.sock?db=3",
        "redis://host/1?db=2",
        "redis://me@host",
    ],
)
def test_redis_py_reads_the_same_out_of_a_url(url: str) -> None:
    theirs, ours = parse_url(url), parse_target(url)
    assert theirs.pop("db", 0) == ours.database
    assert theirs.pop("username", None) == ours.username
    assert theirs.pop("password", None) == ours.password
    assert theirs.pop("path", "") == ours.addresses[0].path
    assert theirs.pop("host", "") == ours.addresses[0].host
    assert theirs.pop("port", 6379) == ours.addresses[0].port
    assert theirs.pop("socket_timeout", 1.0) == ours.read_timeout_s
    assert (theirs.pop("connection_class", None) is redis.SSLConnection) == ours.tls
    assert not theirs


def test_django_redis_s_sentinels() -> None:
    target = parse_target(
        "redis://mine/1",
        sentinels=[("s1", 26379), ("s2", "26380"), "s3", "s4:7"],
        sentinel_kwargs={"password": "theirs", "socket_timeout": 1, "ssl": True},
        password="pw",
    )
    assert target == Target(
        kind="sentinel",
        addresses=at(("s1", 26379), ("s2", 26380), ("s3", 26379), ("s4", 7)),
        sentinel_service="mine",
        sentinel_password="theirs",
        sentinel_kwargs=(("ssl", True),),
        database=1,
        password="pw",
    )


def test_a_url_per_role_asks_to_read_from_replicas() -> None:
    urls = ["redis://mine/1?is_master=1", "redis://mine/1?is_master=0"]
    assert parse_target(urls, sentinels="s1,s2").read_replicas
    assert not parse_target(urls[:1], sentinels="s1").read_replicas
    assert parse_target("redis://a,redis://b", read_replicas=True).read_replicas


def test_what_a_url_says_wins_then_the_pool_s_options_then_names() -> None:
    target = parse_target(
        "redis://:url@host?max_connections=1",
        password="named",
        username="named",
        database=3,
        read_timeout=3,
        connection_kwargs={
            "max_connections": 2,
            "username": "pool",
            "socket_timeout": 2,
            "retry": object(),
            "socket_connect_timeout": None,
        },
    )
    assert (target.password, target.username, target.database) == ("url", "pool", 3)
    assert (target.pool_connections, target.read_timeout_s, target.connect_timeout_s) == (1, 2, 1)


def test_options_that_cannot_be_hashed_do_not_hinder() -> None:
    def target(idle_s: int) -> Target:
        return parse_target(
            "redis://h", connection_kwargs={"socket_keepalive_options": {4: idle_s}}
        )

    assert hash(target(1)) == hash(target(2))
    assert target(1) == target(1) != target(2)


def test_options_of_tls(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.touch()
    target = parse_target(
        "rediss://h",
        connection_kwargs={
            "ssl_ca_certs": ca,
            "ssl_cert_reqs": ssl.CERT_OPTIONAL,
            "ssl_min_version": ssl.TLSVersion.TLSv1_3,
            "ssl_include_verify_flags": "[VERIFY_X509_STRICT]",
        },
    )
    assert dict(target.connection_kwargs) == {
        "ssl_ca_certs": str(ca),
        "ssl_cert_reqs": "optional",
        "ssl_min_version": ssl.TLSVersion.TLSv1_3,
        "ssl_include_verify_flags": (ssl.VerifyFlags.VERIFY_X509_STRICT,),
    }
    nobody = {"ssl_cert_reqs": None}
    assert parse_target("rediss://h", connection_kwargs=nobody).connection_kwargs == (
        ("ssl_cert_reqs", "none"),
    )


@pytest.mark.parametrize(
    ("location", "options", "says"),
    [
        ("", {}, r'is empty; write "redis://127.0.0.1:6379/0"'),
        ([], {}, "is empty"),
        ("127.0.0.1:6379", {}, 'no scheme like "redis://"'),
        ("me:s3cret@host", {}, 'no scheme like "redis://"'),
        ("http://s3cret@host", {}, "none of Redis"),
        ("memcached://host", {}, "none of Redis"),
        ("redis://:s3cret/word@host:6379", {}, "special characters of a password as %XX"),
        ("redis://:s3cret#word@host:6379", {}, "%23"),
        ("redis://host:port", {}, "host:port"),
        ("redis://host:66000", {}, "host:port"),
        ("redis://::1:6379", {}, "IPv6 address in brackets"),
        ("redis://host/mydb", {}, "no database"),
        ("redis://host?db=-1", {}, "whole number"),
        ("redis://a,b", {}, "several hosts in one URL"),
        ("redis://a/1,redis://b/2", {}, "different databases"),
        ("redis://:s3cret@a,redis://:s3cret2@b", {}, "different passwords"),
        ("redis://a,rediss://b", {}, "different TLS settings"),
        ("redis://a,redis+cluster://b", {}, "different kinds"),
        ("unix://run/r.sock", {}, "three slashes"),
        ("unix://", {}, "three slashes"),
        ("rediss+unix:///r.sock", {}, "TLS on a unix socket"),
        ("redis+cluster://a/1", {}, "no databases but 0"),
        ("redis://a/1", {"cluster": True}, "no databases but 0"),
        ("redis://a", {"cluster": True, "database": 1}, "no databases but 0"),
        ("unix:///a", {"cluster": True}, "name its nodes by host"),
        ("redis+sentinel://a,b", {}, "must name one service"),
        (["redis://a", "redis://b"], {"sentinels": "s"}, "must name one service"),
        ("redis://h?sokcet_timeout=1", {}, "did you mean 'socket_timeout'"),
        ("redis://h?socket_timeout=fast", {}, "write a number of seconds"),
        ("redis://h?socket_timeout=0", {}, "above 0"),
        ("redis://h?protocol=4", {}, "2 to 3"),
        ("redis://h?ssl_cert_reqs=none", {}, 'no TLS; write "rediss://"'),
        ("rediss://h?ssl_cert_reqs=maybe", {}, "'none', 'optional', 'required'"),
        ("rediss://h?ssl_ca_certs=/nowhere.pem", {}, "does not exist"),
        ("rediss://h?ssl_include_verify_flags=NO", {}, "VerifyFlags"),
    ],
)
def test_what_is_wrong_is_said_without_the_password(
    location: Any, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        parse_target(location, **options)
    assert "s3cr" not in str(caught.value)


def test_passwords_do_not_show() -> None:
    target = parse_target(
        f"redis://me:{QUOTED}@mine",
        sentinels="s",
        sentinel_kwargs={"password": SECRET},
        connection_kwargs={"client_name": SECRET},
    )
    assert SECRET not in repr(target)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("hiredis", "hiredis"),
        ("redis.connection.HiredisParser", "hiredis"),
        ("redis._parsers._HiredisParser", "hiredis"),
        ("redis.connection.PythonParser", "python"),
        (redis.connection.DefaultParser, "hiredis"),
        ("redis.connection.DefaultParser", None),
    ],
)
def test_parsers_by_our_names_and_by_redis_py_s(given: Any, wanted: str | None) -> None:
    assert parse_target("redis://h", connection_kwargs={"parser_class": given}).parser == wanted


def test_every_name_goes_one_way() -> None:
    tables = [set(ALIASES), set(KEPT), set(OURS), set(SPECIAL)]
    assert sum(map(len, tables)) == len(set.union(*tables))


def test_every_option_reaches_the_target() -> None:
    others = {"cluster", "sentinels", "sentinel_kwargs", "connection_kwargs"}
    assert {each.name for each in FIELDS.values()} - ALIKE == others


def test_redis_py_knows_every_name_that_it_is_given() -> None:
    for name in KEPT:
        maker = redis.SSLConnection if name.startswith("ssl_") else redis.Connection
        inits = [vars(each)["__init__"] for each in maker.__mro__ if "__init__" in vars(each)]
        known = {known for init in inits for known in inspect.signature(init).parameters}
        assert name in known or name == "driver_info"  # redis-py 5.2 does not know that one
