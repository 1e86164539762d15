"""What cache keys are made of, learned for each location where no configuration and no log says it.

    of_directory   keys as they lie in the cache: their beginnings tell
    of_log         hosts that were answered with each other's copies, or were not

Locations are taken to be first parts of paths (``/api/``). Not here: purges, which have to be
certain (``purge/learn.py``).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from nearcache.nginx.cachedir.directory import CacheDir
from nearcache.nginx.config.read.site import EVERYTHING, Site
from nearcache.nginx.keys.groups import UPSTREAM, split_key
from nearcache.nginx.whatif.rules import Today
from nearcache.nginx.whatif.traces import with_locations

SAMPLED = 5000  # keys
FEW = 10  # hosts that asked for a URL of another: fewer tell nothing
APART = 0.1  # of them: so many may have missed for other reasons
_BEFORE_PATH = re.compile(r"(?P<method>GET|HEAD)?\|?(?P<scheme>https?)?(?::?//|\|)?(?P<host>.*)")


@dataclass(frozen=True)
class KeyShapes:
    """As ``NginxTrace`` takes them: (kind, pattern) of locations, and one more of ``key_parts``."""

    locations: tuple[tuple[str, str], ...]
    key_parts: tuple[str, ...]
    learned_from: str

    def of(self, today: Today, site: Site) -> tuple[Today, Site]:
        """With these keys; rules are the same everywhere."""
        return with_locations(today, self.locations), replace(site, key_parts=self.key_parts)

    @property
    def said(self) -> str:
        """For people: what keys have before the path, and where."""
        named = [pattern for _, pattern in self.locations]
        places = [*named, "elsewhere" if named else "everywhere"]
        told = [
            f"{' and '.join(parts.split()) or 'the path alone'} {place}"
            for place, parts in zip(places, self.key_parts, strict=True)
        ]
        return f"keys, as {self.learned_from} shows them: {', '.join(told)}"


def of_directory(directory: CacheDir, count: int = SAMPLED) -> KeyShapes | None:
    """None of an empty one."""
    found: dict[str, list[str]] = defaultdict(list)
    for each in islice(directory.walk(), count):
        before, uri = split_key(each.entry.key.decode("utf-8", "surrogateescape"))
        if uri:
            found[first_part(uri)].append(before)
    if not found:
        return None
    by_part = {part: _parts_of(before) for part, before in found.items()}
    counts = {part: len(before) for part, before in found.items()}
    return _shapes(by_part, counts, "the cache directory")


def _parts_of(before: Sequence[str]) -> str:
    """What the beginnings of keys are made of. One that is an address is ``$proxy_host``."""
    prefixes = Counter(before)
    matches = [found for prefix in prefixes if (found := _BEFORE_PATH.fullmatch(prefix))]
    hosts = {found["host"] for found in matches} - {""}
    is_upstream = len(hosts) == 1 and all(UPSTREAM.search(prefix) for prefix in prefixes)
    parts = {
        "scheme": any(found["scheme"] for found in matches),
        "host": bool(hosts) and not is_upstream,
        "method": any(found["method"] for found in matches),
        "args": True,
    }
    return " ".join(name for name, is_in in parts.items() if is_in)


def of_log(hosts: Iterable[tuple[str, int, int]]) -> KeyShapes | None:
    """From ``NginxTraceFacts.hosts``. None if no host was seen to be answered with another's."""
    told = {part: (shared, apart) for part, shared, apart in hosts if shared + apart >= FEW}
    by_part = {
        part: "scheme args" if apart <= APART * (shared + apart) else EVERYTHING
        for part, (shared, apart) in told.items()
    }
    if "scheme args" not in by_part.values():
        return None
    return _shapes(by_part, {part: sum(both) for part, both in told.items()}, "the log")


def _shapes(by_part: Mapping[str, str], counts: Mapping[str, int], learned_from: str) -> KeyShapes:
    """The commonest is that of all locations but those that differ."""
    weights: Counter[str] = Counter()
    for part, parts in by_part.items():
        weights[parts] += counts[part]
    usual = by_part["/"] if "/" in by_part else weights.most_common(1)[0][0]
    others = sorted(part for part, parts in by_part.items() if parts != usual)
    return KeyShapes(
        locations=tuple(("", part) for part in others),
        key_parts=(*(by_part[part] for part in others), usual),
        learned_from=learned_from,
    )


def first_part(uri: str) -> str:
    """``/api/`` of ``/api/x?a=/``; ``/`` of what has only one part."""
    path = uri.partition("?")[0]
    end = path.find("/", 1)
    return path[: end + 1] if end > 0 else "/"
