"""What users write in ``LOCATION``, as a :class:`~nearcache.engines.redis.target.target.Target`.

::

    redis://[[user]:password@]host[:port][/database][?option=value&...]
    rediss://...                                         the same over TLS
    unix://[[user]:password@]/path[?db=1]                also redis+socket://
    redis://primary,redis://replica                      or a list, or with ";"
    redis://service[/database]                           with ``sentinels``, as django-redis has it
    redis+sentinel://host1:26379,host2/service[/database]
    redis+cluster://host1:6379,host2                     or ``cluster=True``

``valkey`` may stand for ``redis``; ``rediss+sentinel`` speaks TLS to the sentinels too. The
options of a URL are redis-py's (:mod:`.options`). What a URL says wins over ``connection_kwargs``,
and those over other options, as in redis-py and django-redis.

No error here repeats a part of the text that may hold a password.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote

from nearcache.engines.redis.target.options import Settings, TargetOptions
from nearcache.engines.redis.target.target import SENTINEL_PORT, SERVER_PORT, Address, Target

EXAMPLES = '"redis://127.0.0.1:6379/0", "rediss://..." or "unix:///run/redis.sock?db=0"'

SCHEME = re.compile(r"(redis|valkey)(s?)([+-](cluster|sentinel|socket|unix|tls|ssl))?|unix")
NEXT_URL = re.compile(r"[;,]\s*(?=[A-Za-z][A-Za-z+-]*://)")


def parse_target(location: str | Sequence[str], options: TargetOptions) -> Target:
    """The target that ``LOCATION`` and options describe.

    Raises ValueError, which says what to write instead.
    """
    urls = [_Url.parse(each) for each in _listed(location)]
    _check_alike(urls)
    settings = Settings(options)
    settings.take(dict(options.connection_kwargs))
    for url in reversed(urls):  # the primary has the last word
        settings.take(url.options)
    if urls[0].secure:
        settings.fields["tls"] = True
    if options.sentinels or urls[0].kind == "sentinel":
        _of_sentinels(urls, options, settings)
    elif options.cluster or urls[0].kind == "cluster":
        _of_cluster(urls, settings)
    else:
        _of_servers(urls, settings)
    return settings.target()


# ---- one URL


@dataclass
class _Url:
    """One URL, taken apart."""

    kind: str
    """"", "unix", "sentinel" or "cluster"."""
    secure: bool
    addresses: tuple[Address, ...]
    service: str
    options: dict[str, Any]

    @classmethod
    def parse(cls, text: str) -> _Url:
        kind, secure, rest = _scheme(text)
        rest, sharp, fragment = rest.partition("#")
        rest, _, query = rest.partition("?")
        place, slash, path = rest.partition("/")
        user, _, authority = place.rpartition("@")
        service = ""
        if kind == "sentinel":
            service, _, path = (fragment + "/" + path if fragment else path).partition("/")
        elif sharp:
            raise ValueError('holds a "#"; in a password it is written %23')
        if kind == "unix":
            addresses: tuple[Address, ...] = (_socket(authority, slash + path),)
            options = _user(user) | _query(query)
        else:
            port = SENTINEL_PORT if kind == "sentinel" else SERVER_PORT
            addresses = tuple(Address.parse(each, port) for each in authority.split(","))
            options = _user(user) | _database(path) | _query(query)
        return cls(kind, secure, addresses, unquote(service), options)


def _scheme(text: str) -> tuple[str, bool, str]:
    """Kind, whether over TLS, and what follows the scheme."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        raise ValueError(f'has no scheme like "redis://"; write {EXAMPLES}')
    match = SCHEME.fullmatch(scheme.lower())
    if match is None:
        raise ValueError(f"has a scheme that is none of Redis; write {EXAMPLES}")
    kind = match[4] or ("unix" if match[1] is None else "")
    secure = bool(match[2]) or kind in ("tls", "ssl")
    return {"socket": "unix", "tls": "", "ssl": ""}.get(kind, kind), secure, rest


