"""Commands as bytes, replies as objects: both readers, whatever the chunks, hostile bytes too."""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcache.engines.redis.protocol import resp
from nearcache.engines.redis.protocol.resp import (
    MORE,
    PUSHES,
    ErrorReply,
    ProtocolError,
    PythonReader,
    make_reader,
    pack,
)

PARSERS = ["hiredis", "python"]

# ---- replies, as a server writes them

TEXT = st.binary(max_size=20).filter(lambda text: b"\r" not in text and b"\n" not in text)
SIGNED = st.integers(-(1 << 63), (1 << 63) - 1)


def bulk(kind: bytes, value: bytes) -> bytes:
    return kind + b"%d\r\n%b\r\n" % (len(value), value)


def line(kind: bytes, value: bytes) -> bytes:
    return kind + value + b"\r\n"


SCALARS = st.one_of(
    st.builds(bulk, st.just(b"$"), st.binary(max_size=300)),
    st.builds(bulk, st.just(b"="), st.binary(max_size=30).map(lambda text: b"txt:" + text)),
    st.builds(line, st.just(b"+"), TEXT),
    st.builds(line, st.just(b"-"), TEXT),
    st.builds(line, st.just(b":"), SIGNED.map(lambda number: b"%d" % number)),
    st.builds(line, st.just(b"("), st.integers().map(lambda number: b"%d" % number)),
    st.builds(line, st.just(b","), st.floats(width=32).map(lambda number: b"%r" % number)),
    st.sampled_from([b"$-1\r\n", b"*-1\r\n", b"_\r\n", b"#t\r\n", b"#f\r\n", b",inf\r\n"]),
)
HASHABLE = st.builds(bulk, st.just(b"$"), st.binary(max_size=5))


def collection(kind: bytes, items: list[bytes]) -> bytes:
    return kind + b"%d\r\n" % len(items) + b"".join(items)


def mapping(pairs: list[tuple[bytes, bytes]]) -> bytes:
    return b"%%%d\r\n" % len(pairs) + b"".join(key + value for key, value in pairs)


def collections(inner: Any) -> Any:
    kinds = st.sampled_from([b"*", b"~", b">"])
    return st.builds(collection, kinds, st.lists(inner, max_size=5))


def maps(inner: Any) -> Any:
    # No key twice: hiredis then gives None for its value.
    pairs = st.lists(st.tuples(HASHABLE, inner), max_size=4, unique_by=lambda pair: pair[0])
    return st.builds(mapping, pairs)


REPLIES = st.recursive(SCALARS, lambda inner: collections(inner) | maps(inner), max_leaves=12)
LISTS = st.recursive(SCALARS, collections, max_leaves=12)


def shown(reply: Any) -> Any:
    """Something that compares: errors and NaN do not."""
    if isinstance(reply, list):
        kind = "push" if isinstance(reply, PUSHES) else "list"
        return kind, [shown(each) for each in reply]
    if isinstance(reply, dict):
        return "map", [(shown(key), shown(value)) for key, value in reply.items()]
    if isinstance(reply, ErrorReply):
        return "error", str(reply), reply.code
    if isinstance(reply, float) and math.isnan(reply):
        return "nan"
    return type(reply).__name__, reply


def read(parser: Any, chunks: list[bytes]) -> tuple[list[Any], Exception | None]:
    """All replies, and the error that ended them."""
    reader, replies = make_reader(parser), []
    try:
        for chunk in chunks:
            reader.feed(chunk)
            while (reply := reader.gets()) is not MORE:
                replies.append(shown(reply))
    except (ProtocolError, TypeError) as error:  # TypeError: hiredis, a list as a map's key
        return replies, error
    return replies, None


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(place % (len(data) + 1) for place in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(places)]


CUTS = st.lists(st.integers(0, 10_000), max_size=12)


@given(st.lists(REPLIES, max_size=4), CUTS)
def test_both_readers_give_the_same_replies_however_they_come(
    replies: list[bytes], cuts: list[int]
) -> None:
    chunks = cut(b"".join(replies), cuts)
    with_python, error = read("python", chunks)
    assert error is None
    assert len(with_python) == len(replies)
    assert (with_python, None) == read("hiredis", chunks)


