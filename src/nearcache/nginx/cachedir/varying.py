"""Which request headers lead to a stored variant: found out by trying, and proven by its MD5.

A variant's file has the MD5 of the request headers that ``Vary`` names, and not the
headers themselves. For ``Accept-Encoding`` and a few others there are not many values in the
world, so they are tried; one that gives the name of the file is the one that was sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product

from nearcache.nginx.cachedir.cachefile import CacheFile
from nearcache.nginx.keys.paths import variant_of

# What browsers, libraries and robots send.
COMMON: Mapping[str, Sequence[str]] = {
    "accept-encoding": (
        "",
        "gzip, deflate, br, zstd",
        "gzip, deflate, br",
        "gzip, deflate",
        "gzip",
        "br",
        "identity",
        "gzip, br",
        "gzip,deflate,br,zstd",
        "br, gzip, deflate",
        "gzip;q=1.0,deflate;q=0.6,identity;q=0.3",
        "*",
        "deflate",
        "zstd",
    ),
    "accept": (
        "",
        "*/*",
        "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
        (
            "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,"
            "image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7"
        ),
        "text/html",
        "application/json",
        "application/json, text/plain, */*",
        "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8",
    ),
    "accept-language": ("", "en", "en-US", "en-US,en;q=0.9", "en-US,en;q=0.5", "de", "fr", "*"),
    "x-requested-with": ("", "XMLHttpRequest"),
    "save-data": ("", "on"),
    "x-forwarded-proto": ("", "https", "http"),
    "sec-fetch-mode": ("", "navigate", "cors", "no-cors"),
    "hx-request": ("", "true"),
}
ABSENT: Sequence[str] = ("",)  # all that is known of Cookie, Authorization and the like
TRIES = 5000


def names_in(vary: bytes) -> list[str]:
    """``Vary`` as nginx splits it, in lower case."""
    return [name for name in re.split(r"[ ,]+", vary.decode("latin-1").lower()) if name]


def headers_of(entry: CacheFile, also: Sequence[Mapping[str, str]] = ()) -> dict[str, str] | None:
    """The request headers that lead to this file; None if no guess gives its name.

    Args:
        also: headers that a caller knows are sent; tried first.
    """
    if not entry.variant:
        return {}
    for headers in (*also, *islice(_guesses(names_in(entry.vary)), TRIES)):
        if variant_of(entry.key, entry.vary, headers) == entry.variant:
            return {name: value for name, value in headers.items() if value}
    return None


def _guesses(names: Sequence[str]) -> Iterator[dict[str, str]]:
    unique = list(dict.fromkeys(names))
    for values in product(*(COMMON.get(name, ABSENT) for name in unique)):
        yield dict(zip(unique, values, strict=True))
