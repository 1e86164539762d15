"""Options of connections: ours, and redis-py's names for them.

:class:`TargetOptions` is the table: name, unit, range and default of each. What redis-py's
connections and pools are told is read with it, in ``OPTIONS`` and in a URL, where all is text:

    ALIASES   ours under another name
    KEPT      redis-py's: given to its connections as they are
    OURS      redis-py's, about what this package does itself: read, and left out
    SPECIAL   what has an effect of its own

An unknown name raises ValueError with the nearest right one.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from nearcache.base.options import (
    Options,
    one_of,
    option,
    option_fields,
    parsed,
    some_seconds,
    text,
    whole,
    yes_or_no,
)
from nearcache.engines.redis.target.target import SENTINEL_PORT, Address, Target
from nearcache.errors import unknown_name

Reading = Callable[[Any], Any]
"""From what others write to what we do."""


def kwargs(value: Any) -> tuple[tuple[str, Any], ...]:
    """A parser of keyword arguments for redis-py's connections: hashable, if the values are."""
    if not isinstance(value, Mapping):
        raise ValueError("is no dict of keyword arguments")
    Settings().take(value)  # which knows their names and ranges
    return tuple(sorted(value.items()))


def sentinels(value: Any) -> tuple[Address, ...]:
    """A parser of the addresses of Sentinels."""
    return tuple(map(_sentinel, value.split(",") if isinstance(value, str) else value))


def _sentinel(given: Any) -> Address:
    if isinstance(given, str):
        return Address.parse(given, SENTINEL_PORT)
    if isinstance(given, Sequence) and len(given) == 2 and str(given[1]).isdecimal():
        return Address(host=str(given[0]), port=int(given[1]))
    raise ValueError("holds no pairs; write [(host, 26379), ...]")


@dataclass(frozen=True, kw_only=True)
class TargetOptions(Options):
    """How to reach the servers that ``LOCATION`` names."""

    cluster: bool = option(
        "cluster",
        "Whether the servers are a Redis Cluster. Its database is 0.",
        yes_or_no,
        default=False,
    )
    sentinels: tuple[Address, ...] = option(
        "sentinels",
        'Addresses of Sentinels, like `[("10.0.0.1", 26379)]`, that know which server is the'
        " primary.",
        sentinels,
        default=(),
        shown_default="none",
    )
    sentinel_kwargs: tuple[tuple[str, Any], ...] = option(
        "sentinel_kwargs",
        "Keyword arguments for redis-py's connections to the Sentinels, as a dict: `password`,"
        " `ssl` and so on.",
        kwargs,
        default=(),
        shown_default="none",
    )
    read_replicas: bool = option(
        "read_replicas",
        "Whether reads may go to replicas. They lag: what was just written may be missing.",
        yes_or_no,
        default=False,
    )
    database: int | None = option(
        "database",
        "The number of the database.",
        whole(0, 2**31 - 1),
        default=None,
        shown_default="what `LOCATION` says, or 0",
    )
    username: str | None = option(
        "username",
        "The user, for servers with ACLs.",
        text,
        default=None,
        shown_default="what `LOCATION` says",
    )
    password: str | None = option(
        "password",
        "The password. It does not show in logs and errors.",
        text,
        default=None,
        shown_default="what `LOCATION` says",
    )
    tls: bool | None = option(
        "tls",
        "Whether to use TLS, as `rediss://` in `LOCATION` does. See `connection_kwargs`.",
        yes_or_no,
        default=None,
        shown_default="what `LOCATION` says",
    )
    protocol: int = option(
        "protocol",
        "The version of the protocol, RESP: 2 or 3.",
        whole(2, 3),
        default=Target.protocol,
    )
    parser: str | None = option(
        "parser",
        "What reads replies: `hiredis`, or `python`, which is slower and needs nothing.",
        lambda value: {"auto": None}.get(value, one_of("auto", "hiredis", "python")(value)),
        default=Target.parser,
        shown_default="`hiredis` where it is installed",
    )
    connect_timeout_s: float = option(
        "connect_timeout",
        "Seconds to wait for a connection.",
        some_seconds,
        default=Target.connect_timeout_s,
    )
    read_timeout_s: float = option(
        "read_timeout",
        "Seconds to wait for a reply.",
        some_seconds,
        default=Target.read_timeout_s,
    )
    pool_timeout_s: float = option(
        "pool_timeout",
        "Seconds to wait for a connection of the pool, which serves `client` and the"
        " wake-ups of locks. The cache itself shares one connection per process.",
        some_seconds,
        default=Target.pool_timeout_s,
    )
    pool_connections: int = option(
        "pool_connections",
        "Connections that the pool of each process may have.",
        whole(1, 10**6),
        default=Target.pool_connections,
    )
    breaker_failures: int = option(
        "breaker_failures",
        "So many failures in a row, and a server is not asked for `breaker_pause`: calls fail at"
        " once, not after a timeout each. 0: it is always asked.",
        whole(0, 10**6),
        default=Target.breaker_failures,
    )
    breaker_s: float = option(
        "breaker_pause",
        "Seconds until one caller tries again whether a server that failed is back; twice as many"
        " after a try that failed. A quarter more or less, by chance.",
        some_seconds,
        default=Target.breaker_s,
    )
    keepalive: bool = option(
        "keepalive",
        "Whether TCP keeps idle connections alive, and finds out about dead ones.",
        yes_or_no,
        default=Target.keepalive,
    )
    connection_kwargs: tuple[tuple[str, Any], ...] = option(
        "connection_kwargs",
        "More keyword arguments for redis-py's connections, as a dict: `ssl_ca_certs`,"
        " `client_name`, `credential_provider` and so on.",
        kwargs,
        default=(),
        shown_default="none",
    )


