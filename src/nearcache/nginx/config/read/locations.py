"""The locations of a configuration, with nginx's own inheritance.

    http {                 a directive holds for every level below,
        server {           until a level has one of the same name:
            location {     then only those of that level hold, however many there are
                location { ... }   and   if (...) { ... }

So ``location.all("add_header")`` is what nginx would use there. The directives that
decide who answers (``proxy_pass``, ``return`` and the like) are not inherited by a nested
location, and are by an ``if``.

Source: the merge functions of nginx's modules (``ngx_conf_merge_ptr_value`` and
``ngx_http_proxy_merge_loc_conf``). Not here: judging it (``lint/``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, cast

from nearcache.nginx.config.read.directives import Directive
from nearcache.nginx.config.read.units import parse_time

Kind = Literal["proxy", "uwsgi", "fastcgi", "scgi"]
KINDS: Sequence[Kind] = ("proxy", "uwsgi", "fastcgi", "scgi")
PASSES = {"proxy_pass", "uwsgi_pass", "fastcgi_pass", "scgi_pass", "grpc_pass", "memcached_pass"}
NOT_INHERITED = PASSES | {
    "return", "rewrite", "set", "break", "try_files", "alias", "internal", "location", "if",
    "limit_except", "server_name", "listen", "stub_status", "empty_gif",
}  # fmt: skip
# What nginx documents; its own strings differ a little, see key_template.py and lint/keys.py.
DEFAULT_PROXY_KEY = "$scheme$proxy_host$request_uri"
DEFAULT_STATUSES = ("200", "301", "302")  # of *_cache_valid without a status
DEFAULT_LOCK_TIMEOUT_S = 5.0
DEEPEST_TEXT = 8  # variables that stand for texts with variables


@dataclass(frozen=True)
class Valid:
    """One ``*_cache_valid``. ``statuses`` are digits, or ``any``."""

    statuses: tuple[str, ...]
    seconds: float
    directive: Directive


@dataclass(frozen=True, eq=False)
class Server:
    names: tuple[str, ...]
    listens: tuple[str, ...]
    directive: Directive


@dataclass(frozen=True, eq=False)
class Location:
    """One place that answers requests, with everything that holds there.

    ``kind`` is the modifier as written (``""``, ``=``, ``^~``, ``~``, ``~*``), ``@`` for a
    named one, ``if`` for an ``if`` inside a location, ``server`` for what stands in a
    server outside of locations.
    """

    kind: str
    pattern: str
    server: Server
    levels: tuple[Directive, ...] = field(repr=False)
    """http, the server, and locations from the outside in; its own directive is the last."""
    _inherits_pass: bool = field(default=False, repr=False)
    _texts: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def directive(self) -> Directive:
        return self.levels[-1]

    @property
    def place(self) -> str:
        return self.directive.place

    @property
    def server_names(self) -> tuple[str, ...]:
        return self.server.names

    @property
    def name(self) -> str:
        """For people: ``location ~ ^/api``."""
        if self.kind == "server":
            return f"server {' '.join(self.server_names)}".strip()
        if self.kind == "if":
            return f"if ({self.pattern})"
        return " ".join(("location", *self.directive.args))

    def all(self, name: str) -> list[Directive]:
        """The directives of this name that hold here: those of the innermost level with any."""
        levels = self.levels if name not in NOT_INHERITED else self._own_levels
        return next((found for level in reversed(levels) if (found := level.all(name))), [])

    def first(self, name: str) -> Directive | None:
        return next(iter(self.all(name)), None)

    def text(self, name: str, default: str = "") -> str:
        """The arguments of a directive with spaces between."""
        directive = self.first(name)
        return directive.text if directive else default

    def is_on(self, name: str, default: bool = False) -> bool:
        directive = self.first(name)
        return directive.text.lower() == "on" if directive else default

    def words(self, name: str) -> list[str]:
        """The arguments of all its directives, one after the other."""
        return [word for directive in self.all(name) for word in directive.args]

    @property
    def _own_levels(self) -> Sequence[Directive]:
        return self.levels[-2:] if self._inherits_pass else self.levels[-1:]

    # -- what answers

    @cached_property
    def passes(self) -> Directive | None:
        """The ``*_pass`` of this location; None if nginx answers itself."""
        return next((found for name in sorted(PASSES) if (found := self.first(name))), None)

    @property
    def upstream(self) -> str:
        """The address of the ``*_pass``; empty if there is none."""
        return self.passes.text if self.passes else ""

    @property
    def protocol(self) -> Kind | None:
        """Whose directives count here: ``proxy`` with ``proxy_pass``; None without any."""
        name = self.passes.name.removesuffix("_pass") if self.passes else ""
        return cast(Kind, name) if name in KINDS else None

    # -- its cache; names of directives without their prefix

    def cache(self, name: str) -> list[Directive]:
        """``cache("valid")``: the ``proxy_cache_valid`` or ``uwsgi_cache_valid`` that hold."""
        return self.all(self.named(name))

    def named(self, name: str) -> str:
        """``named("lock")``: ``proxy_cache_lock``, of the protocol used here."""
        return f"{self.protocol}_cache_{name}" if name else f"{self.protocol}_cache"

    def other(self, name: str) -> str:
        """``other("no_cache")``: ``proxy_no_cache``, of the protocol used here."""
        return f"{self.protocol}_{name}"

    @property
    def zone(self) -> str | None:
        """The zone it caches in; None if it does not cache. May hold variables."""
        if self.protocol is None:
            return None
        text = self.text(self.named(""), "off")
        return None if text == "off" else text

    @property
    def key(self) -> str:
        """The template of the key; empty where the protocol has no default and none is set."""
        default = DEFAULT_PROXY_KEY if self.protocol == "proxy" else ""
        return self.text(self.named("key"), default) if self.protocol else ""

    @property
    def full_key(self) -> str:
        """The key with variables that only stand for a text, as ``$cl_key``, replaced by it."""
        return self.expanded(self.key)

    def expanded(self, text: str) -> str:
        """A text with those variables replaced."""
        for _ in range(DEEPEST_TEXT):
            before = text
            for name, value in self._texts.items():
                text = re.sub(rf"\$(?:{name}\b|\{{{name}\}})", value.replace("\\", r"\\"), text)
            if text == before:
                break
        return text

    @property
    def key_is_default(self) -> bool:
        return self.protocol is not None and self.first(self.named("key")) is None

    @property
    def valid(self) -> tuple[Valid, ...]:
        found = self.cache("valid") if self.zone else []
        return tuple(_valid(directive) for directive in found if directive.args)

    @property
    def lock(self) -> bool:
        return self.is_on(self.named("lock"))

    @property
    def lock_timeout_s(self) -> float:
        return parse_time(self.text(self.named("lock_timeout"))) or DEFAULT_LOCK_TIMEOUT_S

    @property
    def background_update(self) -> bool:
        return self.is_on(self.named("background_update"))

    @property
    def use_stale(self) -> frozenset[str]:
        return frozenset(self.words(self.named("use_stale"))) - {"off"}

    @property
    def min_uses(self) -> int:
        text = self.text(self.named("min_uses"), "1")
        return int(text) if text.isdigit() else 1

    @property
    def methods(self) -> frozenset[str]:
        return frozenset(map(str.upper, self.words(self.named("methods")))) | {"GET", "HEAD"}

    @property
    def bypass(self) -> tuple[str, ...]:
        return tuple(self.words(self.named("bypass")))

    @property
    def no_cache(self) -> tuple[str, ...]:
        return tuple(self.words(self.other("no_cache")))

    @property
    def ignore_headers(self) -> frozenset[str]:
        return frozenset(word.lower() for word in self.words(self.other("ignore_headers")))

    @property
    def hide_headers(self) -> frozenset[str]:
        return frozenset(word.lower() for word in self.words(self.other("hide_header")))

    @property
    def open_file_cache(self) -> bool:
        return self.text("open_file_cache", "off") != "off"


def locations_of(http: Directive) -> Iterator[Location]:
    """Every place below ``http``, outer ones before those inside of them."""
    texts = texts_of(http)
    for place in _locations(http):
        yield replace(place, _texts=texts)


def texts_of(http: Directive) -> dict[str, str]:
    """The variables (without $) that stand for one text: one ``set``, or a map without cases."""
    found: dict[str, list[str]] = {}
    in_ifs = {
        id(inner) for outer in http.walk() if outer.name == "if" for inner in outer.block or ()
    }
    for directive in http.walk():
        if directive.name == "set" and len(directive.args) == 2:
            # Where its condition does not hold it has another value: none.
            values = [directive.args[1]] * (2 if id(directive) in in_ifs else 1)
            found.setdefault(directive.args[0].lstrip("$"), []).extend(values)
        elif directive.name == "map" and len(directive.args) == 2 and directive.block:
            values = [entry.text for entry in directive.block]
            only = len(values) == 1 and directive.block[0].name == "default"
            # Another value for nothing: no text of its own.
            found.setdefault(directive.args[1].lstrip("$"), []).extend(values if only else ("", ""))
    return {
        name: values[0]
        for name, values in found.items()
        if len(values) == 1 and name not in {"args", "query_string"}
    }


def _locations(http: Directive) -> Iterator[Location]:
    for directive in http.all("server"):
        names = tuple(word for d in directive.all("server_name") for word in d.args)
        listens = tuple(d.text for d in directive.all("listen"))
        server = Server(names, listens, directive)
        outer = (http, directive)
        yield Location("server", "", server, outer)
        yield from _below(server, outer)
    if not http.all("server"):  # a part that a server includes
        yield from _below(Server((), (), http), (http,))


def _below(server: Server, outer: tuple[Directive, ...]) -> Iterator[Location]:
    for directive in outer[-1].block or ():
        levels = (*outer, directive)
        if directive.name == "location":
            kind, pattern = _matching(directive.args)
            yield Location(kind, pattern, server, levels)
        elif directive.name == "if" and len(outer) > 2:
            yield Location("if", directive.text, server, levels, _inherits_pass=True)
        else:
            continue
        yield from _below(server, levels)


def _matching(args: Sequence[str]) -> tuple[str, str]:
    """(kind, pattern). nginx also takes the modifier without a space: ``=/path``, ``~^/a``."""
    if len(args) > 1:
        return args[0], " ".join(args[1:])
    match = re.match(r"(=|\^~|~\*|~|@)(.*)", args[0] if args else "", re.DOTALL)
    return (match[1], match[2]) if match else ("", args[0] if args else "")


def _valid(directive: Directive) -> Valid:
    *statuses, time = directive.args
    return Valid(tuple(statuses) or DEFAULT_STATUSES, parse_time(time) or 0.0, directive)
