"""Against the real packages: what they write is read, what is written they read."""

from __future__ import annotations

import contextlib
import datetime as dt
import enum
import pickle
import uuid
from decimal import Decimal
from typing import Any

import pytest
from django.core.cache.backends.redis import RedisSerializer
from django.utils.functional import lazystr
from django_redis.client import DefaultClient
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcache.codec import Undecodable, foreign_codec, make_codec
from tests.codec.values import EXACT, JSON, same

SERIALIZERS = {
    "pickle": "PickleSerializer",
    "json": "JSONSerializer",
    "msgpack": "MSGPackSerializer",
}
COMPRESSORS = {
    "none": "identity.IdentityCompressor",
    "zlib": "zlib.ZlibCompressor",
    "gzip": "gzip.GzipCompressor",
    "lzma": "lzma.LzmaCompressor",
    "lz4": "lz4.Lz4Compressor",
    "zstd": "zstd.ZStdCompressor",
}
NUMBERS = st.integers() | st.integers(-(2**70), 2**70)
SMALL_INTS = st.integers(-(2**63), 2**64 - 1)
MSGPACK = st.recursive(
    st.none() | st.booleans() | SMALL_INTS | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=15,
)
VALUES = {"pickle": EXACT, "json": JSON, "msgpack": MSGPACK}
# Values long enough for every compressor.
PADDING = {"pickle": (1, "pad" * 60), "json": ["pad" * 60], "msgpack": ["pad" * 60]}


class Level(enum.IntEnum):
    HIGH = 3


def theirs(serializer: str, compressor: str, **options: Any) -> Any:
    """A client of django-redis; nothing connects to that address."""
    chosen = {
        "SERIALIZER": f"django_redis.serializers.{serializer}.{SERIALIZERS[serializer]}",
        "COMPRESSOR": f"django_redis.compressors.{COMPRESSORS[compressor]}",
        **options,
    }
    return DefaultClient("redis://127.0.0.1:1/0", {"OPTIONS": chosen}, None)  # type: ignore[arg-type]


def on_the_wire(encoded: Any) -> bytes:
    return encoded if isinstance(encoded, bytes) else str(encoded).encode()


@pytest.mark.parametrize("compressor", COMPRESSORS)
@pytest.mark.parametrize("serializer", SERIALIZERS)
@given(data=st.data())
@settings(max_examples=25)
def test_django_redis_in_both_directions(
    serializer: str, compressor: str, data: st.DataObject
) -> None:
    client, ours = (
        theirs(serializer, compressor),
        foreign_codec("django-redis", serializer=serializer, compressor=compressor),
    )
    drawn = data.draw(VALUES[serializer] | NUMBERS)
    padded = [drawn, PADDING[serializer]] if type(drawn) is not int else drawn
    for value in (drawn, padded):
        raw = on_the_wire(client.encode(value))
        assert same(ours.decode(raw), value)
        assert same(client.decode(ours.encode(value)), value)
        if compressor != "gzip":  # theirs has the time of day in it
            assert ours.encode(value) == raw


@pytest.mark.parametrize("compressor", [name for name in COMPRESSORS if name != "none"])
def test_the_same_values_are_compressed(compressor: str) -> None:
    client, ours = (
        theirs("json", compressor),
        foreign_codec("django-redis", serializer="json", compressor=compressor),
    )
    for length in range(120):
        value = "a" * length
        assert len(ours.encode(value)) == len(client.encode(value))
        assert ours.decode(client.encode(value)) == value


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_pickle_version_is_read(protocol: int) -> None:
    client, ours = (
        theirs("pickle", "zlib", PICKLE_VERSION=protocol),
        foreign_codec("django-redis", compressor="zlib"),
    )
    for value in (None, (1, "a" * 50), [1.5], "1", True):
        assert same(ours.decode(client.encode(value)), value)


@pytest.mark.parametrize(
    "value",
    [
        dt.datetime(2026, 1, 2, 3, 4, 5, 678901),  # noqa: DTZ001
        dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
        dt.datetime(2026, 1, 2, 3, 4, 5, 999999, dt.timezone(dt.timedelta(hours=-5))),
        dt.date(2026, 1, 2),
        dt.time(3, 4, 5, 678901),
        dt.time(3, 4),
        dt.timedelta(days=3, hours=4, microseconds=5),
        -dt.timedelta(seconds=1),
        dt.timedelta(0),
        Decimal("1.50"),
        uuid.UUID(int=7),
        lazystr("later"),
        {"nested": [Decimal(1)]},
    ],
    ids=repr,
)
def test_json_of_what_is_not_json_is_django_s(value: Any) -> None:
    ours = foreign_codec("django-redis", serializer="json")
    assert ours.encode(value) == theirs("json", "none").encode(value)


