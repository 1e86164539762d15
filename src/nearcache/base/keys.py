"""Keys: Django's default key function, key bytes, and glob patterns over them.

Patterns are Redis's: ``*`` any run, ``?`` one byte, ``[abc]`` ``[a-z]`` ``[^a]`` one byte of
a set, ``\\`` takes the next byte literally. They match whole keys, as bytes; each engine matches
them itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable

KeyFunction = Callable[[str, str, int], str]

_SPECIAL = re.compile(rb"[*?\[\]\\]")


def encode_key(text: str) -> bytes:
    """The bytes that an engine stores a key under. A lone surrogate makes a key like any other."""
    return text.encode("utf-8", "surrogatepass")


def decode_key(raw: bytes) -> str:
    """The text of a stored key. Bytes that no text encodes to are shown escaped."""
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return raw.decode("utf-8", "backslashreplace")


def glob_escape(literal: bytes) -> bytes:
    """A pattern that matches exactly ``literal``: for prefixes with special characters."""
    return _SPECIAL.sub(rb"\\\g<0>", literal)


class KeySpace:
    """The keys of one prefix and version, under one key function.

    Listing and deleting by pattern need keys of the form ``<constant><user key>``. The default key
    function makes such keys, and so do most others. A key function that hashes does not:
    :attr:`prefix` is then ``None``.
    """

    _PROBE = "probe"

    def __init__(self, key_func: KeyFunction, key_prefix: str, version: int) -> None:
        start = key_func("", key_prefix, version)
        ends_with_key = key_func(self._PROBE, key_prefix, version) == start + self._PROBE
        self.prefix = encode_key(start) if ends_with_key else None

    def glob(self, pattern: str) -> bytes:
        """``pattern`` over user keys as a pattern over stored keys."""
        return glob_escape(self.prefix or b"") + encode_key(pattern)

    def user_key(self, raw: bytes) -> str:
        return decode_key(raw[len(self.prefix or b"") :])