def _user(text: str) -> dict[str, Any]:
    name, _, password = text.partition(":")
    found = {"username": unquote(name), "password": unquote(password)}
    return {name: value for name, value in found.items() if value}


def _socket(authority: str, path: str) -> Address:
    if authority or len(path) < 2:
        raise ValueError('has no absolute path; write three slashes: "unix:///run/redis.sock?db=0"')
    return Address(path=unquote(path))


def _database(path: str) -> dict[str, Any]:
    number = unquote(path).strip("/")
    if number and not (number.isascii() and number.isdecimal()):
        raise ValueError('has a path that is no database; write its number: "redis://host:6379/0"')
    return {"db": number} if number else {}


def _query(text: str) -> dict[str, Any]:
    # Of two of one name the first counts, and empty ones do not, as in redis-py.
    return dict(reversed(parse_qsl(text)))


# ---- several


def _listed(location: str | Sequence[str]) -> list[str]:
    """The URLs. A comma ends one only if another begins there: hosts and passwords have them."""
    several = [location] if isinstance(location, str) else location
    urls = [url.strip(" ,;") for each in several for url in NEXT_URL.split(each)]
    if not any(urls):
        raise ValueError(f"is empty; write {EXAMPLES}")
    return [url for url in urls if url]


SAME: dict[str, Callable[[_Url], Any]] = {
    "kinds": lambda url: "" if url.kind == "unix" else url.kind,
    "users": lambda url: url.options.get("username"),
    "passwords": lambda url: url.options.get("password"),
    "databases": lambda url: url.options.get("db"),
    "TLS settings": lambda url: url.secure if url.kind != "unix" else None,
}


def _check_alike(urls: list[_Url]) -> None:
    """All servers are reached alike; a replica may leave out what the primary says."""
    for what, said in SAME.items():
        if len({said(url) for url in urls} - {None}) > 1:
            raise ValueError(f"names servers of different {what}; all must be reached alike")


def _of_servers(urls: list[_Url], settings: Settings) -> None:
    if any(len(url.addresses) > 1 for url in urls):
        raise ValueError(
            'has several hosts in one URL; write "redis://primary,redis://replica",'
            ' or "redis+cluster://host1,host2" for a cluster'
        )
    primary, *replicas = (url.addresses[0] for url in urls)
    settings.fields |= {"addresses": (primary,), "replicas": tuple(dict.fromkeys(replicas))}


def _of_cluster(urls: list[_Url], settings: Settings) -> None:
    if any(url.kind == "unix" for url in urls):
        raise ValueError('is a cluster; name its nodes by host: "redis+cluster://host1,host2"')
    if settings.fields.get("database"):
        raise ValueError("is a cluster, which has no databases but 0; use a KEY_PREFIX instead")
    nodes = dict.fromkeys(address for url in urls for address in url.addresses)
    settings.fields |= {"kind": "cluster", "addresses": tuple(nodes)}


def _of_sentinels(urls: list[_Url], options: TargetOptions, settings: Settings) -> None:
    """Either the URL names the sentinels, or it names the service and ``sentinels`` has them."""
    own = urls[0].kind == "sentinel"
    # django-redis takes a URL per role: redis://service?is_master=1 and ...=0
    services = {url.service if own else url.addresses[0].host for url in urls}
    if len(services) != 1 or "" in services:
        raise ValueError(
            'must name one service of the sentinels: "redis+sentinel://host1,host2/service",'
            ' or "redis://service" and SENTINELS'
        )
    theirs = Settings()
    theirs.take(({"ssl": True} if own and urls[0].secure else {}) | dict(options.sentinel_kwargs))
    # They have no databases; and how long to wait for them is the target's to say.
    fields, rest = theirs.fields, dict(theirs.kept)
    if fields.get("tls"):
        rest["ssl"] = True
    settings.fields |= {
        "kind": "sentinel",
        "addresses": options.sentinels or urls[0].addresses,
        "sentinel_service": services.pop(),
        "sentinel_username": fields.get("username"),
        "sentinel_password": fields.get("password"),
        "sentinel_kwargs": tuple(sorted(rest.items())),
    }