@pytest.mark.parametrize("value", [{1, 2}, object(), dt.time(1, tzinfo=dt.UTC), b"x"])
def test_json_refuses_what_django_refuses(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        theirs("json", "none").encode(value)
    with pytest.raises(TypeError):
        foreign_codec("django-redis", serializer="json").encode(value)


@pytest.mark.parametrize("value", [True, False, Level.HIGH, 0, -5, 10**30, -(10**30)])
@pytest.mark.parametrize("serializer", ["pickle", "json"])
def test_what_is_a_number_for_django_redis_is_one_here(serializer: str, value: Any) -> None:
    ours, client = foreign_codec("django-redis", serializer=serializer), theirs(serializer, "none")
    assert ours.encode(value) == on_the_wire(client.encode(value))


@given(value=EXACT | NUMBERS | st.booleans() | st.just(Level.HIGH))
def test_django_in_both_directions(value: Any) -> None:
    ours, django = foreign_codec("django"), RedisSerializer()
    raw = on_the_wire(django.dumps(value))
    assert ours.encode(value) == raw
    assert same(ours.decode(raw), value)
    assert same(django.loads(ours.encode(value)), value)


@pytest.mark.parametrize(
    "raw", [b"", b"1_000", b" 12 ", b"+5", b"007", b"-", b"-0", b"x", b"9" * 5000]
)
@pytest.mark.parametrize("format_", ["django", "django-redis"])
def test_only_what_they_write_for_a_number_is_one(raw: bytes, format_: str) -> None:
    with pytest.raises(Undecodable):
        foreign_codec(format_).decode(raw)


READER = make_codec(read_formats=("django", "django-redis"))


@pytest.mark.parametrize("compressor", COMPRESSORS)
@pytest.mark.parametrize("serializer", ["pickle", "json"])
@given(data=st.data())
@settings(max_examples=25)
def test_a_reader_of_both_reads_old_and_new(
    serializer: str, compressor: str, data: st.DataObject
) -> None:
    client = theirs(serializer, compressor)
    drawn = data.draw(VALUES[serializer] | NUMBERS)
    for value in (drawn, [drawn, PADDING[serializer]]):
        assert same(READER.decode(on_the_wire(client.encode(value))), value)
        assert same(READER.decode(READER.encode(value)), value)


@given(value=EXACT | NUMBERS)
def test_a_reader_of_both_reads_django(value: Any) -> None:
    assert same(READER.decode(on_the_wire(RedisSerializer().dumps(value))), value)


WRITERS = [
    make_codec(serializer, compressor, 0)
    for serializer in ("auto", "pickle", "json", "ujson", "msgpack", "exact")
    for compressor in ("none", "zlib", "gzip", "lzma", "lz4", "zstd", "brotli")
]


@given(
    value=st.binary(max_size=40) | st.builds(lambda middle: b"\x04" + middle + b".", st.binary())
)
def test_bytes_that_look_like_a_pickle_are_still_bytes(value: bytes) -> None:
    for codec in (READER, make_codec(), make_codec("exact")):
        assert READER.decode(codec.encode(value)) == value
        assert make_codec().decode(codec.encode(value)) == value


@given(value=JSON)
@settings(max_examples=40)
def test_nothing_of_ours_is_taken_for_foreign(value: Any) -> None:
    for codec in WRITERS:
        assert same(READER.decode(codec.encode(value)), value)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("value", [True, {"a": 1}, b"bytes", ("x", 1.5)], ids=repr)
def test_pickles_of_others_are_no_values_of_ours(value: Any, protocol: int) -> None:
    raw = pickle.dumps(value, protocol)
    assert same(READER.decode(raw), value)
    for codec in WRITERS:  # who does not ask for them
        with pytest.raises(Undecodable):
            codec.decode(raw)


@pytest.mark.parametrize("compressor", [name for name in COMPRESSORS if name != "none"])
@given(value=EXACT)
@settings(max_examples=25)
def test_compressed_values_of_others_are_no_values_of_ours(compressor: str, value: Any) -> None:
    raw = theirs("pickle", compressor).encode([value, PADDING["pickle"]])
    with pytest.raises(Undecodable):
        make_codec().decode(raw)


def test_no_value_of_ours_begins_as_a_pickle() -> None:
    for codec in WRITERS:
        for value in (b"", b"\x04." * 9, "", None, [], 2**64, "x" * 99):
            with contextlib.suppress(TypeError):
                assert codec.encode(value)[0] != 0x80
