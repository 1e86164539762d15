"""From a URL to the keys that a cache has it under: learned from the keys that are there.

nginx builds a key from variables of its configuration, which the directory does not tell. But
every entry has its key as text, so the shape of keys can be read off: what stands before the
path is a scheme, a method, a host, or fixed, like the address of the upstream.

A shape is a guess until it is proven: what it makes of the URL must be the key of an entry.
And nothing may be left over: the shapes found must explain every key that was looked at, else
an entry of the URL could lie there under a shape that nobody knows. Two locations with keys
of their own may share a cache, so it may take several shapes. Asked in this order, until one
answers:

    1. shapes with the scheme and host of the URL
    2. the same with the other scheme: something before nginx may speak TLS
    3. fixed beginnings of keys, unless one of them has the URL's host: then hosts
       tell pages apart, and another host's page is another page. Of several, only
       those that look like an upstream: with a port, an address, or no domain

If two entries answer, or keys are left over, nothing is chosen: the user has to say it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from urllib.parse import SplitResult

from nearcache.errors import NginxError
from nearcache.nginx.logs.urlshape import split_key
from nearcache.nginx.ondisk.cachedir import CacheDir
from nearcache.nginx.purging.templates import key_for, needs_site, split_url
from nearcache.nginx.text import printable

SAMPLED = 500  # keys
MOST_PREFIXES = 8  # of fixed text; more are no fixed text
SLICE = re.compile(rb"bytes=\d+-\d+$")
ITSELF = "the key itself"  # in place of a template
OTHER_SCHEME = {"http": "https", "https": "http"}

SCHEME, METHOD = r"(?:https?)", r"(?:GET|HEAD)"
HOST = r"(?:[A-Za-z0-9.\-_]+|\[[0-9a-fA-F:.]+\])"
# What may stand before the path, and how it looks there.
BEFORE_PATH = {
    "{scheme}{method}{host}": f"{SCHEME}{METHOD}{HOST}",
    "{method}{scheme}://{host}": f"{METHOD}{SCHEME}://{HOST}",
    "{method}{scheme}{host}": f"{METHOD}{SCHEME}{HOST}",
    "{scheme}://{host}": f"{SCHEME}://{HOST}",
    "{scheme}{host}": f"{SCHEME}{HOST}",
    "{method}{host}": f"{METHOD}{HOST}",
    "{method}|{host}": rf"{METHOD}\|{HOST}",
    "{scheme}|{host}": rf"{SCHEME}\|{HOST}",
    "{method}": METHOD,
    "{scheme}": SCHEME,
    "{host}": HOST,
}
UPSTREAM = re.compile(r"(?::\d+|//[\d.]+|//[^./]+|\])$")
# ``$http_host`` has the port that the client named.
SHAPES = BEFORE_PATH | {
    f"{shape}{{port}}": rf"{pattern}(?::\d+)?"
    for shape, pattern in BEFORE_PATH.items()
    if shape.endswith("{host}")
}


@dataclass(frozen=True)
class Learned:
    """The shapes of keys in a cache."""

    sampled: int  # keys that were looked at
    rates: dict[str, float]  # template to the share of keys that it explains
    prefixes: tuple[str, ...]  # fixed texts before the path, if few
    explained: float  # the share of keys that have one of these, or a shape
    has_arguments: bool  # does any key have a question mark?
    sliced: bool  # do keys end as the slice module makes them?

    @property
    def usable(self) -> list[str]:
        return _usable(self.rates)

    @property
    def said(self) -> str:
        """``{host}{uri}: 60 %, ...``, for messages."""
        best = sorted(self.rates.items(), key=lambda item: -item[1])[:3]
        return ", ".join(f"{template}: {int(100 * rate)} %" for template, rate in best) or "none"


@dataclass(frozen=True)
class Resolved:
    """A key for a URL, and how it was found."""

    url: str
    key: bytes
    template: str
    exists: bool  # is there an entry with it: is it proven?


def learn(directory: CacheDir, count: int = SAMPLED) -> Learned:
    """The shapes that explain the first keys of a directory."""
    keys = [found.entry.key for found in islice(directory.walk(), count)]
    parts = [split_key(key.decode("utf-8", "surrogateescape")) for key in keys]
    before = Counter(prefix for prefix, uri in parts if uri)
    rates = {
        f"{shape}{{uri}}": rate
        for shape, pattern in SHAPES.items()
        if (rate := _rate(re.compile(pattern), before, len(keys)))
    }
    prefixes = _fixed(before, len(keys))
    return Learned(
        sampled=len(keys),
        rates=rates,
        prefixes=prefixes,
        explained=_explained(before, rates, prefixes) / max(1, len(keys)),
        has_arguments=any("?" in uri for _, uri in parts),
        sliced=any(SLICE.search(key) for key in keys),
    )


def _usable(rates: Mapping[str, float]) -> list[str]:
    """Templates that explain every key, or that name the host: an entry then proves them."""
    return [shape for shape, rate in rates.items() if rate == 1 or "{host}" in shape]


def _fixed(before: Counter[str], whole: int) -> tuple[str, ...]:
    """What stands before every path; of several, what looks like an upstream."""
    if len(before) == 1 and before.total() == whole:
        return tuple(before)
    upstreams = tuple(text for text in before if UPSTREAM.search(text))
    return upstreams if len(upstreams) <= MOST_PREFIXES else ()


def _explained(before: Counter[str], rates: Mapping[str, float], prefixes: Sequence[str]) -> int:
    """How many keys begin with a fixed text, or as a shape that can be used."""
    shapes = [re.compile(SHAPES[shape.removesuffix("{uri}")]) for shape in _usable(rates)]
    return sum(
        number
        for text, number in before.items()
        if text in prefixes or any(shape.fullmatch(text) for shape in shapes)
    )


def _rate(pattern: re.Pattern[str], before: Counter[str], whole: int) -> float:
    return sum(number for text, number in before.items() if pattern.fullmatch(text)) / max(1, whole)


def resolve(
    url: str, directory: CacheDir, levels: Sequence[int], learned: Learned
) -> list[Resolved]:
    """The key of a URL, proven by an entry; all that it could be, if there is no entry.

    Raises:
        NginxError: keys are left over that no shape explains, or two shapes lead to two entries;
            the message says what to do.
    """
    parts = split_url(url)
    _refuse_what_is_not_learned(url, learned)
    turns = [list(_from_shapes(url, learned, None))]
    if parts.netloc:
        turns.append(list(_from_shapes(url, learned, OTHER_SCHEME[parts.scheme])))
    if not any(_is_of(prefix, parts) for prefix in learned.prefixes):
        turns.append(list(_from_prefixes(url, learned)))
    for turn in turns:
        found = [each for each in turn if directory.has(each.key, levels)]
        if len(found) > 1:
            shown = " or ".join(printable(each.key.decode(errors="replace")) for each in found)
            raise NginxError(f"{url} may be {shown}; give the right one with --key")
        if found:
            return [Resolved(url, found[0].key, found[0].template, exists=True)]
    if not any(turns):
        raise NginxError(f"{url} has no scheme and host, and keys here need them ({learned.said})")
    could_be = [each for turn in turns for each in turn]
    return [each for each in could_be if _is_likely(each, learned)] or could_be


def _is_likely(each: Resolved, learned: Learned) -> bool:
    """Is it of the commonest shapes? (Others are tried, and are not worth a line.)"""
    best = max(learned.rates.values(), default=0.0)
    return learned.rates.get(each.template, best) == best


def _is_of(prefix: str, parts: SplitResult) -> bool:
    """Does a key that begins so name the host of the URL? (``127.0.0.1`` is not
    ``127.0.0.1:8000``: that is an upstream.)
    """
    hosts = parts.netloc.lower(), parts.hostname or ""
    return any(host and prefix.lower().endswith(host) for host in hosts)


def _refuse_what_is_not_learned(url: str, learned: Learned) -> None:
    if learned.sliced:
        raise NginxError(
            "keys of this cache end in byte ranges (the slice module), many for one URL;"
            f" purge them with --match '*{split_url(url).path}*bytes=*'"
        )
    if learned.explained < 1:
        raise NginxError(
            f"no shapes explain all of the {learned.sampled} keys looked at ({learned.said});"
            " give the key with --key, its shape with --template, or --config nginx.conf"
        )


def _from_shapes(url: str, learned: Learned, scheme: str | None) -> Iterator[Resolved]:
    shapes = [s for s in learned.usable if scheme is None or "{scheme}" in s]
    return _made(url, _with_paths(shapes, learned), scheme)


def _from_prefixes(url: str, learned: Learned) -> Iterator[Resolved]:
    escaped = [each.replace("{", "{{").replace("}", "}}") for each in learned.prefixes]
    fixed = [f"{prefix}{{uri}}" for prefix in escaped]
    return _made(url, _with_paths(fixed, learned), None)


def _with_paths(templates: Sequence[str], learned: Learned) -> list[str]:
    if learned.has_arguments:
        return list(templates)
    # Not one key with a question mark: perhaps keys are of the path alone.
    return [*templates, *(template.replace("{uri}", "{path}") for template in templates)]


def _made(url: str, templates: Iterable[str], scheme: str | None) -> Iterator[Resolved]:
    seen: set[bytes] = set()
    for template in templates:
        if split_url(url).netloc or not needs_site(template):
            key = key_for(url, template, scheme)
            if key not in seen:
                yield Resolved(url, key, template, exists=False)
            seen.add(key)
