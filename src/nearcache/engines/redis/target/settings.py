"""Options of connections under redis-py's names, and what becomes of each.

    FIELDS    ours under another name: they become fields of the target
    KEPT      redis-py's: given to its connections as they are
    OURS      redis-py's, about what this package does itself: read, and left out

In a URL all values are text, in ``OPTIONS`` they have types; both are read here. An unknown
name raises ValueError with the nearest right one.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from nearcache.engines.redis.target.target import Target

Reader = Callable[[str, Any], Any]
"""Of a name and a value; None is "not said"."""

BOOLEANS = {
    **dict.fromkeys(("1", "t", "true", "y", "yes", "on"), True),
    **dict.fromkeys(("0", "f", "false", "n", "no", "off"), False),
}


def _as_is(_name: str, value: Any) -> Any:
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"has {name} that is no text")
    return value


def _yes_or_no(name: str, value: Any) -> bool:
    known = BOOLEANS.get(str(value).lower())
    if known is None:
        raise ValueError(f"has {name}={value!r}; write true or false")
    return known


def _whole(least: int, most: int) -> Reader:
    def read(name: str, value: Any) -> int:
        text = "" if isinstance(value, bool) else str(value)
        if not (text.isascii() and text.isdecimal()) or not least <= int(text) <= most:
            raise ValueError(f"has {name}={value!r}; write a whole number, {least} to {most}")
        return int(text)

    return read


def _seconds(name: str, value: Any) -> float:
    try:
        seconds = 0.0 if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError(f"has {name}={value!r}; write seconds, more than 0")
    return seconds


def _parser(name: str, value: Any) -> str:
    """From our names, or from a parser class of redis-py or its path."""
    text = str(getattr(value, "__name__", value)).rpartition(".")[2].lower()
    if "hiredis" in text or text == "defaultparser":
        return "hiredis" if "hiredis" in text else ""
    if text == "python" or text in ("pythonparser", "_resp2parser", "_resp3parser"):
        return "python"
    raise ValueError(f'has {name}={value!r}; write "hiredis" or "python"')


def _function(name: str, value: Any) -> Any:
    if not callable(value):
        raise ValueError(f"has {name} that is no function of (host, port)")
    return value


def _file(name: str, value: Any) -> str:
    path = os.fspath(value)
    if not os.path.exists(path):
        raise ValueError(f"has {name}={path!r}, which does not exist")
    return str(path)


def _cert_reqs(name: str, value: Any) -> str:
    names = {"none": "none", "optional": "optional", "required": "required"}
    text = value.name if isinstance(value, ssl.VerifyMode) else str(value)
    found = names.get(text.lower().removeprefix("cert_"))
    if found is None:
        raise ValueError(f"has {name}={value!r}; write one of none, optional, required")
    return found


def _verify_flags(name: str, value: Any) -> tuple[ssl.VerifyFlags, ...]:
    if not isinstance(value, str):
        return tuple(value)
    try:
        return tuple(ssl.VerifyFlags[each.strip()] for each in value.strip("[]").split(","))
    except KeyError as error:
        raise ValueError(f"has {name}={value!r}; write names of ssl.VerifyFlags") from error


FIELDS: dict[str, tuple[str, Reader]] = {
    "db": ("database", _whole(0, 2**31 - 1)),
    "virtual_host": ("database", _whole(0, 2**31 - 1)),  # of kombu's redis+socket://
    "username": ("username", _text),
    "password": ("password", _text),
    "ssl": ("tls", _yes_or_no),
    "protocol": ("protocol", _whole(2, 3)),
    "parser_class": ("parser", _parser),
    "address_remap": ("address_remap", _function),
    "socket_connect_timeout": ("connect_timeout_s", _seconds),
    "socket_timeout": ("read_timeout_s", _seconds),
    "timeout": ("pool_timeout_s", _seconds),
    "max_connections": ("pool_connections", _whole(1, 10**6)),
    "socket_keepalive": ("keepalive", _yes_or_no),
}

OWN_FIELDS: dict[str, Reader] = {
    **dict(FIELDS.values()),
    "parser": _parser,
    "breaker_failures": _whole(0, 10**6),
    "breaker_s": _seconds,
}
"""Fields of the target that have no other source than their own name, or also theirs."""

KEPT: dict[str, Reader] = {
    "client_name": _text,
    "lib_name": _as_is,
    "lib_version": _as_is,
    "driver_info": _as_is,
    "credential_provider": _as_is,
    "redis_connect_func": _as_is,
    "encoding": _text,
    "encoding_errors": _text,
    "socket_keepalive_options": _as_is,
    "socket_read_size": _whole(1, 2**30),
    "socket_type": _whole(0, 2**16),
    "ssl_ca_certs": _file,
    "ssl_ca_path": _file,
    "ssl_ca_data": _as_is,
    "ssl_certfile": _file,
    "ssl_keyfile": _file,
    "ssl_password": _text,
    "ssl_cert_reqs": _cert_reqs,
    "ssl_check_hostname": _yes_or_no,
    "ssl_ciphers": _text,
    "ssl_min_version": lambda name, value: ssl.TLSVersion(_whole(0, 2**16)(name, int(value))),
    "ssl_include_verify_flags": _verify_flags,
    "ssl_exclude_verify_flags": _verify_flags,
    "ssl_validate_ocsp": _yes_or_no,
    "ssl_validate_ocsp_stapled": _yes_or_no,
    "ssl_ocsp_context": _as_is,
    "ssl_ocsp_expected_cert": _as_is,
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

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.kept: dict[str, Any] = {}

    def take_fields(self, given: Mapping[str, Any]) -> None:
        """Fields of :class:`Target` by their own names."""
        for name, value in given.items():
            if name not in OWN_FIELDS:
                raise ValueError(_unknown(name, OWN_FIELDS))
            self._set(name, OWN_FIELDS[name](name, value))

    def take(self, given: Mapping[str, Any]) -> None:
        """Options by redis-py's names."""
        for name, value in given.items():
            if value is None and name != "ssl_cert_reqs":  # there None means "none"
                continue
            if name in FIELDS:
                field, read = FIELDS[name]
                self._set(field, read(name, value))
            elif name in KEPT:
                self.kept[name] = KEPT[name](name, value)
            elif name in SPECIAL:
                SPECIAL[name](self, value)
            elif name not in OURS:
                raise ValueError(_unknown(name, [*FIELDS, *KEPT, *OURS, *SPECIAL]))

    def _set(self, field: str, value: Any) -> None:
        if value != "":
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
    if _yes_or_no("decode_responses", value):
        raise ValueError("has decode_responses, but values are bytes; leave it out")


def _is_master(settings: Settings, value: Any) -> None:
    """django-redis's URL of the replicas: it asks to read from them."""
    if not _yes_or_no("is_master", value):
        settings.fields["read_replicas"] = True


def _connection_class(settings: Settings, value: Any) -> None:
    name = str(getattr(value, "__name__", value)).rpartition(".")[2]
    if name == "SSLConnection":
        settings.fields["tls"] = True
    elif name not in ("Connection", "UnixDomainSocketConnection"):
        raise ValueError("has a connection_class of its own, which cannot be used; leave it out")


SPECIAL: dict[str, Callable[[Settings, Any], None]] = {
    "decode_responses": _decode_responses,
    "is_master": _is_master,
    "connection_class": _connection_class,
}


def _unknown(name: Any, known: Any) -> str:
    if not isinstance(name, str):
        return f"has the name {name!r}; names of options are text"
    close = get_close_matches(name, sorted(known), n=1)
    hint = f'did you mean "{close[0]}"?' if close else f"known: {', '.join(sorted(known))}"
    return f'has the unknown option "{name}"; {hint}'
