"""What the rows of the nginx doctor work on: a log, a load, a cache directory. All from seeds."""

from __future__ import annotations

import os
import random
import zlib
from functools import cache
from itertools import accumulate, cycle, islice
from pathlib import Path

from nearcache.nginx.cachedir.cachefile import MARKER
from nearcache.nginx.cachedir.layout import LAYOUTS
from nearcache.nginx.keys.paths import name_of, path_of, variant_of
from tests.nginx.entries import made, made_variant

LEVELS = (1, 2)
VARY = b"Accept-Encoding"
WRITING = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
MADE_LINES = 10_000
BEGAN_S = 1_780_000_000
TTL_S = 600
SPAN_S = 7200
TRACE_FORMAT = (
    "$msec $request_time $upstream_response_time $upstream_cache_status"
    ' $status $body_bytes_sent "$request"'
)
AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "curl/8.5.0",
)


def repeated_log(path: Path, source: Path | None, lines: int) -> None:
    """A combined log of so many lines: those of ``source`` again and again, or made ones."""
    text = source.read_bytes().splitlines(keepends=True) if source else _combined()
    with path.open("wb") as log:
        log.writelines(islice(cycle(text), lines))


def _combined() -> list[bytes]:
    chance = random.Random(1)
    return [
        b"10.0.%d.%d - - [17/May/2026:10:%02d:%02d +0000] "
        b'"GET /page/%d?q=%d HTTP/1.1" %d %d "-" "%s"\n'
        % (
            chance.randrange(20),
            chance.randrange(256),
            number * 60 // MADE_LINES,
            number * 3600 // MADE_LINES % 60,
            int(chance.paretovariate(0.9)) % 3000,
            chance.randrange(9),
            chance.choices((200, 304, 404), (90, 7, 3))[0],
            int(chance.lognormvariate(8, 1)),
            chance.choice(AGENTS).encode(),
        )
        for number in range(MADE_LINES)
    ]


def zipf_log(requests: int, keys: int, exponent: float = 0.9) -> bytes:
    """A log of TRACE_FORMAT whose statuses are those of a cache that keeps for TTL_S."""
    chance = random.Random(2)
    weights = list(accumulate(1 / rank**exponent for rank in range(1, keys + 1)))
    fresh_until = [0.0] * keys
    lines = []
    for number, key in enumerate(chance.choices(range(keys), cum_weights=weights, k=requests)):
        at = BEGAN_S + SPAN_S * number / requests
        size = 500 + key * 7919 % 20_000
        if at < fresh_until[key]:
            answered = f"{at:.3f} 0.000 - HIT"
        else:
            fresh_until[key] = at + TTL_S
            answered = f"{at:.3f} 0.020 0.020 MISS"
        lines.append(f'{answered} 200 {size} "GET /page/{key}?n={key % 7} HTTP/1.1"\n')
    return "".join(lines).encode()


def url_of(number: int) -> str:
    return f"https://example.com/page/{number}?n={number % 7}"


def fill(root: Path, entries: int, varies_each: int = 0) -> None:
    """A cache directory with an entry for each number below ``entries``, fresh for years.

    Args:
        varies_each: one of so many files is a variant of the entry before it (:func:`varied`).
    """
    for number in range(entries):
        if varies_each and (number + 1) % varies_each == 0:
            store_variant(root, varied(number))
        else:
            store(root, number)


def varied(number: int) -> int:
    """The entry that has a variant in place of this one."""
    return number - 1


def store(root: Path, number: int) -> None:
    """Puts one entry there, fresh."""
    key = url_of(number).encode()
    stencil, at = _stencil(len(key)), LAYOUTS[0].fields["crc32"].offset
    begins = LAYOUTS[0].size + len(MARKER)
    crc = LAYOUTS[0].pack_number("crc32", zlib.crc32(key))
    parts = stencil[:at], crc, stencil[at + len(crc) : begins], key, stencil[begins + len(key) :]
    _write(root, name_of(key), b"".join(parts))


def store_variant(root: Path, number: int) -> None:
    """The entry anew, as it is where it varies, and a variant of it."""
    key = url_of(number).encode()
    name = variant_of(key, VARY, {"Accept-Encoding": "gzip"})
    vary_len = len(VARY)
    _write(root, name_of(key), made(LAYOUTS[0], key, bytes(3000), vary_len=vary_len, vary=VARY))
    _write(root, name, made_variant(LAYOUTS[0], key, name, VARY))


@cache
def _stencil(length: int) -> bytes:
    """An entry whose key is so long: to make one takes ten times as long as to copy it."""
    return made(LAYOUTS[0], bytes(length), bytes(3000), vary_len=0, updating_sec=0, error_sec=0)


def _write(root: Path, name: str, content: bytes) -> None:
    path = f"{root}/{path_of(name, LEVELS)}"
    try:
        file = os.open(path, WRITING, 0o600)
    except FileNotFoundError:
        Path(path).parent.mkdir(parents=True)
        file = os.open(path, WRITING, 0o600)
    os.write(file, content)
    os.close(file)
