"""What a configuration says about the requests of a log: locations, and how their cache works.

All of it may be missing: without a configuration the log is read alone. Where locations
differ (one keeps for an hour, another for a day) the answer is None: one pass has one rule,
and a wrong one would give wrong reasons.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from nearcache.errors import NginxError

if TYPE_CHECKING:
    from nearcache.nginx.config.read.configuration import Configuration, Location

MATCHING = ("", "=", "^~", "~", "~*")  # kinds of locations that a path can match
PATHS = {"uri", "document_uri"}
WITH_ARGS = {"request_uri", "args", "query_string"}
HOSTS = {"host", "http_host", "server_name"}
PLAIN = PATHS | WITH_ARGS | HOSTS | {"scheme", "proxy_host", "request_method", "is_args"}
EVERYTHING = "scheme host args"
_ONE_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
Fact = TypeVar("Fact")


@dataclass(frozen=True)
class Site:
    """The rules of one site. The default: nothing is known."""

    formats: Mapping[str, str] = field(default_factory=dict)
    logs: tuple[str, ...] = ()
    logs_elsewhere: tuple[str, ...] = ()
    """As written, relative to nginx's prefix or with a variable: which files they are is open."""
    locations: tuple[tuple[str, str], ...] = ()
    protocol: str | None = None
    """``uwsgi`` where it is ``uwsgi_cache``; None if not known, or several."""
    key_variable: str | None = None
    valid_s: Mapping[str, float] | None = None
    """``*_cache_valid`` by status; empty: there is none; None: not known."""
    inactive_s: float | None = None
    min_uses: int = 1
    ignore_headers: tuple[str, ...] = ()
    key_parts: tuple[str, ...] = ()
    """For each of ``locations``, and as the last for what matches none: which of ``scheme host
    method args`` are in its key, beside the path. Empty if nobody says."""
    key_is_url: bool = False
    """Does the configuration say that keys are URLs, with or without scheme, host and method? Then
    a log need not have them."""
    lock: bool | None = None
    """Is there a ``*_cache_lock``? None if not known."""
    notes: tuple[str, ...] = ()

    @property
    def is_known(self) -> bool:
        """Is there a configuration?"""
        return bool(self.formats)

    @property
    def settles(self) -> tuple[str, ...]:
        """What a log need not tell, because the configuration does."""
        return ("key",) if self.key_is_url else ()

    @property
    def cache_name(self) -> str:
        """For sentences: ``uwsgi_cache``, or just ``cache``."""
        return f"{self.protocol}_cache" if self.protocol else "cache"

    @property
    def prefix(self) -> str:
        """For directives in advice: ``proxy`` unless it is known better."""
        return self.protocol or "proxy"


def site_of(configuration: Configuration, host: str | None = None) -> Site:
    """The rules of the server that answers ``host``, or of all servers."""
    wanted = [each for each in configuration.locations if _serves(each, host)]
    notes = []
    if host and not wanted:  # a wildcard, a regular expression, or the default server
        wanted = list(configuration.locations)
        notes.append(f"no server_name is {host} to the letter: the locations of all servers count")
    cached = [each for each in wanted if each.zone]
    servers = {id(each.server) for each in wanted}
    valid = _same(_valid_s(each) for each in cached)
    locations = _locations(wanted)
    key_parts = _parts_of_all(locations, wanted, cached)
    if len({name for each in cached for name in each.server_names}) > 1:
        notes += _hostless(locations, key_parts)
    written = dict.fromkeys(log.path for log in configuration.logs)
    paths = [path for path in written if path != "off" and not path.startswith("syslog:")]
    if len(servers) > 1:
        notes.append(
            f"the configuration has {len(servers)} servers, and their locations are taken "
            "together; --host takes those of one"
        )
    return Site(
        formats=configuration.formats,
        logs=tuple(path for path in paths if _is_one_file(path)),
        logs_elsewhere=tuple(path for path in paths if not _is_one_file(path)),
        locations=locations,
        protocol=_same(each.protocol for each in cached),
        key_variable=_same(_key_variable(each.key) for each in cached),
        valid_s=None if valid is None else dict(valid),
        inactive_s=_same(_inactive_s(configuration, each) for each in cached),
        min_uses=_same(each.min_uses for each in cached) or 1,
        ignore_headers=tuple(sorted(_same(each.ignore_headers for each in cached) or ())),
        key_parts=key_parts,
        key_is_url=bool(cached) and all(map(_key_is_url, cached)),
        lock=_same(each.lock for each in cached),
        notes=tuple(notes),
    )


