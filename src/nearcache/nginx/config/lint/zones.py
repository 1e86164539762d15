"""Rules about ``*_cache_path``: room in memory, room on the disk, and how long entries stay."""

from __future__ import annotations

import os
from collections.abc import Iterator

from nearcache.nginx.config.lint.model import Examined, Hit, zone_directive
from nearcache.nginx.config.read.configuration import CachePath, Configuration
from nearcache.nginx.config.read.directives import Directive
from nearcache.nginx.config.read.locations import KINDS, Location
from nearcache.nginx.config.read.units import format_size, format_time

NODE_BYTES = 128  # of one key in the zone: a node of 120 bytes in a slab of 128
USUAL_RESPONSE_BYTES = 16 << 10  # a compressed page on a disk with blocks of 4 KiB
FULL = 0.5  # of the zone: keys come in waves, and a full zone answers 500
ENOUGH_FILES = 100  # to believe their mean size
MANY_FILES = 10_000  # in one directory
MANY_BYTES = 1 << 30
_ZONE_OPTIONS = {
    "limit_req_zone": ("zone",),
    "limit_conn_zone": ("zone",),
    **{f"{kind}_cache_path": ("keys_zone",) for kind in KINDS},
}


def zone_unused(cache: CachePath, examined: Examined) -> Iterator[Hit]:
    configuration = examined.configuration
    by_variable = any(
        place.protocol == cache.kind and configuration.values_of(place.zone or "") is None
        for place in configuration.cached
    )
    if not examined.using(cache) and not by_variable:
        yield Hit(
            cache.directive,
            f"no location uses the zone {cache.zone}: nothing is cached there",
            f"{cache.kind}_cache {cache.zone};",
        )


def zone_unknown(place: Location, examined: Examined) -> Iterator[Hit]:
    caches = examined.configuration.caches
    zones = {cache.zone for cache in caches if cache.kind == place.protocol}
    unknown = {zone for zone in examined.zones_of(place) if "$" not in zone} - zones
    # A file that is only a part may use a zone of another part.
    if not unknown or not caches:
        return
    by_variable = "$" in (place.zone or "")
    yield Hit(
        zone_directive(place),
        f"there is no zone {', '.join(sorted(unknown))} of {place.protocol}_cache_path "
        f"(there is {', '.join(sorted(zones)) or 'none'}): "
        + ("where the variable says so, nginx answers 500 and asks nobody"
           if by_variable else "nginx does not start with this"),
        f"{place.named('')} {min(zones)};" if zones and not by_variable
        else f"{place.protocol}_cache_path /var/cache/nginx/{min(unknown)} "
        f"keys_zone={min(unknown)}:10m levels=1:2 inactive=1d max_size=1g;",
    )  # fmt: skip


def zone_twice(examined: Examined) -> Iterator[Hit]:
    """Source: ngx_shared_memory_add, and "duplicate zone" in ngx_http_file_cache_set_slot."""
    first: dict[str, Directive] = {}
    for directive, zone in _shared_memory(examined.configuration):
        known = first.setdefault(zone, directive)
        # The zone of a cache is its alone; others may share one of their own kind.
        if known is not directive and any(
            "_cache_path" in each.name for each in (known, directive)
        ):
            yield Hit(
                directive,
                f"the zone {zone} is that of {known.name} already ({known.place}): nginx does "
                "not start with this",
                f"# another name than {zone}",
            )


def _shared_memory(configuration: Configuration) -> Iterator[tuple[Directive, str]]:
    """Every directive that names a zone of shared memory, with the name; in their order."""
    for directive in configuration.tree.main.walk():
        for word in directive.args:
            option, _, value = word.partition("=")
            if option in _ZONE_OPTIONS.get(directive.name, ()):
                yield directive, value.partition(":")[0]
        if directive.name == "zone" and directive.args:
            yield directive, directive.args[0]  # of an upstream


def inactive(cache: CachePath, examined: Examined) -> Iterator[Hit]:
    rules = [rule for place in examined.using(cache) for rule in place.valid]
    longest = max(rules, key=lambda rule: rule.seconds, default=None)
    if longest is None or longest.seconds <= cache.inactive_s:
        return
    default = "" if "inactive" in cache.options else " (the default)"
    yield Hit(
        cache.directive,
        f"{longest.directive} ({longest.directive.place}) keeps responses for "
        f"{format_time(longest.seconds)}, but inactive is {format_time(cache.inactive_s)}"
        f"{default}: what nobody asks for so long is removed, however long it would be valid",
        f"inactive={format_time(longest.seconds)}",
    )


