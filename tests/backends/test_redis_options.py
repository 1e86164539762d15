"""Settings of RedisCache: its own, Django's and django-redis's; wrong ones say what to write."""

from __future__ import annotations

import sys
from typing import Any

import hiredis
import pytest
import redis
from django.core.exceptions import ImproperlyConfigured

from nearcache.backends import RedisCache, RedisOptions, SharedMemoryCache
from nearcache.base.options import option_fields
from nearcache.django_cache.redis.foreign_options import THEIRS
from nearcache.engines.redis.target.options import ALIASES, NAMES
from nearcache.engines.redis.target.target import Address
from nearcache.errors import OptionError

URL = "redis://127.0.0.1:6399/3"


def options(location: Any = URL, **given: Any) -> RedisOptions:
    return RedisCache(location, {"OPTIONS": given}).options


def target(location: Any = URL, **given: Any) -> Any:
    return options(location, **given).target


def test_own_options_arrive() -> None:
    found = target(
        read_timeout=0.25,
        connect_timeout=0.5,
        pool_timeout=2,
        pool_connections=7,
        breaker_failures=9,
        breaker_pause=0.3,
        username="u",
        password="p",
        protocol=3,
        parser="python",
        read_replicas=True,
        keepalive=False,
        connection_kwargs={"client_name": "site"},
    )
    assert found.addresses == (Address(host="127.0.0.1", port=6399),)
    assert (found.database, found.username, found.password) == (3, "u", "p")
    assert (found.read_timeout_s, found.connect_timeout_s, found.pool_timeout_s) == (0.25, 0.5, 2)
    assert (found.pool_connections, found.breaker_failures, found.breaker_s) == (7, 9, 0.3)
    assert (found.protocol, found.parser, found.read_replicas) == (3, "python", True)
    assert found.keepalive is False
    assert dict(found.connection_kwargs) == {"client_name": "site"}


def test_without_a_location_it_is_the_usual_one() -> None:
    assert target("").addresses == (Address(host="127.0.0.1", port=6379),)


def test_locations_are_lists_too() -> None:
    found = target(["redis://a:1/0", "redis://b:2/0"])
    assert [str(each) for each in (*found.addresses, *found.replicas)] == ["a:1", "b:2"]
    assert target("redis://a:1/0,redis://b:2/0") == found


def test_django_s_options_are_taken() -> None:
    found = options(
        db=5,
        serializer="django.core.cache.backends.redis.RedisSerializer",
        pool_class="redis.BlockingConnectionPool",
        parser_class="redis.connection.PythonParser",
        socket_timeout=0.5,
        max_connections=11,
        retry_on_timeout=True,
        health_check_interval=30,
        client_name="site",
    )
    assert found.serializer == "pickle"
    assert dict(found.target.connection_kwargs) == {"client_name": "site"}
    assert found.target.parser == "python"
    assert found.target.read_timeout_s == 0.5
    assert found.target.pool_connections == 11
    # As in redis-py, what the URL says wins.
    assert found.target.database == 3
    assert target("redis://127.0.0.1:6399", db=5).database == 5


def test_django_redis_s_options_are_taken() -> None:
    found = options(
        CLIENT_CLASS="django_redis.client.DefaultClient",
        CONNECTION_POOL_CLASS="redis.connection.BlockingConnectionPool",
        CONNECTION_POOL_KWARGS={"max_connections": 20, "timeout": 3, "retry_on_timeout": True},
        REDIS_CLIENT_CLASS="redis.client.Redis",
        REDIS_CLIENT_KWARGS={"ssl": True},
        SERIALIZER="django_redis.serializers.msgpack.MSGPackSerializer",
        COMPRESSOR="django_redis.compressors.zlib.ZlibCompressor",
        PARSER_CLASS="redis.connection.HiredisParser",
        PASSWORD="secret",
        SOCKET_TIMEOUT=5,
        SOCKET_CONNECT_TIMEOUT=4,
        IGNORE_EXCEPTIONS=True,
        CLOSE_CONNECTION=True,
        REPLICA_READ_ONLY=True,
        PICKLE_VERSION=-1,
    )
    assert (found.serializer, found.compressor, found.on_error) == ("msgpack", "zlib", "miss")
    assert (found.target.pool_connections, found.target.pool_timeout_s) == (20, 3)
    assert (found.target.read_timeout_s, found.target.connect_timeout_s) == (5, 4)
    assert (found.target.parser, found.target.password) == ("hiredis", "secret")
    assert not found.target.tls


