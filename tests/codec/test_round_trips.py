"""Every serializer with every compressor gives back what it was given, to every other codec."""

from __future__ import annotations

import collections
import datetime as dt
import enum
import json
import math
import pickle
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nearcache.backends import SharedMemoryCache
from nearcache.base import options
from nearcache.codec import Unencodable, codec_for, json_text, make_codec
from nearcache.codec.compressors import COMPRESSORS
from nearcache.codec.serializers import CHOICES
from nearcache.errors import OptionError
from tests.codec.values import EXACT, JSON, same

PACKERS = list(options.COMPRESSORS)
EXACT_SERIALIZERS = ["auto", "pickle", "msgpack"]
JSON_SERIALIZERS = ["json", "ujson", "exact"]
READER = make_codec()


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Point(NamedTuple):
    x: int
    y: int


def test_options_and_registries_name_the_same() -> None:
    assert set(options.SERIALIZERS) == set(CHOICES)
    assert set(options.COMPRESSORS) == {each.name for each in COMPRESSORS.values()} | {"none"}


@pytest.mark.parametrize("compressor", PACKERS)
@pytest.mark.parametrize("serializer", EXACT_SERIALIZERS)
@given(value=EXACT)
@settings(max_examples=25)
@example(value=(1, (2, [3, {4}]), {(5, b"6"): frozenset({7})}))
@example(value={1: "int key", "1": "text key", 2**80: None, None: True})
@example(value=[math.nan, -0.0, math.inf, Decimal("sNaN"), Decimal("-0E+5")])
@example(value="lone \ud800 surrogate")
@example(value=b"\x05.")
def test_exact_types_come_back(serializer: str, compressor: str, value: Any) -> None:
    codec = make_codec(serializer, compressor, 0)
    raw = codec.encode(value)
    assert same(codec.decode(raw), value)
    assert same(READER.decode(raw), value)


@pytest.mark.parametrize("compressor", PACKERS)
@pytest.mark.parametrize("serializer", JSON_SERIALIZERS)
@given(value=JSON)
@settings(max_examples=25)
@example(value=[None, 2**64, -(2**63) - 1, 1e300, 5e-324])
def test_json_comes_back(serializer: str, compressor: str, value: Any) -> None:
    codec = make_codec(serializer, compressor, 0)
    raw = codec.encode(value)
    assert same(codec.decode(raw), value)
    assert same(READER.decode(raw), value)


@given(value=JSON | st.just("\ud800") | st.just([math.nan, math.inf, None]))
def test_json_is_the_same_with_and_without_orjson(value: Any) -> None:
    fast, plain = json_text._dump_fast(value), json_text._dump_plain(value)
    for payload in (fast, plain):
        assert same(json_text._load_fast(payload), value)
        assert same(json.loads(payload), value)


@pytest.mark.parametrize(
    "value", [Colour.RED, Level.HIGH, uuid.UUID(int=7), {"a": [Level.HIGH, Colour.RED]}, {1: 2}]
)
def test_orjson_and_the_standard_library_take_the_same(value: Any) -> None:
    assert json.loads(json_text._dump_fast(value)) == json.loads(json_text._dump_plain(value))


@pytest.mark.parametrize("value", [b"x", {1, 2}, Decimal(1), dt.date(2026, 1, 2), object()])
def test_orjson_and_the_standard_library_refuse_the_same(value: Any) -> None:
    for dump in (json_text._dump_fast, json_text._dump_plain):
        with pytest.raises(TypeError):
            dump(value)


@pytest.mark.parametrize("serializer", ["json", "ujson", "msgpack", "exact"])
@pytest.mark.parametrize("value", [object(), print, [object()], {"a": Point}])
def test_what_a_serializer_cannot_hold_is_an_error_of_both_kinds(
    serializer: str, value: Any
) -> None:
    with pytest.raises(Unencodable) as caught:
        make_codec(serializer).encode(value)
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, pickle.PickleError)


def deep(levels: int, kind: type) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = kind([value])
    return value


@pytest.mark.parametrize(
    "value",
    [
        Level.HIGH,
        Point(1, 2),
        collections.OrderedDict(a=1),
        bytearray(b"x"),
        [1, {"k": (memoryview(b"x"),)}],
        dt.datetime(2026, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=1), "Home")),
        uuid.UUID(int=1, is_safe=uuid.SafeUUID.safe),
        deep(5000, list),
        deep(5000, tuple),
    ],
    ids=lambda value: type(value).__name__,
)
def test_msgpack_refuses_what_would_change(value: Any) -> None:
    with pytest.raises(Unencodable):
        make_codec("msgpack").encode(value)


def test_msgpack_bytes_and_their_lookalikes() -> None:
    codec = make_codec("msgpack")
    for value in (b"x", [b"\xc4"], "Ä", {"Å": b""}):
        assert same(codec.decode(codec.encode(value)), value)