FIELDS = {each.metadata["name"]: each for each in option_fields(TargetOptions)}
KWARGS = {"connection_kwargs", "sentinel_kwargs"}
ALIKE = {each.name for each in FIELDS.values()} & {each.name for each in fields(Target)} - KWARGS
"""Fields of the target that are what the option says."""

# -- what others write ------------------------------------------------------------------------


BOOLEANS = {
    **dict.fromkeys(("1", "t", "true", "y", "yes", "on"), True),
    **dict.fromkeys(("0", "f", "false", "n", "no", "off"), False),
}
PARSERS = {
    **dict.fromkeys(("hiredisparser", "_hiredisparser"), "hiredis"),
    **dict.fromkeys(("pythonparser", "_resp2parser", "_resp3parser"), "python"),
    "defaultparser": "auto",
}


def as_is(value: Any) -> Any:
    """A reading of what is written as we write it."""
    return value


def parser_class(value: Any) -> str:
    """A reading of redis-py's classes of parsers and of their paths."""
    path = str(getattr(value, "__name__", value))
    return PARSERS.get(path.rpartition(".")[2].lower(), path)


def _boolean(value: Any) -> Any:
    return BOOLEANS.get(str(value).lower(), value)


def _number(value: Any) -> Any:
    try:
        return value if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return value  # what is wrong with it, the parser says


def _flag(value: Any) -> bool:
    return yes_or_no(_boolean(value))


def _file(value: Any) -> str:
    path = os.fspath(value)
    if not os.path.exists(path):
        raise ValueError(f"is {path!r}, which does not exist")
    return str(path)


def _cert_reqs(value: Any) -> str:
    name = value.name if isinstance(value, ssl.VerifyMode) else str(value)
    return one_of("none", "optional", "required")(name.lower().removeprefix("cert_"))


def _tls_version(value: Any) -> ssl.TLSVersion:
    try:
        return ssl.TLSVersion(int(value))
    except (TypeError, ValueError) as error:
        raise ValueError(f"is {value!r}; write an ssl.TLSVersion") from error


def _verify_flags(value: Any) -> tuple[ssl.VerifyFlags, ...]:
    if not isinstance(value, str):
        return tuple(value)
    try:
        return tuple(ssl.VerifyFlags[each.strip()] for each in value.strip("[]").split(","))
    except KeyError as error:
        raise ValueError(f"is {value!r}; write names of ssl.VerifyFlags") from error


ALIASES: dict[str, tuple[str, Reading]] = {
    "db": ("database", as_is),
    "virtual_host": ("database", as_is),  # of kombu's redis+socket://
    "username": ("username", as_is),
    "password": ("password", as_is),
    "ssl": ("tls", _boolean),
    "protocol": ("protocol", as_is),
    "parser_class": ("parser", parser_class),
    "socket_connect_timeout": ("connect_timeout", _number),
    "socket_timeout": ("read_timeout", _number),
    "timeout": ("pool_timeout", _number),
    "max_connections": ("pool_connections", as_is),
    "socket_keepalive": ("keepalive", _boolean),
}
"""The option, and the reading of what is written into what that option takes."""