@given(st.lists(LISTS, min_size=1, max_size=3), st.data(), CUTS)
def test_damaged_bytes_give_what_hiredis_gives_or_an_error(
    replies: list[bytes], data: Any, cuts: list[int]
) -> None:
    raw = bytearray(b"".join(replies))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(raw) - 1))
        raw[place] = data.draw(st.sampled_from(list(b"0123456789-+*$~>:,_#=(!\r\n t\x00\xff")))
    chunks = cut(bytes(raw), cuts)
    with_python, error = read("python", chunks)
    with_hiredis, _ = read("hiredis", chunks)
    assert error is None or isinstance(error, ProtocolError)
    # One of them may be stricter; until then they agree.
    length = min(len(with_python), len(with_hiredis))
    assert with_python[:length] == with_hiredis[:length]


@given(st.binary(max_size=200), CUTS)
def test_any_bytes_give_replies_or_a_protocol_error(raw: bytes, cuts: list[int]) -> None:
    _, error = read("python", cut(raw, cuts))
    assert error is None or isinstance(error, ProtocolError)


@pytest.mark.parametrize(
    "hostile",
    [
        b"$1073741825\r\n",
        b"$99999999999999999999\r\n",
        b"$-2\r\n",
        b"$ 1\r\na\r\n",
        b"$1\r\nabc",
        b"*134217729\r\n",
        b"*-2\r\n",
        b"*1\r\n" * 65,
        b"+" + b"x" * 1_048_600,
        b"HTTP/1.1 400 Bad Request",
        b"\x15\x03\x03\x00\x02\x02\x46",
        b"|1\r\n+a\r\n+b\r\n+c\r\n",
        b"%1\r\n*0\r\n+a\r\n",
        b":+1\r\n",
        b":1_0\r\n",
        b",1_0\r\n",
    ],
    ids=lambda raw: repr(raw[:24]),
)
def test_lengths_depths_and_bytes_that_no_server_sends_are_refused(hostile: bytes) -> None:
    reader = PythonReader()
    with pytest.raises(ProtocolError):  # noqa: PT012 - whichever of the two notices
        reader.feed(hostile)
        while reader.gets() is not MORE:
            pass


def test_a_length_alone_takes_no_memory() -> None:
    reader = PythonReader()
    reader.feed(b"*134217728\r\n*134217728\r\n$1073741824\r\n")
    assert reader.gets() is MORE


@pytest.mark.parametrize("parser", PARSERS)
def test_a_large_value_in_many_pieces_is_not_read_over_and_over(parser: Any) -> None:
    reader, piece = make_reader(parser), b"x" * 4096
    started = time.process_time()
    reader.feed(b"*1\r\n$%d\r\n" % (4096 * 8192))
    for _ in range(8192):
        assert reader.gets() is MORE
        reader.feed(piece)
    reader.feed(b"\r\n")
    assert len(reader.gets()[0]) == 4096 * 8192
    assert time.process_time() - started < 3  # quadratic, it takes minutes


@pytest.mark.parametrize("parser", PARSERS)
def test_false_is_a_reply_and_not_a_lack_of_bytes(parser: Any) -> None:
    reader = make_reader(parser)
    reader.feed(b"#f\r\n")
    assert reader.gets() is False
    assert reader.gets() is MORE


@pytest.mark.parametrize("parser", PARSERS)
def test_bytes_behind_a_reply_are_seen(parser: Any) -> None:
    reader = make_reader(parser)
    reader.feed(b"+OK\r\n+OK\r\n")
    assert reader.gets() == b"OK"
    assert reader.has_data()
    assert reader.gets() == b"OK"
    assert not reader.has_data()


def test_hiredis_is_used_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(make_reader()).__module__ == "hiredis"
    assert isinstance(make_reader("python"), PythonReader)
    monkeypatch.setattr(resp, "hiredis", None)
    assert isinstance(make_reader(), PythonReader)
    with pytest.raises(ModuleNotFoundError, match="pip install hiredis"):
        make_reader("hiredis")


def test_pack_takes_text_and_numbers() -> None:
    assert pack("SET", b"k", 12) == b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n12\r\n"


@pytest.mark.parametrize(
    ("word", "bulk"),
    [
        (b"", b"$0\r\n\r\n"),
        (b"\xff\r\n", b"$3\r\n\xff\r\n\r\n"),
        ("\u20ac", b"$3\r\n\xe2\x82\xac\r\n"),
        (0, b"$1\r\n0\r\n"),
        (-(2**63), b"$20\r\n-9223372036854775808\r\n"),
        (2**63, b"$19\r\n9223372036854775808\r\n"),
    ],
)
def test_each_word_is_packed_as_its_bytes(word: Any, bulk: bytes) -> None:
    assert pack(b"GET", word) == b"*2\r\n$3\r\nGET\r\n" + bulk


def test_text_that_is_no_text_is_not_packed() -> None:
    with pytest.raises(UnicodeEncodeError):
        pack("\ud800")
