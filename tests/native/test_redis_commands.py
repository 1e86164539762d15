"""Packed commands are those of a plain packer; values and replies those of nearcache.codec."""

from __future__ import annotations

import enum
import warnings
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pytest
from django.core.cache.backends.base import BaseCache, CacheKeyWarning, InvalidCacheKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nearcache import _core
from nearcache.base.clock import FakeClock
from nearcache.base.counters import Counters
from nearcache.base.keys import encode_key
from nearcache.codec import Undecodable, make_codec
from nearcache.codec.envelope import Envelope, EnvelopeCodec

AUTO = make_codec("auto", "none", 0)
JSON = make_codec("json", "zlib", 10)


class Commands(_core.RedisCommands, BaseCache):
    """As a backend stands: the native class first, Django's second."""

    codec: Any = AUTO
    native_codec = True

    def __init__(self, **params: Any) -> None:
        super().__init__(params)
        self.counters = Counters()

    def final(self, key: Any, version: Any = None) -> bytes:
        return encode_key(BaseCache.make_and_validate_key(self, key, version))


class SafeCommands(Commands):
    codec = JSON
    native_codec = False


class Color(enum.IntEnum):
    RED = 1


class Gone:
    """Pickles, and is not there when it is to be read."""


@pytest.fixture
def cache() -> Commands:
    return Commands()