KEPT: dict[str, Reading] = {
    "client_name": text,
    "lib_name": as_is,
    "lib_version": as_is,
    "driver_info": as_is,
    "credential_provider": as_is,
    "redis_connect_func": as_is,
    "encoding": text,
    "encoding_errors": text,
    "socket_keepalive_options": as_is,
    "socket_read_size": whole(1, 2**30),
    "socket_type": whole(0, 2**16),
    "ssl_ca_certs": _file,
    "ssl_ca_path": _file,
    "ssl_ca_data": as_is,
    "ssl_certfile": _file,
    "ssl_keyfile": _file,
    "ssl_password": text,
    "ssl_cert_reqs": _cert_reqs,
    "ssl_check_hostname": _flag,
    "ssl_ciphers": text,
    "ssl_min_version": _tls_version,
    "ssl_include_verify_flags": _verify_flags,
    "ssl_exclude_verify_flags": _verify_flags,
    "ssl_validate_ocsp": _flag,
    "ssl_validate_ocsp_stapled": _flag,
    "ssl_ocsp_context": as_is,
    "ssl_ocsp_expected_cert": as_is,
}

OURS = {
    "retry": "what is sent again, and when, follows from the command",
    "retry_on_timeout": "the same",
    "retry_on_error": "the same",
    "health_check_interval": "a connection found closed is made anew",
    "queue_class": "the pool has its own queue",
    "legacy_responses": "replies are read by this package",
    "maint_notifications_config": "off",
}


class Settings:
    """Collected from several places; what is taken later wins."""

    def __init__(self, options: TargetOptions | None = None) -> None:
        self.fields: dict[str, Any] = {}
        self.kept: dict[str, Any] = {}
        for name in ALIKE if options else ():
            self._set(name, getattr(options, name))

    def take(self, given: Mapping[str, Any]) -> None:
        """Keyword arguments by redis-py's names."""
        for name, value in given.items():
            try:
                self.take_one(name, value)
            except ValueError as error:
                raise ValueError(f"has {name} that {error}") from error

    def take_one(self, name: str, value: Any) -> None:
        """One of them; the ValueError says what is wrong, without the name."""
        if value is None and name != "ssl_cert_reqs":  # there None means "none"
            return
        if name in ALIASES:
            own, read = ALIASES[name]
            self._set(FIELDS[own].name, parsed(FIELDS[own].metadata["parse"], parsed(read, value)))
        elif name in KEPT:
            self.kept[name] = parsed(KEPT[name], value)
        elif name in SPECIAL:
            SPECIAL[name](self, value)
        elif name not in OURS:
            raise ValueError(unknown_name(name, NAMES))

    def _set(self, field: str, value: Any) -> None:
        if value is not None and value != "":
            self.fields[field] = value

    def target(self) -> Target:
        """Raises ValueError where the parts do not go together."""
        tls_only = sorted(name for name in self.kept if name.startswith("ssl_"))
        tls = self.fields.setdefault("tls", False)
        if tls_only and not tls:
            raise ValueError(f'has {tls_only[0]} but no TLS; write "rediss://"')
        addresses = self.fields["addresses"] + self.fields.get("replicas", ())
        if tls and any(address.path for address in addresses):
            raise ValueError("asks for TLS on a unix socket, which needs and has none")
        kept = tuple(sorted(self.kept.items(), key=lambda item: item[0]))
        return Target(connection_kwargs=kept, **self.fields)


def _decode_responses(_settings: Settings, value: Any) -> None:
    if _flag(value):
        raise ValueError("is set, but values are bytes; leave it out")


def _is_master(settings: Settings, value: Any) -> None:
    """django-redis's URL of the replicas: it asks to read from them."""
    if not _flag(value):
        settings.fields["read_replicas"] = True


def _connection_class(settings: Settings, value: Any) -> None:
    name = str(getattr(value, "__name__", value)).rpartition(".")[2]
    if name == "SSLConnection":
        settings.fields["tls"] = True
    elif name not in ("Connection", "UnixDomainSocketConnection"):
        raise ValueError("is one of your own, which cannot be used; leave it out")


def _address_remap(settings: Settings, value: Any) -> None:
    if not callable(value):
        raise ValueError("is no function of (host, port)")
    settings.fields["address_remap"] = value


SPECIAL: dict[str, Callable[[Settings, Any], None]] = {
    "decode_responses": _decode_responses,
    "is_master": _is_master,
    "connection_class": _connection_class,
    "address_remap": _address_remap,
}
NAMES = {*ALIASES, *KEPT, *OURS, *SPECIAL}