def test_sentinels_as_django_redis_has_them() -> None:
    found = target(
        "redis://service/2",
        CLIENT_CLASS="django_redis.client.SentinelClient",
        CONNECTION_FACTORY="django_redis.pool.SentinelConnectionFactory",
        CONNECTION_POOL_CLASS="redis.sentinel.SentinelConnectionPool",
        SENTINELS=[("a", 26379), ["b", 26380]],
        SENTINEL_KWARGS={"password": "s"},
    )
    assert (found.kind, found.sentinel_service, found.database) == ("sentinel", "service", 2)
    assert [str(each) for each in found.addresses] == ["a:26379", "b:26380"]
    assert found.sentinel_password == "s"


def test_a_cluster_by_option_and_by_client_class() -> None:
    assert target("redis://a:1", cluster=True).kind == "cluster"
    assert target("redis://a:1", REDIS_CLIENT_CLASS="redis.cluster.RedisCluster").kind == "cluster"


def test_classes_may_be_given_themselves() -> None:
    assert target(pool_class=redis.ConnectionPool).kind == "standalone"
    assert hiredis.__version__
    parser = redis.connection.DefaultParser
    assert target(parser_class=parser).parser in {None, "hiredis"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"SOCKET_TIMOUT": 1}, "did you mean 'SOCKET_TIMEOUT'"),
        ({"read_timeot": 1}, "did you mean 'read_timeout'"),
        ({"sockettimeout": 1}, "did you mean 'socket_timeout'"),
        ({"CONNECTION_POOL_KWARGS": {"max_connection": 1}}, "did you mean 'max_connections'"),
        ({"CONNECTION_POOL_KWARGS": 5}, "no dict"),
        ({"CLIENT_CLASS": "django_redis.client.ShardClient"}, "cluster=True"),
        ({"CLIENT_CLASS": "project.Client"}, "leave it out"),
        ({"SERIALIZER": "project.Serializer"}, "one of ours"),
        ({"serializer": "project.Serializer"}, "one of ours"),
        ({"COMPRESSOR": "project.Compressor"}, "one of ours"),
        ({"CONNECTION_POOL_CLASS": "project.Pool"}, "pool_connections"),
        ({"CONNECTION_FACTORY": "project.Factory"}, "connection_kwargs"),
        ({"PARSER_CLASS": "project.Parser"}, "hiredis"),
        ({"decode_responses": True}, "leave it out"),
        ({"host": "h"}, "LOCATION"),
        ({"read_timeout": 0}, "above 0"),
        ({"read_timeout": -1}, "above 0"),
        ({"read_timeout_s": 1}, "did you mean 'read_timeout'"),
        ({"database": True}, "'database' is True; write a whole number, 0 to 2147483647"),
        ({"protocol": 4}, "2 to 3"),
        ({"parser": "fast"}, "'auto', 'hiredis', 'python'"),
        ({"sentinels": [5]}, "no pairs"),
        ({"sentinel_kwargs": {"pasword": 1}}, "did you mean 'password'"),
        ({"connection_kwargs": {"password": 5}}, "has password that is a int; write text"),
        ({"connection_kwargs": {"decode_responses": True}}, "values are bytes"),
        ({"connection_kwargs": {"connection_class": "mine.Own"}}, "has connection_class"),
        ({"on_error": "ignore"}, "'raise', 'miss'"),
        ({"IGNORE_EXCEPTIONS": True, "on_error": "raise"}, "keep one"),
        ({"compat": "django", "serializer": "json"}, "compat"),
        ({"cluster": True}, "databases"),
        ({"TIMEOUT": 5}, "'TIMEOUT' belongs beside OPTIONS"),
        ({"KEY_PREFIX": "p"}, "'KEY_PREFIX' belongs beside OPTIONS"),
        ({"VERSION": 2}, "'VERSION' belongs beside OPTIONS"),
        ({"KEY_FUNCTION": "a.b"}, "'KEY_FUNCTION' belongs beside OPTIONS"),
        ({"REVERSE_KEY_FUNCTION": "a.b"}, "not needed here"),
        ({"SOCKET_TIMEOUT": "5"}, "'SOCKET_TIMEOUT' is '5'; write a number of seconds above 0"),
        ({"SOCKET_CONNECT_TIMEOUT": -1}, "'SOCKET_CONNECT_TIMEOUT' is -1"),
        ({"DB": "x"}, "'DB' is 'x'"),
        ({"socket_timeout": "x"}, "'socket_timeout' is 'x'"),
        ({"client_name": 5}, "'client_name' is a int; write text"),
        ({"CONNECTION_POOL_KWARGS": {"max_connections": 0}}, "'CONNECTION_POOL_KWARGS' has max"),
        ({"connection_kwargs": {3: 1}}, "names are text"),
        ({"breaker_pause": "1s"}, "'breaker_pause' is '1s'; write a number of seconds above 0"),
        ({"breaker_pause": 0}, "'breaker_pause' is 0; write a number of seconds above 0"),
        ({"CLIENT_CLASS": "django_redis.client.SentinelClient"}, "SENTINELS, which is missing"),
        (
            {"CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory", "SENTINELS": []},
            "SENTINELS, which is missing",
        ),
    ],
)
def test_what_cannot_be_says_what_to_write(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="RedisCache") as caught:
        options(**given)
    assert isinstance(caught.value, OptionError)
    assert says in str(caught.value)


