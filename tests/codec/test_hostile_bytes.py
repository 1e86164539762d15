"""Bytes from anywhere: a value or Undecodable, never code, never more memory than allowed."""

from __future__ import annotations

import contextlib
import lzma
import pickle
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcache.backends import SharedMemoryCache
from nearcache.base.options import COMPRESSORS, CacheOptions, Secret, secrets
from nearcache.codec import Undecodable, make_codec
from tests.codec.values import EXACT

KEY, OTHER = Secret(b"k" * 16), Secret(b"o" * 16)
SAFE = {
    "exact": {"serializer": "exact"},
    "json": {"serializer": "json"},
    "msgpack": {"serializer": "msgpack"},
    "auto": {"serializer": "auto", "allow_pickle": False},
    "signed": {"serializer": "auto", "sign_keys": (KEY,)},
    "foreign": {"allow_pickle": False, "read_formats": ("django", "django-redis")},
    "foreign signed": {"sign_keys": (KEY,), "read_formats": ("django", "django-redis")},
    "django-redis json": {"compat": "django-redis", "serializer": "json"},
}
RAN: list[str] = []


def run(what: str) -> str:
    RAN.append(what)
    return what


class Hostile:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return (run, ("hostile",))


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


PICKLES = [pickle.dumps(Hostile(), protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
WRAPPED = [
    *(b"\x83" + each for each in PICKLES),  # pickle
    *(b"\x93" + zlib.compress(each) for each in PICKLES),
    *(b"\x88" + b"\0" * 16 + each for each in PICKLES),  # signed
    *(b"\x88" + each for each in PICKLES),
    *PICKLES,  # what Django and django-redis write
    *(zlib.compress(each) for each in PICKLES),
    *(lzma.compress(each) for each in PICKLES),
    *(lz4.frame.compress(each) for each in PICKLES),
]


@pytest.mark.parametrize("mode", SAFE)
@pytest.mark.parametrize("raw", WRAPPED, ids=range(len(WRAPPED)))
def test_a_safe_mode_never_unpickles(mode: str, raw: bytes) -> None:
    codec = make_codec(**SAFE[mode])
    with pytest.raises(Undecodable):
        codec.decode(raw)
    assert RAN == []


def test_the_planted_pickle_would_have_run() -> None:
    assert make_codec().decode(b"\x83" + PICKLES[4]) == "hostile"
    assert make_codec("json", allow_pickle=True).decode(b"\x83" + PICKLES[4]) == "hostile"
    assert RAN == ["hostile", "hostile"]


@pytest.mark.parametrize(
    "options",
    [
        {"serializer": "exact"},
        {"serializer": "auto", "allow_pickle": False},
        {"serializer": "json"},
        {"serializer": "msgpack"},
        {"sign_key": "s" * 20},
        {"compressor": "zlib", "allow_pickle": False},
        {"serializer": "pickle", "sign_key": ["s" * 20, "t" * 20]},
    ],
    ids=str,
)
def test_the_native_path_never_unpickles_in_a_safe_mode(
    options: dict[str, Any], private_path: Path
) -> None:
    location = str(private_path / "cache")
    open_cache = SharedMemoryCache(location, {"OPTIONS": {"size": "4MB"}})
    safe = SharedMemoryCache(location, {"OPTIONS": {"size": "4MB", **options}})
    open_cache.set("plant", Hostile())
    open_cache.engine.set(open_cache._raw_key("signed", None), WRAPPED[14], None)
    for _ in range(4):  # often enough to be kept as an object, were it one
        assert safe.get("plant", "missed") == "missed"
        assert safe.get_many(["plant", "signed"]) == {}
    assert safe.gets("plant") is None
    with pytest.raises(ValueError, match="not found"):
        safe.incr("plant", 1.5)
    assert RAN == []
    assert safe.stats()["undecodable"] >= 8
    assert open_cache.get("plant") == "hostile"
    assert RAN == ["hostile"]
    assert safe.get_or_set("plant", lambda: "x", 60) == "x"
    assert RAN == ["hostile"]


def test_the_native_path_signs_and_verifies(private_path: Path) -> None:
    location = str(private_path / "cache")

    def cache(*keys: str) -> SharedMemoryCache:
        return SharedMemoryCache(location, {"OPTIONS": {"size": "4MB", "sign_key": list(keys)}})

    cache("old secret of mine").set("k", SIGNED_VALUE)
    assert cache("new secret of mine", "old secret of mine").get("k") == SIGNED_VALUE
    assert cache("new secret of mine").get("k", "missed") == "missed"
    assert SharedMemoryCache(location, {"OPTIONS": {"size": "4MB"}}).get("k", "missed") == "missed"
    cache("new secret of mine").set("plain", {"a": (1, 2)})
    assert cache("other secret of mine").get("plain") == {"a": (1, 2)}


SIGNED_VALUE = {"a": 1j}  # a complex is pickled


@pytest.mark.parametrize("compressor", ["none", "zstd"])
def test_a_signature_covers_every_byte(compressor: str) -> None:
    codec = make_codec("pickle", compressor, 0, sign_keys=(KEY,))
    raw = codec.encode(SIGNED_VALUE)
    assert codec.decode(raw) == SIGNED_VALUE
    for at in range(len(raw)):
        for bit in range(8):
            changed = bytearray(raw)
            changed[at] ^= 1 << bit
            with contextlib.suppress(Undecodable):
                assert codec.decode(bytes(changed)) != SIGNED_VALUE
    for cut in range(len(raw)):
        with pytest.raises(Undecodable):
            codec.decode(raw[:cut])


def test_keys_are_rotated() -> None:
    old, both, new = (
        make_codec("pickle", sign_keys=keys) for keys in ((OTHER,), (KEY, OTHER), (KEY,))
    )
    assert both.decode(old.encode(SIGNED_VALUE)) == SIGNED_VALUE
    assert new.decode(both.encode(SIGNED_VALUE)) == SIGNED_VALUE
    with pytest.raises(Undecodable):
        new.decode(old.encode(SIGNED_VALUE))


def test_a_secret_never_prints() -> None:
    keys = secrets(["squeamish ossifrage", b"squeamish bytes here"])
    options = CacheOptions(location="x", sign_keys=keys)
    codec = make_codec(sign_keys=keys)
    for text in (repr(options), str(options), repr(codec), f"{keys}", str(keys[0]), repr(keys[0])):
        assert "squeamish" not in text
    with pytest.raises(ValueError, match="has 4 bytes") as caught:
        secrets("abcd")
    assert "abcd" not in str(caught.value)


BOMB_BYTES = 64 << 20


@pytest.mark.parametrize("compressor", [name for name in COMPRESSORS if name != "none"])
def test_a_bomb_is_undecodable_and_takes_no_memory(compressor: str) -> None:
    bomb = make_codec("auto", compressor, 0).encode(bytes(BOMB_BYTES))
    assert len(bomb) < BOMB_BYTES // 100
    codec = make_codec(unpacked_max_bytes=1 << 20)
    with contextlib.suppress(Undecodable):
        codec.decode(bomb)  # imports the library
    tracemalloc.start()
    try:
        with pytest.raises(Undecodable):
            codec.decode(bomb)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 8 << 20


@pytest.mark.parametrize("name", ["zlib", "gzip", "lzma", "lz4", "zstd"])
def test_a_foreign_bomb_is_undecodable(name: str) -> None:
    bomb = make_codec("pickle", name, compat="django-redis").encode(bytes(BOMB_BYTES))
    for codec in (
        make_codec(unpacked_max_bytes=1 << 20, read_formats=("django-redis",)),
        make_codec(unpacked_max_bytes=1 << 20, compat="django-redis"),
    ):
        with pytest.raises(Undecodable):
            codec.decode(bomb)


def test_a_zstd_frame_without_its_size_is_bounded_as_well() -> None:
    stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    frame = stream.compress(bytes(1 << 22)) + stream.flush()
    assert make_codec().decode(b"\xd9" + frame) == bytes(1 << 22)
    with pytest.raises(Undecodable):
        make_codec(unpacked_max_bytes=1 << 20).decode(b"\xd9" + frame)


CODECS = [make_codec(**options) for options in SAFE.values()]


@given(raw=st.binary(max_size=200), header=st.integers(0x80, 0xFF))
@settings(max_examples=400)
def test_any_bytes_are_a_value_or_undecodable(raw: bytes, header: int) -> None:
    for codec in CODECS:
        for each in (raw, bytes((header,)) + raw):
            with contextlib.suppress(Undecodable):
                codec.decode(each)


@pytest.mark.parametrize("compressor", COMPRESSORS)
@pytest.mark.parametrize("serializer", ["exact", "json", "ujson", "msgpack"])
@given(data=st.data())
@settings(max_examples=40)
def test_changed_bytes_are_a_value_or_undecodable(
    serializer: str, compressor: str, data: st.DataObject
) -> None:
    value = data.draw(st.lists(st.integers() | st.text(), min_size=1, max_size=20))
    raw = bytearray(make_codec(serializer, compressor, 0).encode(value))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    for codec in CODECS:
        for each in (bytes(raw), bytes(raw[:cut])):
            with contextlib.suppress(Undecodable):
                codec.decode(each)


@given(value=EXACT, at=st.integers(0, 10**6), byte=st.integers(0, 255))
def test_changed_msgpack_is_a_value_or_undecodable(value: Any, at: int, byte: int) -> None:
    raw = bytearray(make_codec("msgpack").encode([value]))
    raw[at % len(raw)] = byte
    with contextlib.suppress(Undecodable):
        CODECS[0].decode(bytes(raw))


def test_deeply_nested_bytes_are_undecodable() -> None:
    codec = make_codec()
    for payload in (
        b"\x86" + b"\x91" * 100_000 + b"\xc0",
        b"\x86" + b"\x92\xc7\x00\x01" * 100_000 + b"\xc0",  # tuples in tuples
        b"\x84" + b"[" * 100_000,
        b"\x84 " + b"[" * 100_000,
        b"\x85" + b"[" * 100_000,
    ):
        with pytest.raises(Undecodable):
            codec.decode(payload)


class Rude(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def _rude(_state: Any) -> None:
    raise Rude


class RudeValue:
    def __reduce__(self) -> Any:
        return (_rude, (1,))


def test_an_error_without_a_text_is_undecodable_too() -> None:
    with pytest.raises(Undecodable, match="Rude"):
        make_codec().decode(make_codec("pickle").encode(RudeValue()))
