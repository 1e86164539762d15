"""Options, sizes, keys and patterns, the codec."""

from __future__ import annotations

import contextlib
import datetime as dt
import enum
import pickle
from decimal import Decimal
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from hypothesis import given
from hypothesis import strategies as st

from nearcache.backends import SharedMemoryCache, SharedMemoryOptions
from nearcache.base.keys import KeySpace, decode_key, encode_key, glob_escape
from nearcache.base.options import GIB, MIB, human_bytes, human_duration, size_bytes
from nearcache.codec import Codec, Undecodable, make_codec
from nearcache.engines.memory import glob_regex
from nearcache.errors import OptionError


class Colour(enum.IntEnum):
    RED = 1


class Gone:
    """A class that a later version of a site no longer has."""


AUTO = make_codec("auto", None, 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("256MB", 256 * MIB),
        ("256 mb", 256 * MIB),
        ("1GiB", GIB),
        ("1.5G", 3 * GIB // 2),
        (" 10k ", 10240),
    ],
)
def test_sizes_are_read(text: Any, expected: int) -> None:
    assert size_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "MB", "1 XB", "-1", "1e9", None, True, 1.5, "1MB2", 0, -5])
def test_bad_sizes_are_refused(text: Any) -> None:
    with pytest.raises(ValueError, match=r"write a number|must be from"):
        size_bytes(text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sizes": 1}, "option 'sizes' is unknown; did you mean 'size'?"),
        ({"max_items": "1MB"}, "did you mean 'max_item'?"),
        ({"whatever_this_is": 1}, "known: CULL_FREQUENCY, LOCATION, MAX_ENTRIES"),
        ({"size": "10KB"}, "it must be from 1 MiB"),
        ({"size": "lots"}, "write a number of bytes"),
        ({"serializer": "yaml"}, "must be one of 'auto', 'pickle', 'json'"),
        ({"compressor": "zip"}, "must be one of 'none', 'zlib'"),
        ({"single_flight": -1}, "write a number of seconds"),
        ({"MAX_ENTRIES": "many"}, "write a whole number"),
    ],
)
def test_a_bad_option_fails_at_start_up_and_says_what_to_do(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ImproperlyConfigured) as caught:
        SharedMemoryCache("default", {"OPTIONS": options})
    assert isinstance(caught.value, OptionError)
    assert message in str(caught.value)
    assert str(caught.value).startswith("SharedMemoryCache: option ")


@pytest.mark.parametrize("location", ["a/b", "../x", ".hidden", "/tmp/", "with space", "x" * 200])
def test_a_bad_location_fails_at_start_up(location: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="LOCATION"):
        SharedMemoryCache(location, {})


def test_options_are_frozen_and_have_safe_defaults() -> None:
    options = SharedMemoryOptions.parse({"LOCATION": "default"})
    assert options.location == "default"
    assert options.size_bytes is None
    with pytest.raises(AttributeError):
        options.size_bytes = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (256 * MIB, "256 MiB"), (3 * GIB, "3 GiB")],
)
def test_sizes_read_well(amount: int, text: str) -> None:
    assert human_bytes(amount) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (61_000, "1 min 1 s"),
        (5_400_000, "1 h 30 min"),
        (90_061_000, "1 d 1 h"),
    ],
)
def test_durations_read_well(milliseconds: int, text: str) -> None:
    assert human_duration(milliseconds) == text


@given(st.binary(max_size=30))
def test_an_escaped_prefix_matches_itself_only(raw: bytes) -> None:
    assert glob_regex(glob_escape(raw)).fullmatch(raw)
    assert not glob_regex(glob_escape(raw)).fullmatch(raw + b"x")


@given(st.text(st.characters(exclude_categories=[]), max_size=20))
def test_every_text_is_a_key_and_comes_back(text: str) -> None:
    assert decode_key(encode_key(text)) == text


def test_a_key_function_that_hashes_has_no_key_space() -> None:
    assert KeySpace(lambda key, prefix, version: str(hash(key)), "p", 1).prefix is None
    assert KeySpace(lambda key, prefix, version: f"{prefix}-{key}", "p", 1).prefix == b"p-"


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        -1,
        2**63 - 1,
        -(2**63),
        2**63,
        10**500,
        1.5,
        float("inf"),
        "",
        "text \u20ac",
        "\ud800",
        b"",
        b"\x00\xff",
        (),
        (1, (2, 3)),
        [1, [2]],
        {"a": 1, 2: (3,)},
        {1, 2},
        frozenset({1}),
        Colour.RED,
        Decimal("1.50"),
        dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC),
    ],
    ids=repr,
)
@pytest.mark.parametrize("codec", [AUTO, make_codec("pickle", "zlib", 10)], ids=["auto", "pickle"])
def test_exact_types_come_back(codec: Codec, value: Any) -> None:
    if value == 10**500:
        value = 10**500 + 1
    decoded = codec.decode(codec.encode(value))
    assert decoded == value
    assert type(decoded) is type(value)


def test_only_small_exact_ints_are_digits() -> None:
    assert AUTO.encode(42) == b"42"
    assert AUTO.encode(-42) == b"-42"
    for value in (True, Colour.RED, 2**63, "42", b"42"):
        assert AUTO.encode(value)[0] >= 0x80


def test_a_value_is_packed_only_if_that_pays() -> None:
    codec = make_codec("auto", "zlib", 100)
    long, short, noise = "a" * 1000, "a" * 50, bytes(range(256))
    assert len(codec.encode(long)) < 100
    assert codec.encode(short) == AUTO.encode(short)
    assert codec.encode(noise) == AUTO.encode(noise)
    assert codec.decode(codec.encode(long)) == long


def test_any_codec_reads_what_another_wrote() -> None:
    for writer in (AUTO, make_codec("pickle", "zlib", 0), make_codec("json", None, 0)):
        assert AUTO.decode(writer.encode({"a": [1, 2]})) == {"a": [1, 2]}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"-",
        b"007",
        b" 1",
        b"1_0",
        b"9" * 5000,
        b"x",
        b"\x83garbage",
        b"\x8fx",
        b"\xf0x",
        b"\x93not zlib",
        b"\x82\xff\xff",
        b"\x81\xff",
    ],
)
def test_bytes_that_are_no_value_are_undecodable(raw: bytes) -> None:
    with pytest.raises(Undecodable):
        AUTO.decode(raw)


def test_a_class_that_is_gone_is_undecodable(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = AUTO.encode(Gone())
    monkeypatch.delattr(f"{__name__}.Gone")
    with pytest.raises(Undecodable):
        AUTO.decode(raw)


def test_what_does_not_pickle_raises_pickle_s_own_error() -> None:
    with pytest.raises((pickle.PickleError, AttributeError, TypeError)):
        AUTO.encode(lambda: None)


@given(st.binary())
def test_decoding_any_bytes_gives_a_value_or_undecodable(raw: bytes) -> None:
    if raw[:1] and raw[0] & 0x8F == 0x83:  # a random pickle may do anything
        return
    with contextlib.suppress(Undecodable):
        AUTO.decode(raw)
