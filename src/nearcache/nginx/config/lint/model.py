"""What a rule is, what it looks at, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from nearcache.nginx.config.read.configuration import CachePath, Configuration, Version
from nearcache.nginx.config.read.directives import Directive
from nearcache.nginx.config.read.locations import Location

Severity = Literal["error", "warning", "note"]
SEVERITIES: Sequence[Severity] = ("error", "warning", "note")  # the worst first


@dataclass(frozen=True)
class Directory:
    """What the directory of a cache shows: its files are counted, and a few of them read."""

    files: int
    size_bytes: int
    complete: bool  # False: there are more files than were counted
    device: int
    varies_by: tuple[str, ...] = ()  # request headers, in lower case, of the entries read


@dataclass(frozen=True)
class Examined:
    """A configuration, and what is known beside it."""

    configuration: Configuration
    directories: Mapping[str, Directory] = field(default_factory=dict)  # by path of the cache
    temp_devices: Mapping[str, int] = field(default_factory=dict)  # by path of *_temp_path
    temp_paths: Mapping[str, str] = field(default_factory=dict)  # kind: what was compiled in
    django: Version | None = None  # that is installed here

    @property
    def version(self) -> Version | None:
        return self.configuration.version

    def knows(self, since: Version) -> bool:
        """May this nginx have what came with ``since``? Yes, if its version is not known."""
        return self.version is None or self.version >= since

    def using(self, cache: CachePath) -> list[Location]:
        """The locations that cache there, or may."""
        return [
            place
            for place in self.configuration.cached
            if place.protocol == cache.kind and cache.zone in self.zones_of(place)
        ]

    def sharing(self, place: Location) -> list[Location]:
        """The locations that cache in the same zone, or may; itself too."""
        zones = self.zones_of(place)
        return [
            other
            for other in self.configuration.cached
            if other.protocol == place.protocol and zones & self.zones_of(other)
        ]

    def zones_of(self, place: Location) -> frozenset[str]:
        """The zones that a location can name: several where a map decides."""
        zone = place.zone or ""
        return (self.configuration.values_of(zone) or frozenset({zone})) - {"", "off"}


@dataclass(frozen=True)
class Hit:
    """What one rule says about one directive. ``fix`` is what to paste."""

    at: Directive
    why: str
    fix: str
    severity: Severity | None = None  # instead of the rule's own


@dataclass(frozen=True)
class Finding:
    """One thing to mend, for a person: where, why, and how."""

    rule: str
    severity: Severity
    directive: str
    file: str
    line: int
    places: tuple[str, ...]  # the locations it is about
    why: str
    fix: str

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True)
class LocationRule:
    """Asked of every location that caches."""

    name: str
    severity: Severity
    check: Callable[[Location, Examined], Iterator[Hit]]


@dataclass(frozen=True)
class CacheRule:
    """Asked of every ``*_cache_path``."""

    name: str
    severity: Severity
    check: Callable[[CachePath, Examined], Iterator[Hit]]


@dataclass(frozen=True)
class WholeRule:
    """Asked once."""

    name: str
    severity: Severity
    check: Callable[[Examined], Iterator[Hit]]


Rule = LocationRule | CacheRule | WholeRule


def zone_directive(place: Location) -> Directive:
    """The ``proxy_cache z`` that holds in a location: where a missing directive belongs."""
    return place.first(place.named("")) or place.directive