def parse_location(text: str) -> tuple[str, str]:
    """``~ \\.php$`` as (kind, pattern), as it is written after ``location``."""
    kind, _, pattern = text.strip().partition(" ")
    if not pattern:
        return "", kind
    if kind not in MATCHING:
        raise NginxError(f"location {text!r} begins with none of = ^~ ~ ~*")
    return kind, pattern.strip()


def _is_one_file(path: str) -> bool:
    return path.startswith("/") and "$" not in path


def _serves(location: Location, host: str | None) -> bool:
    return host is None or host in location.server_names


def _locations(locations: Sequence[Location]) -> tuple[tuple[str, str], ...]:
    found = [(each.kind, each.pattern) for each in locations if each.kind in MATCHING]
    return tuple(dict.fromkeys(found))


def _same(facts: Iterable[Fact]) -> Fact | None:
    """What all say; None if they differ, or nobody says anything."""
    found = set(facts)
    return found.pop() if len(found) == 1 else None


def _key_variable(key: str) -> str | None:
    match = _ONE_VARIABLE.fullmatch(key)
    return (match[1] or match[2]) if match else None


def _parts_of_all(
    locations: Sequence[tuple[str, str]], wanted: Sequence[Location], cached: Sequence[Location]
) -> tuple[str, ...]:
    """A location without a cache has the key of the first with one, to which it may hand over."""
    if not cached:
        return ()
    rest = _key_parts(cached[:1])
    found = []
    for location in locations:
        same = [each for each in wanted if (each.kind, each.pattern) == location and each.zone]
        found.append(_key_parts(same) if same else rest)
    return (*found, rest)


def _key_parts(same: Sequence[Location]) -> str:
    """Of the same location in one server or several. What is no plain variable of nginx may be
    anything: then all that tells requests apart.

    ``$proxy_host``, as in nginx's own default, is what ``proxy_pass`` names: the same for all
    hosts, unless servers pass to different ones.
    """
    keys = {(each.full_key, each.upstream) for each in same}
    names = {one or two for each in same for one, two in _ONE_VARIABLE.findall(each.full_key)}
    differs = len(keys) > 1 or any("$" in upstream for _, upstream in keys)
    if not names <= PLAIN or not names & (PATHS | WITH_ARGS):
        return EVERYTHING
    parts = {
        "scheme": "scheme" in names,
        "host": differs or bool(names & HOSTS),
        "method": "request_method" in names,
        "args": bool(names & WITH_ARGS),
    }
    return " ".join(name for name, is_in in parts.items() if is_in)


def _hostless(locations: Sequence[tuple[str, str]], key_parts: Sequence[str]) -> list[str]:
    """Where hosts share entries, for people."""
    without = [
        " ".join(location).strip()
        for location, parts in zip(locations, key_parts, strict=False)
        if "host" not in parts
    ]
    if not without:
        return []
    if len(without) == len(locations):
        return ["the cache key has no host: a URL is one entry for all of them"]
    return [f"the cache key has no host in {', '.join(without)}: a URL is one entry for all there"]


def _key_is_url(location: Location) -> bool:
    names = {one or two for one, two in _ONE_VARIABLE.findall(location.full_key)}
    with_arguments = "request_uri" in names or (names & PATHS and names & WITH_ARGS)
    return bool(with_arguments) and names <= PLAIN


def _valid_s(location: Location) -> tuple[tuple[str, float], ...]:
    """The first ``*_cache_valid`` of a status counts, as in nginx."""
    found: dict[str, float] = {}
    for each in location.valid:
        for status in each.statuses:
            found.setdefault(status, each.seconds)
    return tuple(sorted(found.items()))


def _inactive_s(configuration: Configuration, location: Location) -> float | None:
    cache = configuration.cache_of(location)
    return cache.inactive_s if cache else None
