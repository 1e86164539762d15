"""nginx's times and sizes: ``1h30m`` as seconds, ``10m`` as bytes.

The letters mean different things: ``10m`` is ten minutes as a time and ten mebibytes as a
size; ``1M`` is a month of thirty days as a time. Source: src/core/ngx_parse.c.
"""

from __future__ import annotations

import re

_SECONDS = {
    "y": 365 * 86400,
    "M": 30 * 86400,
    "w": 7 * 86400,
    "d": 86400,
    "h": 3600,
    "m": 60,
    "s": 1,
    "": 1,
    "ms": 0.001,
}
_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_TIME_PART = re.compile(r"(\d+)(ms|[yMwdhms]?) *")
_SIZE = re.compile(r"(\d+)([kmgKMG]?)")


def parse_time(text: str) -> float | None:
    """Seconds; None if nginx would not take it (or if it is a variable)."""
    seconds, at = 0.0, 0
    while match := _TIME_PART.match(text, at):
        seconds += int(match[1]) * _SECONDS[match[2]]
        at = match.end()
    return seconds if text and at == len(text) else None


def parse_size(text: str) -> int | None:
    """Bytes; None if nginx would not take it (or if it is a variable)."""
    match = _SIZE.fullmatch(text)
    return int(match[1]) * _BYTES[match[2].lower()] if match else None


def format_time(seconds: float) -> str:
    """As one writes it in a configuration: ``90`` as ``90s``, ``86400`` as ``1d``."""
    whole = max(1, round(seconds))
    for letter in ("d", "h", "m"):
        if whole % _SECONDS[letter] == 0:
            return f"{whole // int(_SECONDS[letter])}{letter}"
    return f"{whole}s"


def format_size(size_bytes: int) -> str:
    """As one writes it in a configuration, in the largest unit that is exact."""
    for letter in ("g", "m", "k"):
        if size_bytes % _BYTES[letter] == 0 and size_bytes:
            return f"{size_bytes // _BYTES[letter]}{letter}"
    return str(size_bytes)