def packed(*parts: bytes) -> bytes:
    bulks = (b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
    return b"*%d\r\n%s" % (len(parts), b"".join(bulks))


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    scalars | st.binary() | st.decimals(allow_nan=False) | st.dates(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
per_example = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
EDGES: Iterable[Any] = [
    *(True, False, 0, -1, 2**63 - 1, -(2**63), 2**63, 2**200, Color.RED, 1.5, Decimal("1.10")),
    *(b"", "", "x" * 100_000, b"\xff" * 3_000_000, "\ud800", "кириллица", (1, 2), {1}, Gone),
]


# -- keys ------------------------------------------------------------------------------------


@given(
    prefix=st.text(max_size=5),
    key=st.text(max_size=20) | st.text(min_size=230, max_size=260) | st.integers() | st.none(),
    version=st.none() | st.integers() | st.text(max_size=3),
)
@per_example
def test_keys_and_warnings_are_django_s(prefix: str, key: Any, version: Any) -> None:
    cache = Commands(KEY_PREFIX=prefix)

    def seen(make: Any) -> tuple[bytes, list[str]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            return make(), [str(warning.message) for warning in caught]

    expected = seen(lambda: packed(b"GET", cache.final(key, version)))
    assert seen(lambda: cache._get_command(key, version)) == expected
    assert seen(lambda: packed(b"GET", cache._raw_key(key, version))) == expected


def test_an_awkward_key_warns_in_every_command(cache: Commands) -> None:
    calls = [
        lambda: cache._get_command("a b"),
        lambda: cache._command(b"TTL", "a b"),
        lambda: cache._set_command("a b", 1),
        lambda: cache._set_many_command({"a b": 1}),
        lambda: cache._mget_command(["a b"]),
    ]
    for call in calls:
        with pytest.warns(CacheKeyWarning, match="errors if used with memcached"):
            made = call()
        assert b"$6\r\n:1:a b\r\n" in (made[0] if isinstance(made, tuple) else made)


def test_a_key_function_and_overridden_key_methods_are_called() -> None:
    cache = Commands(KEY_FUNCTION=lambda key, prefix, version: f"{version}|{key}")
    assert cache._get_command("k", 7) == packed(b"GET", b"7|k")
    cache.key_func = lambda key, prefix, version: "other"
    assert cache._get_command("k", 7) == packed(b"GET", b"other")

    class Strict(Commands):
        def validate_key(self, key: str) -> None:
            raise InvalidCacheKey(key)

    with pytest.raises(InvalidCacheKey):
        Strict()._get_command("k")


def test_assigning_prefix_and_version_takes_effect_at_once(cache: Commands) -> None:
    cache.key_prefix, cache.version = "p", 3
    assert cache._get_command("k") == packed(b"GET", b"p:3:k")


# -- commands --------------------------------------------------------------------------------


def test_a_command_has_its_name_its_key_and_its_arguments(cache: Commands) -> None:
    assert cache._command(b"PTTL", "k") == packed(b"PTTL", b":1:k")
    assert cache._command(b"GETEX", "k", None, b"PX", b"5") == packed(
        b"GETEX", b":1:k", b"PX", b"5"
    )
    with pytest.raises(TypeError):
        cache._command(b"GETEX", "k", None, "PX")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("timeout", "life"),
    [
        (None, ()),
        (1, (b"PX", b"1000")),
        (0.0001, (b"PX", b"1")),
        (1.0001, (b"PX", b"1001")),
        (True, (b"PX", b"1000")),
        (10**30, ()),
        (float("inf"), ()),
    ],
)
def test_a_set_has_its_lifetime_in_whole_milliseconds(
    cache: Commands, timeout: Any, life: tuple[bytes, ...]
) -> None:
    expected = (b"SET", b":1:k", b"\x81v", *life)
    assert cache._set_command("k", "v", timeout) == packed(*expected)
    assert cache._set_command("k", "v", timeout, None, True) == packed(*expected, b"NX")
    assert cache._timeout_ms(timeout) == (int(life[1]) if life else None)


@pytest.mark.parametrize("timeout", [0, -1, -0.5, -(10**30)])
def test_what_would_be_over_at_once_is_removed_and_an_add_of_it_only_asks(
    cache: Commands, timeout: Any
) -> None:
    assert cache._set_command("k", "v", timeout) == packed(b"DEL", b":1:k")
    assert cache._set_command("k", "v", timeout, None, True) == packed(b"EXISTS", b":1:k")
    assert cache._set_many_command({"k": 1}, timeout) == (packed(b"DEL", b":1:k"), 1)
    assert cache._timeout_ms(timeout) == 0


def test_without_a_timeout_it_is_the_default_one() -> None:
    cache = Commands(TIMEOUT=7)
    assert cache._set_command("k", 1) == packed(b"SET", b":1:k", b"1", b"PX", b"7000")
    assert cache._timeout_ms() == 7000
    cache.default_timeout = None
    assert cache._set_command("k", 1) == packed(b"SET", b":1:k", b"1")


@pytest.mark.parametrize("timeout", ["5", float("nan"), object()])
def test_a_timeout_that_is_none_is_refused(cache: Commands, timeout: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="timeout"):
        cache._set_command("k", 1, timeout)


def test_commands_of_many_keys(cache: Commands) -> None:
    keys = ["a", "b", 3]
    assert cache._mget_command(keys, 2) == packed(b"MGET", b":2:a", b":2:b", b":2:3")
    assert cache._mget_command([]) == b""


def test_set_many_is_a_pipeline_of_sets(cache: Commands) -> None:
    items = {"a": 1, "b": "text", "c": [None]}
    raw, count = cache._set_many_command(items, 5, 2)
    assert raw == b"".join(cache._set_command(key, value, 5, 2) for key, value in items.items())
    assert count == 3
    assert cache._set_many_command({}) == (b"", 0)


def test_a_value_that_does_not_pickle_raises_and_packs_nothing(cache: Commands) -> None:
    with pytest.raises((AttributeError, TypeError)):
        cache._set_command("k", lambda: 1)
    with pytest.raises((AttributeError, TypeError)):
        cache._set_many_command({"a": 1, "k": lambda: 1})


# -- values ----------------------------------------------------------------------------------


@given(value=values)
@per_example
def test_values_are_written_and_read_as_the_codec_does(cache: Commands, value: Any) -> None:
    _same_as_the_codec(cache, value)


@pytest.mark.parametrize("value", EDGES, ids=lambda value: repr(value)[:20])
def test_edges_are_written_and_read_as_the_codec_does(cache: Commands, value: Any) -> None:
    _same_as_the_codec(cache, value)


def _same_as_the_codec(cache: Commands, value: Any) -> None:
    raw = cache.codec.encode(value)
    assert cache._set_command("k", value, None) == packed(b"SET", b":1:k", raw)
    read = cache._value(raw, None)
    assert read == value
    assert type(read) is type(value)


@given(raw=st.binary(max_size=30) | st.from_regex(rb"-?[0-9]{1,24}", fullmatch=True))
@per_example
def test_any_bytes_are_read_as_the_codec_reads_them(cache: Commands, raw: bytes) -> None:
    missing = object()
    try:
        expected = cache.codec.decode(raw)
    except ValueError:
        expected = missing
    before = cache.counters.undecodable
    read = cache._value(raw, missing)
    assert (read is missing) == (expected is missing)
    assert repr(read) == repr(expected)
    assert cache.counters.undecodable - before == (expected is missing)


def test_what_other_codecs_wrote_is_read(cache: Commands) -> None:
    for codec in (JSON, make_codec("pickle", "zlib", 0), make_codec("auto", "zlib", 1)):
        assert cache._value(codec.encode({"a": "x" * 100})) == {"a": "x" * 100}


def test_nothing_is_the_default(cache: Commands) -> None:
    assert cache._value(None) is None
    assert cache._value(None, 5) == 5
    assert cache.counters.undecodable == 0


def test_misses_and_what_cannot_be_read_are_left_out(cache: Commands) -> None:
    replies = [b"1", None, b"\x81two", b"nonsense"]
    assert cache._values(["a", "b", 3, "d"], replies) == {"a": 1, 3: "two"}
    assert cache.counters.undecodable == 1
    with pytest.raises(ValueError, match="2 keys and 1 replies"):
        cache._values(["a", "b"], [None])


def test_a_pickle_of_a_class_that_is_gone_is_the_default(cache: Commands) -> None:
    raw = AUTO.encode(Gone()).replace(b"Gone", b"Away")
    assert cache._value(raw, "default") == "default"
    assert cache.counters.undecodable == 1


def test_a_reply_that_is_no_value_is_an_error(cache: Commands) -> None:
    with pytest.raises(TypeError):
        cache._value(5)


def test_without_the_native_codec_everything_goes_through_the_given_one() -> None:
    cache = SafeCommands()
    value = {"a": "x" * 50}
    raw = JSON.encode(value)
    assert cache._set_command("k", value, None) == packed(b"SET", b":1:k", raw)
    assert cache._set_many_command({"k": value}, None) == (packed(b"SET", b":1:k", raw), 1)
    assert cache._value(raw) == value

    class Refusing(SafeCommands):
        class codec:  # noqa: N801
            @staticmethod
            def decode(raw: bytes) -> Any:
                raise Undecodable("no pickles here")

    safe = Refusing()
    assert safe._value(AUTO.encode({1, 2}), "default") == "default"
    assert safe._values(["k"], [AUTO.encode(1)]) == {}
    assert safe.counters.undecodable == 2


@pytest.mark.parametrize("native_codec", [True, False])
def test_a_stale_value_is_a_miss_that_nobody_counts(
    native_codec: bool, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock(1_000)
    cache = Commands()
    cache.codec, cache.native_codec = EnvelopeCodec(AUTO, clock), native_codec
    raw = Envelope(2_000, 60_000, 1, AUTO.encode("v")).sealed()
    assert cache._value(raw) == "v"
    clock.advance_ms(1_000)
    assert cache._value(raw, "default") == "default"
    assert cache._values(["stale", "b"], [raw, b"1"]) == {"b": 1}
    assert (cache.counters.undecodable, caplog.records) == (0, [])
    # What comes next is neither forgiven for it nor taken for the second.
    broken = Envelope(9_000, 60_000, 1, b"\x8fgarbage").sealed()
    assert cache._value(broken, "default") == "default"
    assert cache.counters.undecodable == 1
    assert ["cannot be read" in record.message for record in caplog.records] == [True]


def test_other_errors_of_the_codec_come_out(cache: Commands) -> None:
    class Interrupted(SafeCommands):
        class codec:  # noqa: N801
            @staticmethod
            def decode(raw: bytes) -> Any:
                raise MemoryError

    with pytest.raises(MemoryError):
        Interrupted()._value(b"1")
