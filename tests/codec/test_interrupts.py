"""A signal handler that raises while a value is read: its exception reaches the caller."""

from __future__ import annotations

import functools
import itertools
import pickle
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nearcache import backends
from nearcache.base.interrupts import is_interrupt
from nearcache.codec import Undecodable, foreign, foreign_codec, json_text, make_codec
from nearcache.codec import __file__ as codec_file
from nearcache.codec.compressors import __file__ as compressors_file
from tests.interrupted import Interrupt


class Late(ValueError):
    """As a time limit raises it: an Exception."""


class BySignal(Interrupt):
    """Hits as a signal does, through its handler."""

    def hit(self) -> None:
        signal.raise_signal(signal.SIGUSR1)


def _late(*_: Any) -> None:
    raise Late


class Limit:
    def __call__(self, *_: Any) -> None:
        raise Late

    def method(self, *_: Any) -> None:
        raise Late


@pytest.fixture(
    params=[_late, functools.partial(_late), Limit(), Limit().method],
    ids=["function", "partial", "object", "method"],
)
def handler(request: pytest.FixtureRequest) -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, request.param)
    yield
    signal.signal(signal.SIGUSR1, before)


class Slow:
    """Unpickles by code of its own, in which a signal comes."""

    def __setstate__(self, state: Any) -> None:
        signal.raise_signal(signal.SIGUSR1)


class Broken:
    def __setstate__(self, state: Any) -> None:
        raise Late


def broken(kind: type) -> Any:
    made = kind()
    made.something = 1
    return made


@pytest.mark.parametrize(
    "options",
    [{"serializer": "json", "compressor": "zlib"}, {"serializer": "exact"}, {}],
    ids=["json", "exact", "auto"],
)
@pytest.mark.usefixtures("handler")
def test_decoding(options: dict[str, Any]) -> None:
    codec = make_codec(**options)
    _interrupted(codec.decode, codec.encode(["a" * 5000]), ["a" * 5000])


@pytest.mark.usefixtures("handler")
def test_decoding_what_another_backend_wrote() -> None:
    codec = foreign_codec("django")
    _interrupted(codec.decode, codec.encode(["a"]), ["a"])


def _interrupted(decode: Callable[[bytes], Any], raw: bytes, value: Any) -> None:
    files = {codec_file, foreign.__file__, json_text.__file__, compressors_file}
    for number in itertools.count(1):
        interrupt = BySignal(number, Late(), files)
        try:
            with interrupt.under_way():
                assert decode(raw) == value
        except Late:
            assert interrupt.where
        if not interrupt.where:
            break
    assert number > 2


@pytest.mark.usefixtures("handler")
@pytest.mark.parametrize("serializer", ["auto", "pickle"])
def test_inside_the_code_of_a_class(private_path: Any, serializer: str) -> None:
    cache = backends.SharedMemoryCache(
        str(private_path / "cache"), {"OPTIONS": {"size": "8MB", "serializer": serializer}}
    )
    cache.set("slow", broken(Slow))
    cache.set("broken", broken(Broken))
    with pytest.raises(Late):
        cache.get("slow")
    assert cache.stats()["undecodable"] == 0
    assert cache.get("broken", 3) == 3
    assert cache.stats()["undecodable"] == 1


def test_an_error_of_a_value_is_no_interrupt() -> None:
    raw = pickle.dumps(broken(Broken))
    with pytest.raises(Late) as raised:
        pickle.loads(raw)
    assert not is_interrupt(raised.value)
    with pytest.raises(Undecodable):
        make_codec(serializer="pickle").decode(bytes((0x83,)) + raw)