def inactive_default(cache: CachePath, examined: Examined) -> Iterator[Hit]:
    using = examined.using(cache)
    if using and "inactive" not in cache.options and not any(place.valid for place in using):
        yield Hit(
            cache.directive,
            "inactive is 10m, the default: a Cache-Control of an hour keeps nothing for longer "
            "than ten minutes without a request",
            "inactive=1d",
        )


def zone_size(cache: CachePath, examined: Examined) -> Iterator[Hit]:
    if cache.zone_bytes is None:
        return
    room = cache.zone_bytes // NODE_BYTES
    needed, because = _needed_keys(cache, examined, room)
    if needed:
        size = format_size(max(1, -(-2 * needed * NODE_BYTES // (1 << 20))) << 20)
        yield Hit(
            cache.directive,
            f"keys_zone={cache.zone}:{format_size(cache.zone_bytes)} has room for {room:,} keys "
            f"({NODE_BYTES} bytes each), and {because}: a full zone throws out entries early, and "
            "can answer 500",
            f"keys_zone={cache.zone}:{size}",
        )


def _needed_keys(cache: CachePath, examined: Examined, room: int) -> tuple[int, str]:
    """How many keys there are or will be, and why; 0 if there is room for them."""
    seen = examined.directories.get(cache.path)
    if seen and seen.files > room * FULL:
        return seen.files, f"{seen.files:,} files are there"
    if cache.max_size is None:
        return 0, ""
    known = seen if seen and seen.files >= ENOUGH_FILES else None
    mean = known.size_bytes / known.files if known else USUAL_RESPONSE_BYTES
    fits = round(cache.max_size / mean)
    because = f"max_size={format_size(cache.max_size)} has room for about {fits:,}"
    return (fits, because) if fits > room else (0, "")


def no_limit(cache: CachePath, examined: Examined) -> Iterator[Hit]:
    if cache.max_size is None and cache.min_free is None:
        free = " min_free=1g" if examined.knows((1, 19, 1)) else ""
        yield Hit(
            cache.directive,
            "neither max_size nor min_free: the cache grows until the disk is full",
            f"max_size=1g{free}",
        )


def temp_path(cache: CachePath, examined: Examined) -> Iterator[Hit]:
    seen = examined.directories.get(cache.path)
    if not cache.use_temp_path or seen is None:
        return
    for path in sorted(_temp_paths(cache, examined)):
        device = examined.temp_devices.get(path)
        if device is not None and device != seen.device:
            yield Hit(
                cache.directive,
                f"responses are written to {path} first, which is on another file system: each "
                "is then copied instead of renamed",
                "use_temp_path=off",
            )


def _temp_paths(cache: CachePath, examined: Examined) -> set[str]:
    """The ``*_temp_path`` of every location that caches there."""
    compiled = examined.temp_paths.get(cache.kind)
    found = set()
    for place in examined.using(cache):
        directive = place.first(f"{cache.kind}_temp_path")
        path = directive.args[0] if directive and directive.args else compiled
        if path:
            found.add(path)
    return found


def flat(cache: CachePath, examined: Examined) -> Iterator[Hit]:
    seen = examined.directories.get(cache.path)
    many = seen.files > MANY_FILES if seen else (cache.max_size or 0) > MANY_BYTES
    if not cache.levels and many:
        count = f"{seen.files:,} files" if seen else f"up to {format_size(cache.max_size or 0)}"
        yield Hit(
            cache.directive,
            f"without levels all entries lie in one directory ({count}): every new file waits "
            "for that directory. Changing levels empties the cache",
            "levels=1:2",
        )


def nested(cache: CachePath, examined: Examined) -> Iterator[Hit]:
    own = os.path.normpath(cache.path)
    for other in examined.configuration.caches:
        outer = os.path.normpath(other.path)
        if other is not cache and os.path.commonpath([own, outer]) == outer:
            yield Hit(
                cache.directive,
                f"{cache.path} lies in {other.path} ({other.place}): the loader of one cache "
                "deletes files of the other",
                f"{cache.kind}_cache_path {cache.path.rstrip('/')}-{cache.zone} ...;",
            )