@pytest.mark.parametrize("backend", [RedisCache, SharedMemoryCache])
def test_names_are_text_and_settings_of_django_s_own_are_beside_options(backend: Any) -> None:
    with pytest.raises(OptionError, match="3 is no name"):
        backend("", {"OPTIONS": {3: 1}})
    with pytest.raises(OptionError, match="'TIMEOUT' belongs beside OPTIONS"):
        backend("", {"OPTIONS": {"TIMEOUT": 5}})


def test_sentinels_may_be_in_the_location_too() -> None:
    client = "django_redis.client.SentinelClient"
    assert target("redis+sentinel://a,b/service", CLIENT_CLASS=client).kind == "sentinel"


def test_a_password_is_in_no_error_and_no_repr() -> None:
    found = options("redis://user:hunter2@h/0", connection_kwargs={"client_name": "x"})
    assert "hunter2" not in repr(found.target)
    for location, given in [
        ("redis://user:hunter2@h:port/0", {}),
        ("redis://user:hunter2@h/0", {"PASSWORD": ["hunter2"]}),
    ]:
        with pytest.raises(ImproperlyConfigured) as caught:
            options(location, **given)
        assert "hunter2" not in str(caught.value)


def test_without_redis_py_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ImproperlyConfigured, match=r"nearcache\[redis\]"):
        options("redis://nobody-has-parsed-this:1")


def test_nothing_is_not_given() -> None:
    assert target(PASSWORD="", SOCKET_TIMEOUT=None, USERNAME=None) == target()
    assert target(SOCKET_TIMEOUT=0, SOCKET_CONNECT_TIMEOUT=0.0) == target()


def test_every_option_is_documented_in_a_sentence() -> None:
    for each in option_fields(RedisOptions):
        assert each.metadata["doc"].endswith(".")


def test_every_name_of_theirs_is_one_of_ours_or_without_effect() -> None:
    own = {each.metadata["name"] for each in option_fields(RedisOptions)}
    assert {name for name, _ in THEIRS.values() if name} <= own
    assert {name for name, _ in ALIASES.values()} <= own


def test_no_name_of_theirs_hides_one_of_ours() -> None:
    own = {each.metadata["name"] for each in option_fields(RedisOptions)}
    assert own & THEIRS.keys() == {"serializer", "compressor"}
    # These mean the same there.
    assert own & NAMES <= {"username", "password", "protocol"}


def test_a_backend_is_made_without_parsing_anew_and_connects_to_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def made() -> Any:  # as Django does it, of an equal dict each time
        pool = {"max_connections": 5}
        return RedisCache(URL, {"OPTIONS": {"CONNECTION_POOL_KWARGS": pool, "SENTINELS": None}})

    first = made()
    for step in ("parse", "target"):
        monkeypatch.setattr(RedisOptions, step, property(lambda _: pytest.fail("parsed anew")))
    assert made().options is first.options
    assert made().engine is first.engine


JUNK = [
    5, -1, 1.5, 10**30, float("inf"), float("nan"), True, "x", "\N{FULLWIDTH DIGIT NINE}", b"x",
    [], [1], {"a": 1}, {1: 2}, ("h", 1), [("h", "x")], object(), str.upper,
]  # fmt: skip
THEIR_OWN = {"MAX_ENTRIES", "CULL_FREQUENCY"}  # Django's, which reads them itself


@pytest.mark.parametrize("value", JUNK)
def test_whatever_a_value_is_its_option_is_taken_or_named(value: Any) -> None:
    own = {each.metadata["name"] for each in option_fields(RedisOptions)}
    for name in {*NAMES, *THEIRS, *own} - THEIR_OWN:
        entries: list[tuple[str, dict[str, Any]]] = [
            (URL, {name: value}),
            (URL, {"connection_kwargs": {name: value}}),
            ("redis://service", {"sentinels": [("h", 1)], "sentinel_kwargs": {name: value}}),
        ]
        for location, given in entries:
            said = name
            try:
                options(location, **given)
            except ImproperlyConfigured as error:
                said = str(error)
            assert name in said or "LOCATION" in said
