"""The setting ``NEARCACHE_NGINX``: where the caches are that a Django site purges.

    NEARCACHE_NGINX = {
        "caches": [{"path": "/var/cache/nginx/site", "levels": "1:2",
                    "key": "{scheme}{host}{uri}"}],
        "agents": ["http://10.0.0.5:8765", "http://10.0.0.6:8765"],
        "secret_file": "/etc/nearcache/agent.secret",
        "base": "https://example.com",
    }

nearcache.nginx.E001   NEARCACHE_NGINX holds an unknown entry or a bad value
nearcache.nginx.W001   it names no cache and no agent: a purge does nothing
nearcache.nginx.W002   an agent is asked without TLS, outside of private networks
nearcache.nginx.W003   the secret cannot be read by this user
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from django.conf import settings
from django.core import checks

from nearcache.base.options import Options, Secret, one_of, option, some_seconds, yes_or_no
from nearcache.errors import NginxError, OptionError
from nearcache.nginx.agent.hosts import Host, LocalCache, RemoteAgent
from nearcache.nginx.agent.signing import checked_secret, read_secret
from nearcache.nginx.keys.paths import parse_levels
from nearcache.nginx.keys.templates import check_template

NAME = "NEARCACHE_NGINX"
T = TypeVar("T")
PRIVATE_NAMES = (".local", ".internal", ".lan")


@dataclass(frozen=True)
class CachePlace:
    """One entry of ``caches``."""

    path: str
    levels: tuple[int, ...] | None
    key: str | None
    varies: bool


def _caches(value: Any) -> tuple[CachePlace, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError('must be a list, as [{"path": "/var/cache/nginx", "levels": "1:2"}]')
    return tuple(_cache(each) for each in value)


def _cache(value: Any) -> CachePlace:
    given = {"path": value} if isinstance(value, str) else value
    if not isinstance(given, Mapping) or not isinstance(given.get("path"), str | Path):
        raise ValueError('must hold dicts with a "path"')
    unknown = set(given) - {"path", "levels", "key", "varies"}
    if unknown:
        raise ValueError(f"holds {min(unknown)!r}; a cache has path, levels, key, varies")
    path, levels, key = str(given["path"]), given.get("levels"), given.get("key")
    if not Path(path).is_absolute():
        raise ValueError(f"has the path {path!r}; write an absolute one")
    try:
        return CachePlace(
            path=path,
            levels=None if levels is None else parse_levels(levels),
            key=None if key is None else check_template(key),
            varies=yes_or_no(given.get("varies", True)),
        )
    except (NginxError, TypeError) as error:
        raise ValueError(f"is wrong for {path}: {error}") from error


def _agents(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise ValueError('must be a list of addresses, as ["http://10.0.0.5:8765"]')
    for each in value:
        _said(partial(RemoteAgent, each, Secret(b"")))
    return tuple(value)


def _secret(value: Any) -> Secret:
    if not isinstance(value, str | bytes):
        raise ValueError(f"is a {type(value).__name__}; write text or bytes")
    given = value.encode() if isinstance(value, str) else value
    return _said(lambda: checked_secret(given, "in the settings"))


def _base(value: Any) -> str:
    parts = urlsplit(value) if isinstance(value, str) else None
    if not parts or parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError('must be the address of the site, as "https://example.com"')
    return f"{parts.scheme}://{parts.netloc}"


def _path(value: Any) -> str:
    if not isinstance(value, str | Path) or not Path(value).is_absolute():
        raise ValueError(f"is {value!r}; write an absolute path")
    return str(value)


def _said(make: Callable[[], T]) -> T:
    try:
        return make()
    except NginxError as error:
        raise ValueError(str(error)) from error


@dataclass(frozen=True, kw_only=True)
class PurgeOptions(Options):
    """``NEARCACHE_NGINX``."""

    backend: ClassVar[str] = NAME

    caches: tuple[CachePlace, ...] = option(
        "caches",
        "Cache directories of this host: `path`, and if known `levels` (as in nginx), `key` (how"
        " keys are made of URLs; both are learned otherwise), `varies` (False: nothing has Vary).",
        _caches,
        default=(),
    )
    agents: tuple[str, ...] = option(
        "agents", "Addresses of `nearcache nginx agent` on other hosts.", _agents, default=()
    )
    secret: bytes | None = option(
        "secret", "What agents know, too: 32 random bytes or more.", _secret, default=None
    )
    secret_file: str | None = option(
        "secret_file", "A file that holds the secret, for nobody else to read.", _path, default=None
    )
    timeout_s: float = option(
        "timeout_s", "How long a purge may take on all hosts together.", some_seconds, default=2.0
    )
    base: str | None = option(
        "base", "The address of the site, for URLs that are given as paths.", _base, default=None
    )
    how: str = option(
        "how",
        "`soft` (expire in place) or `hard` (unlink).",
        one_of("soft", "hard"),
        default="soft",
    )
    forbid_stale: bool = option(
        "forbid_stale", "Also end stale-while-revalidate and stale-if-error.", yes_or_no,
        default=False,
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.secret and self.secret_file:
            raise OptionError(NAME, "secret_file", "says what secret says; write one of them")
        if self.agents and not (self.secret or self.secret_file):
            raise OptionError(NAME, "agents", "need a secret, or a secret_file")

    def hosts(self) -> list[Host]:
        """Everything that a purge reaches."""
        local = [
            LocalCache(Path(each.path), each.levels, (each.key,) if each.key else (), each.varies)
            for each in self.caches
        ]
        secret = Path(self.secret_file) if self.secret_file else Secret(self.secret or b"")
        return [*local, *(RemoteAgent(url, secret) for url in self.agents)]


def purge_options() -> PurgeOptions:
    """What the settings say. Raises OptionError."""
    given = getattr(settings, NAME, {})
    if not isinstance(given, dict):
        raise OptionError(NAME, "", f"is a {type(given).__name__}; write a dict")
    return PurgeOptions.parse(given)


@checks.register("nearcache")
def check_settings(**_: Any) -> Sequence[checks.CheckMessage]:
    """Found by ``manage.py check`` if ``nearcache.nginx`` is in ``INSTALLED_APPS`` (apps.py)."""
    try:
        options = purge_options()
    except OptionError as error:
        return [checks.Error(str(error), id="nearcache.nginx.E001")]
    return list(_warnings(options))


def _warnings(options: PurgeOptions) -> Iterator[checks.CheckMessage]:
    if not options.caches and not options.agents:
        yield checks.Warning(
            "NEARCACHE_NGINX names no cache and no agent: a purge does nothing",
            hint='fine in development; else "caches": [{"path": "/var/cache/nginx"}]',
            id="nearcache.nginx.W001",
        )
    try:
        if options.secret_file:
            read_secret(Path(options.secret_file))
    except NginxError as error:
        # No error: who deploys may be another user than who serves.
        yield checks.Warning(str(error), id="nearcache.nginx.W003")
    for url in options.agents:
        if not _is_private(url):
            yield checks.Warning(
                f"the agent {url} is asked without TLS, and it is not in a private network",
                hint="who listens sees which URLs are purged; put nginx with TLS before it",
                id="nearcache.nginx.W002",
            )


def _is_private(url: str) -> bool:
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        return parts.scheme == "https" or ipaddress.ip_address(host).is_private
    except ValueError:  # a name: without a dot it is of this network
        return "." not in host or host.endswith(PRIVATE_NAMES)