@pytest.mark.parametrize("compressor", [name for name in PACKERS if name != "none"])
def test_every_level_writes_what_is_read(compressor: str) -> None:
    value = "all of the same kind " * 100
    for level in options.COMPRESSORS[compressor].levels:
        codec = make_codec("auto", compressor, 0, compress_level=level)
        raw = codec.encode(value)
        assert len(raw) < len(value)
        assert READER.decode(raw) == value


def test_the_default_of_compress_min_is_a_kibibyte() -> None:
    codec = make_codec("auto", "zlib")
    assert len(codec.encode("a" * 1023)) == 1024
    assert len(codec.encode("a" * 1024)) < 100


def test_a_value_that_would_be_too_large_to_unpack_is_not_packed() -> None:
    codec = make_codec("auto", "zlib", 0, unpacked_max_bytes=2000)
    assert len(codec.encode("a" * 2000)) < 100
    assert codec.decode(codec.encode("a" * 2001)) == "a" * 2001


def test_a_missing_library_fails_at_start_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearcache.base.options.find_spec", lambda name: None)
    for given_, package in (
        ({"serializer": "msgpack"}, "msgpack"),
        ({"compressor": "zstd"}, "zstandard"),
    ):
        with pytest.raises(ValueError, match=rf'{package}: pip install "nearcache\[codecs\]"'):
            parse(given_)


def parse(given_: dict[str, Any]) -> None:
    known = {
        each.metadata["name"]: each for each in options.option_fields(options.ServerCacheOptions)
    }
    for name, value in given_.items():
        known[name].metadata["parse"](value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"compressor": "zlib", "compress_level": 10}, "it must be 1 to 9"),
        ({"compress_level": 1}, "it must be left out"),
        ({"compressor": "zlib", "compress_dictionaries": ("x",)}, "needs compressor 'zstd'"),
        ({"serializer": "pickle", "allow_pickle": False}, "serializer is 'pickle'"),
        ({"compat": "django", "compressor": "zlib"}, "knows the serializers auto, pickle"),
        ({"compat": "django-redis", "sign_keys": (b"x" * 16,)}, "no room for sign_key"),
        ({"compat": "django", "allow_pickle": False}, "writes pickles"),
        ({"compressor": "zstd", "compress_dictionaries": ("/no/such",)}, "cannot be used"),
    ],
)
def test_options_that_contradict_each_other_fail(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make_codec(**arguments)


def test_codecs_of_equal_options_have_equal_keys(tmp_path: Path) -> None:
    class Some(options.ServerCacheOptions):
        location = ""

    plain = Some(location="a")
    assert plain.codec_key == Some(location="b", single_flight_s=1.0).codec_key
    assert plain.codec_key != Some(location="a", allow_pickle=False).codec_key
    assert plain.codec_key != Some(location="a", read_formats=("django",)).codec_key
    assert codec_for(plain).decode(b"12") == 12


@pytest.mark.parametrize("arguments", [{"serializer": "exact"}, {"allow_pickle": False}])
def test_what_stands_in_two_places_is_written_twice_without_pickle(
    arguments: dict[str, Any],
) -> None:
    codec = make_codec(**arguments)
    one, text = [1, {"k": (2,)}], "a text of more than sixty-four bytes, which is a lot " * 2
    for value in (
        [one, one],
        {"a": text, "b": [text, (text, text)]},
        {text: text},
        [b"x" * 99] * 3,
    ):
        decoded = codec.decode(codec.encode(value))
        assert same(decoded, value)
        assert codec.encode(value)[0] == 0x82
    first, second = codec.decode(codec.encode([one, one]))
    assert first is not second


def test_a_cycle_and_endless_sharing_are_refused_without_pickle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nearcache.codec.unshared.MAX_NODES", 10_000)
    cycle: list[Any] = []
    cycle.append(cycle)
    doubled: Any = (1, 2)
    for _ in range(100):
        doubled = (doubled, doubled)
    for value in (cycle, doubled):
        with pytest.raises(Unencodable, match="has no exact form"):
            make_codec("exact").encode(value)


@pytest.mark.parametrize("serializer", ["exact", "json", "ujson", "msgpack"])
def test_a_value_that_does_not_fit_is_pickle_s_error(serializer: str, private_path: Path) -> None:
    """As Django demands of every backend."""
    options = {"OPTIONS": {"size": "4MB", "serializer": serializer}}
    cache = SharedMemoryCache(str(private_path / "c"), options)
    for write in (cache.set, cache.add):
        with pytest.raises(pickle.PickleError):
            write("k", object())
        with pytest.raises(TypeError):
            write("k", print)
    assert cache.get("k", "missed") == "missed"
