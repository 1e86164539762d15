"""What an nginx configuration says about caching: caches, log formats, locations, maps.

    read_configuration("/etc/nginx/nginx.conf").cached[0].key

Not here: the tree of directives (``directives.py``), inheritance (``locations.py``) and
judging it (``lint/``).
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nearcache.errors import NginxError
from nearcache.nginx.config.read.directives import Directive, Tree, parse_tree, read_tree
from nearcache.nginx.config.read.locations import (
    DEEPEST_TEXT,
    KINDS,
    Kind,
    Location,
    Server,
    Valid,
    locations_of,
)
from nearcache.nginx.config.read.units import parse_size, parse_time
from nearcache.nginx.keys.paths import parse_levels

DEFAULT_INACTIVE_S = 600.0
BUILT_IN_FORMATS: Mapping[str, str] = {
    "combined": (
        "$remote_addr - $remote_user [$time_local] "
        '"$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"'
    )
}
__all__ = [
    "AccessLog",
    "CachePath",
    "Configuration",
    "Directive",
    "Kind",
    "Location",
    "Map",
    "Server",
    "Valid",
    "installed_version",
    "read_configuration",
    "running_configuration",
]

Version = tuple[int, int, int]
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


@dataclass(frozen=True)
class CachePath:
    """One ``*_cache_path``: a directory and its zone in shared memory."""

    kind: Kind
    path: str
    levels: tuple[int, ...]
    zone: str
    zone_bytes: int | None  # None: not understood
    inactive_s: float
    max_size: int | None  # bytes; None: no limit
    min_free: int | None  # bytes of the file system
    use_temp_path: bool
    options: Mapping[str, str]  # all of them as written
    directive: Directive

    @property
    def place(self) -> str:
        return self.directive.place


@dataclass(frozen=True)
class AccessLog:
    """One ``access_log``. ``path`` may be ``off`` or ``syslog:...``."""

    path: str
    format: str
    condition: str | None  # of if=
    directive: Directive


@dataclass(frozen=True)
class Map:
    """One ``map``: ``variable`` (without $) is looked up for the value of ``source``."""

    source: str
    variable: str
    entries: tuple[tuple[str, str], ...]  # (pattern, value); "default" is a pattern
    directive: Directive

    @property
    def has_regex(self) -> bool:
        return any(pattern.startswith("~") for pattern, _ in self.entries)


@dataclass(frozen=True)
class Configuration:
    """All of it. ``version`` is that of nginx if somebody said so: no file has it."""

    tree: Tree
    version: Version | None
    caches: tuple[CachePath, ...]
    formats: Mapping[str, str]  # log_format by name, with the built-in "combined"
    logs: tuple[AccessLog, ...]
    servers: tuple[Server, ...]
    locations: tuple[Location, ...]
    maps: tuple[Map, ...]
    troubles: tuple[str, ...]  # what was not read or not understood

    @property
    def cached(self) -> list[Location]:
        """The locations that use a cache."""
        return [location for location in self.locations if location.zone]

    def cache_of(self, location: Location) -> CachePath | None:
        """Where a location caches; None if it does not, or if variables decide."""
        zones = {(str(cache.kind), cache.zone): cache for cache in self.caches}
        return zones.get((location.protocol or "", location.zone or ""))

    def values_of(self, text: str) -> frozenset[str] | None:
        """All that a text can stand for; None where only a request tells."""
        return self._values_of(text, DEEPEST_TEXT)

    def _values_of(self, text: str, left: int) -> frozenset[str] | None:
        found = _VARIABLE.search(text)
        if found is None:
            return frozenset({text})
        pieces = self.said_for(found[1] or found[2])
        if not pieces or not left:
            return None
        values = [
            self._values_of(text[: found.start()] + piece + text[found.end() :], left - 1)
            for piece in pieces
        ]
        known = [value for value in values if value is not None]
        return frozenset().union(*known) if len(known) == len(values) else None

    def said_for(self, name: str) -> set[str]:
        """What maps and ``set`` give a variable, as written; an empty text where none does."""
        found = {directive.args[0] for directive in self.setters.get(name, ())}
        if found:
            found.add("")  # where none of them ran
        for made in self.maps:
            if made.variable == name:
                patterns = {pattern for pattern, _ in made.entries}
                found |= {value for _, value in made.entries} | ({"default"} - patterns and {""})
        return found

    def variables_in(self, text: str) -> set[str]:
        """The variables a text depends on, those inside of maps too; without $."""
        found: set[str] = set()
        left = variables(text)
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                left |= self.behind(name)
        return found

    def behind(self, name: str) -> set[str]:
        """The variables that decide the value of this one, at once; without $."""
        below = set[str]()
        for made in self.maps:
            if made.variable == name:
                below |= variables(made.source).union(*(variables(v) for _, v in made.entries))
        for directive in self.setters.get(name, ()):
            below |= variables(directive.text)
        return below

    @cached_property
    def setters(self) -> Mapping[str, list[Directive]]:
        """What sets a variable by ``set``, by its name without $: the value, and the condition
        of the ``if`` around it, which decides as much.
        """
        found: dict[str, list[Directive]] = {}
        for outer in self.tree.main.walk():
            condition = outer.args if outer.name == "if" else ()
            for inner in outer.all("set"):
                if len(inner.args) == 2:
                    said = Directive("", (*inner.args[1:], *condition), inner.file, inner.line)
                    found.setdefault(inner.args[0].lstrip("$"), []).append(said)
        return found


def variables(text: str) -> set[str]:
    """The names of the variables in a text, without $: ``$a${b}`` has ``a`` and ``b``."""
    return {braced or bare for braced, bare in _VARIABLE.findall(text)}


def parse_version(text: str) -> Version | None:
    """``1.22.1`` out of any text, such as ``nginx version: nginx/1.22.1``."""
    match = _VERSION.search(text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def installed_version(program: str = "nginx") -> Version | None:
    """What ``nginx -v`` says; None without nginx."""
    try:
        done = subprocess.run(
            [program, "-v"], check=False, capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(done.stderr)


def read_configuration(where: str | Path, *, version: str | Version | None = None) -> Configuration:
    """The configuration in a file with its includes, in the output of ``nginx -T``, or a text.

    Args:
        where: a path; ``-`` for standard input; or the text itself (anything of two lines).
        version: of the nginx that will read it, as ``1.22.1``.

    Raises NginxError, with file and line, for what is no configuration.
    """
    if where == "-":
        tree = parse_tree(sys.stdin.buffer.read().decode(errors="replace"), "(standard input)")
    elif isinstance(where, str) and "\n" in where:
        tree = parse_tree(where)
    else:
        tree = read_tree(where)
    return understand(tree, parse_version(version) if isinstance(version, str) else version)


def running_configuration(program: str = "nginx") -> Configuration:
    """What ``nginx -T`` prints: the configuration that nginx on this host would start with."""
    try:
        done = subprocess.run(
            [program, "-T"], check=False, capture_output=True, text=True, timeout=30
        )
    except FileNotFoundError:
        raise NginxError("nginx is not on this host; give a configuration file") from None
    except subprocess.TimeoutExpired as error:
        raise NginxError("`nginx -T` did not end; give a configuration file") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "[emerg]" in line]
        said = (lines or done.stderr.splitlines() or ["no word"])[0].removeprefix("nginx: ")
        raise NginxError(
            f"`nginx -T` fails here ({said}); run it as root, or give a configuration file"
        )
    return understand(parse_tree(done.stdout), installed_version(program))


def understand(tree: Tree, version: Version | None = None) -> Configuration:
    """A configuration out of its directives."""
    http = _http(tree)
    troubles = list(tree.troubles)
    locations = tuple(locations_of(http))
    return Configuration(
        tree=tree,
        version=version,
        caches=tuple(_cache_paths(http, troubles)),
        formats=dict(BUILT_IN_FORMATS) | {d.args[0]: _format(d) for d in http.all("log_format")},
        logs=tuple(_logs(http)),
        servers=tuple(dict.fromkeys(location.server for location in locations)),
        locations=locations,
        maps=tuple(_map(d) for d in http.walk() if d.name == "map" and len(d.args) == 2),
        troubles=tuple(troubles),
    )


def _http(tree: Tree) -> Directive:
    """The http level; the outermost one where a file is only a part that http includes."""
    found = tree.main.all("http")
    return found[0] if found else tree.main


def _cache_paths(http: Directive, troubles: list[str]) -> Iterator[CachePath]:
    for kind in KINDS:
        for directive in http.all(f"{kind}_cache_path"):
            path, *words = directive.args
            options = dict(word.partition("=")[::2] for word in words)
            zone, _, size = options.get("keys_zone", "").partition(":")
            try:
                levels = parse_levels(options.get("levels", ""))
            except NginxError as error:
                troubles.append(f"{directive.place}: {error}")
                levels = ()
            yield CachePath(
                kind=kind,
                path=path,
                levels=levels,
                zone=zone,
                zone_bytes=parse_size(size),
                inactive_s=parse_time(options.get("inactive", "")) or DEFAULT_INACTIVE_S,
                max_size=parse_size(options.get("max_size", "")),
                min_free=parse_size(options.get("min_free", "")),
                use_temp_path=options.get("use_temp_path", "on") == "on",
                options=options,
                directive=directive,
            )


def _format(directive: Directive) -> str:
    words = list(directive.args[1:])
    if words and words[0].startswith("escape="):
        del words[0]
    return "".join(words)  # nginx joins the pieces without a space


def _logs(http: Directive) -> Iterator[AccessLog]:
    for directive in http.walk():
        if directive.name == "access_log" and directive.args:
            path, *words = directive.args
            plain = [word for word in words if "=" not in word]
            tests = [word.removeprefix("if=") for word in words if word.startswith("if=")]
            name = plain[0] if plain else "combined"
            yield AccessLog(path, name, tests[0] if tests else None, directive)


def _map(directive: Directive) -> Map:
    source, variable = directive.args
    entries = tuple((entry.name, entry.text) for entry in directive.block or ())
    return Map(source, variable.lstrip("$"), entries, directive)
