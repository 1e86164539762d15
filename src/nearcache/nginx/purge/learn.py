"""From a URL to the keys that a cache has it under: learned from the keys that are there.

nginx builds a key from variables of its configuration, which the directory does not tell. But
every entry has its key as text, so the shape of keys can be read off: what stands before the
path is a scheme, a method, a host (with ``|`` or the like between them), or fixed, like the
address of the upstream. The path is as it was sent, or decoded (``$uri``).

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

If two entries answer, the one is meant that has the URL as it is written. If there is none, or
keys are left over, nothing is chosen: the user has to say it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from urllib.parse import SplitResult

from nearcache.errors import NginxError
from nearcache.nginx.cachedir.directory import CacheDir
from nearcache.nginx.keys.groups import UPSTREAM, split_key
from nearcache.nginx.keys.templates import key_for, needs_site, split_url
from nearcache.report.words import printable

SAMPLED = 500  # keys
MOST_PREFIXES = 8  # of fixed text; more are no fixed text
SLICE = re.compile(rb"bytes=\d+-\d+$")
ITSELF = "the key itself"  # in place of a template
OTHER_SCHEME = {"http": "https", "https": "http"}

# What may stand before the path, and between that. A host may have a dash or a low line inside.
WORDS = {
    "scheme": r"(?:https?)",
    "method": r"(?:GET|HEAD)",
    "host": r"(?:[A-Za-z0-9](?:[A-Za-z0-9.\-_]*[A-Za-z0-9.])?|\[[0-9a-fA-F:.]+\])",
}
BETWEEN = r"(://|[^A-Za-z0-9.\[\]/]{0,3})"
ORDERS = (
    ("scheme", "method", "host"),
    ("method", "scheme", "host"),
    ("scheme", "host"),
    ("method", "host"),
    ("host", "scheme"),
    ("host", "method"),
    ("method",),
    ("scheme",),
    ("host",),
)


def _shape(order: Sequence[str], *, port: bool) -> tuple[tuple[str, ...], re.Pattern[str]]:
    """The words of a template, and how a key looks that has them in this order."""
    words = tuple(f"{{{word}}}" + "{port}" * (port and word == "host") for word in order)
    patterns = [WORDS[word] + r"(?::\d+)?" * (port and word == "host") for word in order]
    return words, re.compile(BETWEEN + BETWEEN.join(patterns) + BETWEEN)


# ``$http_host`` has the port that the client named.
SHAPES = [_shape(order, port=False) for order in ORDERS]
SHAPES += [_shape(order, port=True) for order in ORDERS if "host" in order]


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
    shapes = {text: _shapes_of(text) for text in before}
    counts = Counter[str]()
    for text, number in before.items():
        counts.update(dict.fromkeys(shapes[text], number))
    rates = {shape: counts[shape] / len(keys) for shape in _in_order(shapes.values())}
    prefixes = _fixed(before, len(keys))
    usable = {*_usable(rates)}
    explained = sum(
        number
        for text, number in before.items()
        if text in prefixes or not usable.isdisjoint(shapes[text])
    )
    return Learned(
        sampled=len(keys),
        rates=rates,
        prefixes=prefixes,
        explained=explained / max(1, len(keys)),
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


def _shapes_of(text: str) -> list[str]:
    """The templates of what may have made what stands before a path."""
    return [
        "".join(
            between.replace("{", "{{").replace("}", "}}") + word
            for between, word in zip(found.groups(), (*words, "{uri}"), strict=True)
        )
        for words, pattern in SHAPES
        if (found := pattern.fullmatch(text))
    ]


def _in_order(found: Iterable[Sequence[str]]) -> list[str]:
    """All that were found, those of the most words first, and of these without a port."""
    every = dict.fromkeys(shape for shapes in found for shape in shapes)
    return sorted(every, key=lambda shape: ("{port}" in shape, -shape.count("{")))


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
        found = _meant([each for each in turn if directory.has(each.key, levels)])
        if len(found) > 1:
            shown = " or ".join(printable(each.key.decode(errors="replace")) for each in found)
            raise NginxError(f"{url} may be {shown}; give the right one with --key")
        if found:
            return [Resolved(url, found[0].key, found[0].template, exists=True)]
    if not any(turns):
        raise NginxError(f"{url} has no scheme and host, and keys here need them ({learned.said})")
    could_be = [each for turn in turns for each in turn]
    return [each for each in could_be if _is_likely(each, learned)] or could_be


def _meant(found: list[Resolved]) -> list[Resolved]:
    """Of several entries the one whose key is the URL, else those that have it as it was sent: a
    key of the path alone is another page's then.
    """
    itself = [each for each in found if each.key == each.url.encode()]
    return itself or [each for each in found if "{uri}" in each.template] or found


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
    """Also as keys have them that are made of ``$uri``: decoded, and perhaps without arguments."""
    decoded = ["{path}{is_args}{args}"]
    if not learned.has_arguments:
        decoded.append("{path}")  # not one key with a question mark
    return [*templates, *(each.replace("{uri}", path) for each in templates for path in decoded)]


def _made(url: str, templates: Iterable[str], scheme: str | None) -> Iterator[Resolved]:
    seen: set[bytes] = set()
    for template in templates:
        if split_url(url).netloc or not needs_site(template):
            key = key_for(url, template, scheme)
            if key not in seen:
                yield Resolved(url, key, template, exists=False)
            seen.add(key)
