"""zstd, plain and with trained dictionaries.

A dictionary holds what the values of a site have in common, so that a small value is mostly
references to it. A frame names the dictionary it needs by number; :class:`Dictionaries` keeps
several, so that values stay readable after a new one was trained.

Contexts are kept and used again: making one takes longer than packing a small value. They must
not be shared by two threads at a time, so each call takes one out of a list and puts it back.
A list, not a ``threading.local``: under gevent every greenlet would make its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nearcache.codec.errors import library
from nearcache.errors import OptionError

UNKNOWN = -1  # a frame that does not say how long its content is


class Contexts:
    """Makes as many contexts as threads use at once, and keeps them."""

    __slots__ = ("_idle", "_make")

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._idle: list[Any] = []

    def take(self) -> Any:
        try:
            return self._idle.pop()  # atomic, like the append below
        except IndexError:
            return self._make()

    def give_back(self, context: Any) -> None:
        self._idle.append(context)


class Zstd:
    """One level, and maybe one dictionary."""

    def __init__(self, level: int, dictionary: Any = None) -> None:
        zstandard = library("zstandard")
        if dictionary is not None:
            # Else every context would digest the dictionary once more.
            dictionary.precompute_compress(level=level)
        self._packers = Contexts(
            lambda: zstandard.ZstdCompressor(level=level, dict_data=dictionary)
        )
        self._unpackers = Contexts(lambda: zstandard.ZstdDecompressor(dict_data=dictionary))

    def pack(self, payload: bytes) -> bytes:
        context = self._packers.take()
        packed: bytes = context.compress(payload)
        self._packers.give_back(context)  # not after an error: it may be in any state
        return packed

    def unpack(self, payload: bytes, max_bytes: int) -> bytes:
        size_bytes = library("zstandard").frame_content_size(payload)
        if size_bytes > max_bytes:
            raise ValueError(f"unpacks to {size_bytes} bytes; allowed are {max_bytes}")
        context = self._unpackers.take()
        unpacked: bytes
        if size_bytes == UNKNOWN:
            unpacked = _streamed(context, payload, max_bytes)
        else:
            unpacked = context.decompress(payload, allow_extra_data=False)
        self._unpackers.give_back(context)
        return unpacked


def _streamed(context: Any, payload: bytes, max_bytes: int) -> bytes:
    with context.stream_reader(payload) as reader:
        unpacked: bytes = reader.read(max_bytes + 1)
    if len(unpacked) > max_bytes:
        raise ValueError(f"unpacks to more than {max_bytes} bytes")
    return unpacked


_plain: list[Zstd] = []


def unpack_zstd(payload: bytes, max_bytes: int) -> bytes:
    """Unpacks a frame that needs no dictionary."""
    if not _plain:
        _plain.append(Zstd(3))
    return _plain[0].unpack(payload, max_bytes)


class Dictionaries:
    """Trained dictionaries from files: the first writes, all read."""

    def __init__(self, paths: Sequence[str], level: int) -> None:
        self._by_id: dict[int, Zstd] = {}
        for path in paths:
            data = _dictionary(path)
            self._by_id.setdefault(data.dict_id(), Zstd(level, data))
        self._first = next(iter(self._by_id.values()))

    def pack(self, payload: bytes) -> bytes:
        return self._first.pack(payload)

    def unpack(self, payload: bytes, max_bytes: int) -> bytes:
        if len(self._by_id) == 1:  # zstd itself refuses a frame that needs another
            return self._first.unpack(payload, max_bytes)
        wanted = library("zstandard").get_frame_parameters(payload).dict_id
        if wanted not in self._by_id:
            raise ValueError(f"needs dictionary {wanted}, which is not in compress_dictionary")
        return self._by_id[wanted].unpack(payload, max_bytes)


def _dictionary(path: str) -> Any:
    zstandard = library("zstandard")
    try:
        return zstandard.ZstdCompressionDict(
            Path(path).read_bytes(), dict_type=zstandard.DICT_TYPE_FULLDICT
        )
    except (OSError, ValueError, zstandard.ZstdError) as error:
        problem = f"{path!r} cannot be used ({error})"
        raise OptionError("nearcache.codec", "compress_dictionary", problem) from error
