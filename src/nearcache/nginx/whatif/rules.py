"""The rules that a replay needs: as a configuration has them, and what a forecast changes.

    Today (zones, places) ──> replay(rules)      the back-test
      + Change ────────────> replay(rules)      a forecast

A place is a ``location`` that URLs match. Not here: what nginx makes of the rules (the native
model), and whether to believe it (``forecast.py``).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from nearcache.errors import NginxError
from nearcache.nginx.config.read.locations import DEFAULT_LOCK_TIMEOUT_S
from nearcache.nginx.config.read.site import MATCHING, site_of
from nearcache.nginx.config.read.units import format_size, format_time, parse_size, parse_time

if TYPE_CHECKING:
    from nearcache.nginx.config.read.configuration import CachePath, Configuration, Location

DEFAULT_INACTIVE_S = 600.0
BLOCK_BYTES = 4096
NODE_BYTES = 128  # a node of 120 bytes takes a slab of 128
MOST_FORECASTS = 60
GOOD_STATUSES = (200, 301, 302)


@dataclass(frozen=True)
class Zone:
    """One ``*_cache_path``. Sizes in bytes; None: no limit, or not known."""

    inactive_s: float = DEFAULT_INACTIVE_S
    max_size: int | None = None
    zone_bytes: int | None = None


@dataclass(frozen=True)
class Place:
    """How one location caches. ``valid``: (status or None for any, seconds); None: not known."""

    zone: int | None = 0
    valid: tuple[tuple[int | None, int], ...] | None = None
    ignore_headers: tuple[str, ...] = ()
    min_uses: int = 1
    lock: bool = False
    lock_timeout_s: float = DEFAULT_LOCK_TIMEOUT_S
    lock_age_s: float = 5.0
    stale_updating: bool = False
    background: bool = False
    bypass_stores: bool = False


@dataclass(frozen=True)
class Today:
    """The rules in force. The last of ``places`` is for what matches no location."""

    zones: tuple[Zone, ...] = (Zone(),)
    locations: tuple[tuple[str, str], ...] = ()
    places: tuple[Place, ...] = (Place(),)
    assumed: tuple[str, ...] = ()
    """What nobody said and is taken for granted."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """What a forecast changes; None: as today."""

    ttl_s: float | None = None
    inactive_s: float | None = None
    max_size: int | None = None
    min_uses: int | None = None
    key: str | None = None
    max_length: int | None = None
    background: bool = False
    lock: bool = False

    @property
    def name(self) -> str:
        """For a row of a table."""
        return ", ".join(self._parts()) or "as it is"

    def _parts(self) -> list[str]:
        parts = []
        if self.ttl_s is not None:
            parts.append(f"ttl {format_time(self.ttl_s)}")
        if self.inactive_s is not None:
            parts.append(f"inactive {format_time(self.inactive_s)}")
        if self.max_size is not None:
            parts.append(f"max_size {format_size(self.max_size)}")
        if self.min_uses is not None:
            parts.append(f"min_uses {self.min_uses}")
        if self.max_length is not None:
            parts.append(f"length <= {self.max_length}")
        parts += ["lock"] if self.lock else []
        parts += ["background"] if self.background else []
        parts += [f"key {self.key}"] if self.key is not None else []
        return parts


@dataclass(frozen=True, kw_only=True)
class Axes:
    """Everything a user wants to know about, by what it changes."""

    ttls_s: Sequence[float] = ()
    inactives_s: Sequence[float] = ()
    max_sizes: Sequence[int] = ()
    min_uses: Sequence[int] = ()
    keys: Sequence[str] = ()
    max_lengths: Sequence[int] = ()
    background: bool = False
    lock: bool = False

    def changes(self) -> list[Change]:
        """Each value alone, and, where several things change, all of them together."""
        axes = [axis for axis in self._axes() if axis]
        alone = [Change(**each) for axis in axes for each in axis]
        together = []
        if len(axes) > 1:
            for parts in itertools.product(*axes):
                merged = {name: value for part in parts for name, value in part.items()}
                together.append(Change(**merged))
        found = alone + together
        if len(found) > MOST_FORECASTS:
            raise NginxError(
                f"{len(found)} forecasts are more than {MOST_FORECASTS}; ask for fewer at once"
            )
        return found

    def _axes(self) -> list[list[dict[str, Any]]]:
        return [
            [{"ttl_s": each} for each in self.ttls_s],
            [{"inactive_s": each} for each in self.inactives_s],
            [{"max_size": each} for each in self.max_sizes],
            [{"min_uses": each} for each in self.min_uses],
            [{"key": each} for each in self.keys],
            [{"max_length": each} for each in self.max_lengths],
            [{"background": True}] if self.background else [],
            [{"lock": True}] if self.lock else [],
        ]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What ``max_length`` is the length of."""

    argument: str | None = None
    path_part: int | None = None


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What is the same in all replays of one trace."""

    rate: float = 1.0
    """The share of keys that is sampled: a cache for them is so much smaller."""
    settled_us: int = 0
    subject: Subject = field(default_factory=Subject)
    trust_evidence: bool = False
    assume_stored: bool = False
    unsaid_ttl_s: int | None = None
    """How long responses live that do not say, if it was learned."""
    later_us: int = 0
    """All happens so much later by the clock: nginx counts by its whole seconds."""


def replay_rules(today: Today, change: Change, frame: Frame) -> dict[str, Any]:
    """As ``NginxTrace.replay`` takes them."""
    zones = [
        replace(
            zone,
            inactive_s=zone.inactive_s if change.inactive_s is None else change.inactive_s,
            max_size=zone.max_size if change.max_size is None else change.max_size,
        )
        for zone in today.zones
    ]
    return {
        "zones": [_zone(zone, frame.rate) for zone in zones],
        "places": [_place(place, change) for place in today.places],
        "ttl_s": None if change.ttl_s is None else max(1, round(change.ttl_s)),
        "key": change.key or "",
        "max_length": change.max_length,
        "argument": frame.subject.argument,
        "path_part": frame.subject.path_part,
        "assume_stored": frame.assume_stored,
        "unsaid_ttl_s": frame.unsaid_ttl_s,
        "trust_evidence": frame.trust_evidence,
        "settled_us": frame.settled_us,
        "later_us": frame.later_us,
    }


def _zone(zone: Zone, rate: float) -> dict[str, Any]:
    blocks = None if zone.max_size is None else zone.max_size // BLOCK_BYTES
    nodes = None if zone.zone_bytes is None else zone.zone_bytes // NODE_BYTES
    return {
        "inactive_s": round(zone.inactive_s),
        "max_blocks": None if blocks is None else max(1, round(blocks * rate)),
        "max_nodes": None if nodes is None else max(1, round(nodes * rate)),
        "block_bytes": BLOCK_BYTES,
    }


def _place(place: Place, change: Change) -> dict[str, Any]:
    return {
        "zone": place.zone,
        "min_uses": place.min_uses if change.min_uses is None else change.min_uses,
        "lock": place.lock or change.lock,
        "lock_timeout_us": round(place.lock_timeout_s * 1e6),
        "lock_age_us": round(place.lock_age_s * 1e6),
        "stale_updating": place.stale_updating or change.background,
        "background": place.background or change.background,
        "bypass_stores": place.bypass_stores,
    }


# -- from a configuration, or from what a user says


def today_of(configuration: Configuration, host: str | None = None) -> Today:
    """The rules of a configuration, or of the server in it that answers ``host``."""
    site = site_of(configuration, host)
    wanted = [each for each in configuration.locations if host is None or host in each.server_names]
    cached = [each for each in wanted if each.zone]
    if not cached:
        raise NginxError("no location of this configuration caches: there is nothing to change")
    paths = _paths(configuration, cached)
    places: dict[tuple[str, str], Place] = {}
    for each in wanted:
        if each.kind in MATCHING:
            # A location without a cache may hand over to one that has it (try_files, rewrite);
            # whether it did, the log says.
            source = each if each.zone else cached[0]
            places.setdefault((each.kind, each.pattern), _place_of(configuration, source, paths))
    rest = _place_of(configuration, cached[0], paths)
    return Today(
        zones=tuple(Zone(each.inactive_s, each.max_size, each.zone_bytes) for each in paths),
        locations=site.locations,
        places=(*(places[each] for each in site.locations), rest),
        assumed=tuple(site.notes),
    )


def _paths(configuration: Configuration, cached: Sequence[Location]) -> list[CachePath]:
    used = {each.zone for each in cached}
    found = [path for path in configuration.caches if path.zone in used]
    if not found:
        raise NginxError(
            f"{cached[0].zone}: no cache_path of the configuration defines this zone; give the "
            "whole configuration (nginx -T), or --inactive-now and --max-size-now"
        )
    return found


def _place_of(configuration: Configuration, location: Location, paths: list[CachePath]) -> Place:
    path = configuration.cache_of(location)
    age_s = parse_time(location.text(location.named("lock_age")))
    return Place(
        zone=paths.index(path) if path in paths else 0,
        valid=_valid(location),
        ignore_headers=tuple(sorted(location.ignore_headers)),
        min_uses=location.min_uses,
        lock=location.lock,
        lock_timeout_s=location.lock_timeout_s,
        lock_age_s=5.0 if age_s is None else age_s,
        stale_updating="updating" in location.use_stale,
        background=location.background_update,
        bypass_stores=bool(location.bypass) and not location.no_cache,
    )


def _valid(location: Location) -> tuple[tuple[int | None, int], ...]:
    """The first that names a status counts; ``any`` is for what is not named."""
    found: dict[int | None, int] = {}
    for each in location.valid:
        for status in each.statuses:
            if status == "any":
                found.setdefault(None, round(each.seconds))
            elif status.isdigit():
                found.setdefault(int(status), round(each.seconds))
    return tuple(sorted(found.items(), key=lambda pair: pair[0] is None))


def with_options(
    today: Today,
    *,
    ttl_s: float | None = None,
    inactive_s: float | None = None,
    max_size: int | None = None,
    min_uses: int | None = None,
    lock: bool | None = None,
    background: bool | None = None,
) -> Today:
    """What a user says of today counts more than a configuration."""
    zones = tuple(
        replace(
            zone,
            inactive_s=zone.inactive_s if inactive_s is None else inactive_s,
            max_size=zone.max_size if max_size is None else max_size,
        )
        for zone in today.zones
    )
    valid = None if ttl_s is None else tuple((each, round(ttl_s)) for each in GOOD_STATUSES)
    places = tuple(
        replace(
            place,
            valid=place.valid if valid is None else valid,
            min_uses=place.min_uses if min_uses is None else min_uses,
            lock=place.lock if lock is None else lock,
            stale_updating=place.stale_updating if background is None else background,
            background=place.background if background is None else background,
        )
        for place in today.places
    )
    return replace(today, zones=zones, places=places)


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def size_of(text: str) -> int:
    """``34MB``, ``34m``, ``1.5GB``: bytes, in powers of 1024 as nginx counts them."""
    match = _SIZE.fullmatch(text.strip())
    exact = parse_size(text.strip())
    if exact is None and not match:
        raise NginxError(f"{text!r} is no size; write 34m, 34MB or 1g")
    if exact is not None:
        return exact
    assert match
    return round(float(match[1]) * (1 << _POWERS[match[2].lower()]))


def time_of(text: str) -> float:
    """``1h30m``: seconds, as nginx writes times."""
    seconds = parse_time(text.strip())
    if not seconds:
        raise NginxError(f"{text!r} is no time; write 90s, 10m, 1h or 7d")
    return seconds
